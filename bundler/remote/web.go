package remote

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
)

// Web carries requests to servers that are no registries: those that upstream
// manifests are downloaded from. A host's own settings hold for it (authority, client
// certificate, plain HTTP, and Concurrency for how many requests at a time); the
// certificate that all registries are shown is not shown to it, and no credentials.
type Web struct {
	c  *Client
	mu sync.Mutex
	at map[string]*slots // of hosts that have a limit
}

// Web returns what carries them.
func (c *Client) Web() *Web { return &Web{c: c, at: map[string]*slots{}} }

// PlainHTTP tells whether a host, as URLs write it, is spoken to without TLS where a
// URL says so.
func (w *Web) PlainHTTP(host string) bool { return w.c.plain[host] }

// RoundTrip carries one request, see [http.RoundTripper].
func (w *Web) RoundTrip(req *http.Request) (*http.Response, error) {
	host := req.URL.Host
	if h, port, err := net.SplitHostPort(host); err == nil && port == "443" && req.URL.Scheme == "https" {
		host = h
	}
	release, err := w.acquire(req.Context(), host)
	if err != nil {
		return nil, err
	}
	resp, err := w.c.trace(w.transport(host, req), req)
	if err != nil {
		release()
		return nil, err
	}
	resp.Body = &released{ReadCloser: resp.Body, release: release}
	return resp, nil
}

// transport shows a host's own certificate where the URL that was asked for names the
// host, not where another server redirects to it.
func (w *Web) transport(host string, req *http.Request) *http.Transport {
	for r := req; r.Response != nil && r.Response.Request != nil; r = r.Response.Request {
		if r.Response.Request.URL.Host != req.URL.Host {
			return w.c.transport(host, true)
		}
	}
	if t, ok := w.c.named[host]; ok {
		return t.own
	}
	return w.c.foreign
}

// acquire waits for a slot of the host, where its number is limited.
func (w *Web) acquire(ctx context.Context, host string) (release func(), err error) {
	limit := w.c.opts.Hosts[host].Concurrency
	if limit <= 0 {
		return func() {}, nil
	}
	w.mu.Lock()
	if w.at[host] == nil {
		w.at[host] = newSlots(limit, limit)
	}
	s := w.at[host]
	w.mu.Unlock()
	if release, err = s.Acquire(ctx); err != nil {
		return nil, err
	}
	return sync.OnceFunc(release), nil
}

// released gives its slot back when it is closed.
type released struct {
	io.ReadCloser
	release func()
}

func (r *released) Close() error {
	defer r.release()
	return r.ReadCloser.Close()
}
