package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const (
	maxRedirects = 5
	// commitFactor times Options.Stall is how long a registry may take to answer after a whole blob arrived. Many
	// copy it to its final place first.
	commitFactor = 5
)

// Request is one request to a registry.
type Request struct {
	Method string
	URL    *url.URL
	Header map[string]string
	Access Access
	Body   func() (io.ReadCloser, error) // opened for every attempt
	Size   int64                         // of the body
	// Private keeps the body from hosts other than the URL's. Strange keeps the user's certificate from the host.
	Private, Strange bool
	OK               []int // statuses that Send returns; others are errors
}

// Send sends a request, follows redirects, and repeats once with a new token or login. The caller closes the body.
func (c *Client) Send(ctx context.Context, h *Host, q Request) (*http.Response, error) {
	for again := false; ; again = true {
		if err := c.ready(ctx, h); err != nil {
			return nil, err
		}
		login := func() (string, error) { return c.authorization(ctx, h, q.Access) }
		resp, err := c.follow(ctx, h, q, h.base.Host, login)
		if err != nil {
			return nil, err
		}
		if slices.Contains(q.OK, resp.StatusCode) {
			h.succeeded()
			return resp, nil
		}
		err = h.answer(resp)
		Drain(resp.Body)
		if resp.StatusCode != http.StatusUnauthorized || again || resp.Request.URL.Host != h.base.Host ||
			!c.canRepeat(ctx, h, resp, q.Access) {
			return nil, err
		}
	}
}

// call is Send for callers that need only the headers.
func (c *Client) call(ctx context.Context, h *Host, q Request) (*http.Response, error) {
	resp, err := c.Send(ctx, h, q)
	if err == nil {
		Drain(resp.Body)
	}
	return resp, err
}

// follow sends a request and follows redirects. It stops sending the login at the first host other than home.
func (c *Client) follow(
	ctx context.Context, h *Host, q Request, home string, login func() (string, error),
) (*http.Response, error) {
	u, left := q.URL, false
	for hop := 0; ; hop++ {
		left = left || u.Host != home
		if left && q.Private {
			return nil, Refused("name that service in the registry's settings",
				fmt.Errorf("the token service sends the login on to another host, %s", u.Host))
		}
		req := &http.Request{Method: q.Method, URL: u, Header: http.Header{}}
		for k, v := range q.Header {
			req.Header.Set(k, v)
		}
		if !left {
			header, err := login()
			if err != nil {
				return nil, err
			}
			if header != "" {
				req.Header.Set("Authorization", header)
			}
		}
		if err := q.open(req); err != nil {
			return nil, err
		}
		resp, err := c.roundTrip(ctx, c.transport(u.Host, q.Strange || left || u.Host != h.base.Host), req)
		if err != nil || !isRedirect(resp.StatusCode, q.Method) {
			return resp, h.elsewhere(req, err)
		}
		Drain(resp.Body)
		if hop == maxRedirects {
			return nil, Refused("", errors.New("the server redirects without end"))
		}
		if u, err = c.Location(h, u, resp); err != nil {
			return nil, err
		}
	}
}

// elsewhere names the host in an error of a request to another one.
func (h *Host) elsewhere(req *http.Request, err error) error {
	if err == nil || req.URL.Host == h.base.Host {
		return err
	}
	return &url.Error{Op: req.Method, URL: req.URL.Host, Err: err}
}

// open opens the body and sets it on req.
func (q *Request) open(req *http.Request) error {
	if q.Body == nil {
		return nil
	}
	body, err := q.Body()
	if err != nil {
		return err
	}
	req.Body, req.ContentLength = body, q.Size
	if q.Size == 0 {
		_ = body.Close()
		req.Body = http.NoBody
	}
	return nil
}

// isRedirect reports whether to repeat the request elsewhere. Statuses other than 307 and 308 would turn any method
// but GET or HEAD into GET.
func isRedirect(status int, method string) bool {
	reads := method == http.MethodGet || method == http.MethodHead
	return status == 307 || status == 308 || reads && (status == 301 || status == 302 || status == 303)
}

// Location returns the target of an answer. Another host must use TLS unless the user named it. The same host under
// http becomes https: registries behind a proxy do not know that clients use TLS.
func (c *Client) Location(h *Host, from *url.URL, resp *http.Response) (*url.URL, error) {
	raw := resp.Header.Get("Location")
	u, err := from.Parse(raw)
	if err != nil || raw == "" || u.Host == "" || u.User != nil {
		return nil, Refused("", errors.New("the registry points to what is not an address"))
	}
	if u.Hostname() == h.base.Hostname() && (port(u) == port(h.base) || u.Scheme == "http" && port(u) == "80") {
		u.Host = h.base.Host
		if u.Scheme == "http" {
			u.Scheme = h.base.Scheme
		}
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !c.mayBePlain(h, u.Host)) {
		return nil, Refused("name "+u.Host+" in --plain-http if that is right",
			fmt.Errorf("the registry points to %s://%s, which is not HTTPS", u.Scheme, u.Host))
	}
	if u.Host != h.base.Host {
		if err := c.stranger(u.Hostname()); err != nil {
			return nil, Refused("ask the registry's administrator where it sends its clients", err)
		}
	}
	u.Fragment = ""
	return u, nil
}

// stranger refuses forbidden addresses in a server's URL, also if a proxy would dial them.
func (c *Client) stranger(name string) error {
	name, _, _ = strings.Cut(strings.TrimSuffix(name, "."), "%") // without the root's dot and the zone
	if strings.EqualFold(name, "localhost") {
		name = "127.0.0.1"
	}
	if net.ParseIP(name) == nil {
		return nil // the dialler checks the address of a name
	}
	return refuseAddress(net.JoinHostPort(name, "443"), c.opts.NoLoopback)
}

// port returns a URL's port, or the default of its scheme.
func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "http":
		return "80"
	}
	return "443"
}

// roundTrip sends a request and cancels it if either side falls silent. Closing the answer's body ends all of it.
func (c *Client) roundTrip(
	ctx context.Context, transport http.RoundTripper, req *http.Request,
) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{stall: c.opts.Stall}
	first := w.stall
	if req.Body == http.NoBody { // it ends an upload in parts
		first *= commitFactor
	}
	w.timer = time.AfterFunc(first, func() { cancel(ErrStalled) })
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("User-Agent", c.opts.UserAgent)
	closed := make(chan struct{})
	if req.Body == nil || req.Body == http.NoBody {
		close(closed)
	} else {
		req.Body = &sending{body: req.Body, watch: w, client: c, ctx: ctx, closed: closed}
	}
	end := func() {
		w.stop()
		cancel(nil)
		<-closed
	}
	resp, err := c.trace(transport, req.WithContext(ctx))
	w.stop()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		end()
		return nil, err
	}
	resp.Body = &receiving{ReadCloser: resp.Body, watch: w, client: c, ctx: ctx, end: end}
	return resp, nil
}

// ErrStalled means that the host did not answer or continue within Options.Stall.
var ErrStalled = errors.New("the host has been silent for too long")

// watch is the idle timeout of a request. It excludes time that this side takes.
type watch struct {
	timer *time.Timer
	stall time.Duration
}

func (w *watch) start(d time.Duration) { w.timer.Reset(d) }
func (w *watch) stop()                 { w.timer.Stop() }

// sending is a request's body. The idle timeout runs between two reads. The transport may close it from several
// goroutines and during a read; sending shields the body from that.
type sending struct {
	mu     sync.Mutex
	body   io.ReadCloser
	watch  *watch
	client *Client
	ctx    context.Context //nolint:containedctx // the context of the request that the body belongs to
	closed chan struct{}
	done   bool
}

func (s *sending) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return 0, errors.New("read of a closed body")
	}
	s.watch.stop()
	n, err := s.body.Read(s.client.piece(p))
	if err := s.client.pace(s.ctx, n); err != nil {
		return n, err
	}
	if err != nil {
		s.watch.start(commitFactor * s.watch.stall)
	} else {
		s.watch.start(s.watch.stall)
	}
	return n, err
}

func (s *sending) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return nil
	}
	s.done = true
	defer close(s.closed)
	return s.body.Close()
}

// receiving is an answer's body. The idle timeout runs during a read.
type receiving struct {
	io.ReadCloser
	watch  *watch
	client *Client
	ctx    context.Context //nolint:containedctx // the context of the request that the body belongs to
	end    func()
}

func (r *receiving) Read(p []byte) (int, error) {
	r.watch.start(r.watch.stall)
	n, err := r.ReadCloser.Read(r.client.piece(p))
	r.watch.stop()
	if err := r.client.pace(r.ctx, n); err != nil {
		return n, err
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(r.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

func (r *receiving) Close() error {
	err := r.ReadCloser.Close()
	r.end()
	return err
}

const maxDrain = 64 << 10

// Drain reads the rest of a small body and closes it, so that the connection can be reused.
func Drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, maxDrain)
	_ = body.Close()
}

var errTooLong = errors.New("the answer is longer than allowed")

// ReadAll reads r; more than limit bytes are an error.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = errTooLong
	}
	return data, err
}

const (
	maxRetryAfter = 2 * time.Minute
	longPause     = 5 * time.Second // shorter ones are not told
	// firstContact limits attempts to a host that never answered, to report a wrong name within a minute.
	firstContact = 4
)

// Retry runs an attempt until it succeeds, its fault is permanent, or the attempts are used up. It returns a fault
// for op and subject.
func (c *Client) Retry(ctx context.Context, h *Host, op, subject string, attempt func() error) error {
	for n := 1; ; n++ {
		err := attempt()
		if err == nil {
			return nil
		}
		if err = c.Wait(ctx, h, err, n); err != nil {
			return c.Explain(ctx, h, op, subject, err)
		}
	}
}

// Wait waits before the next attempt and returns nil, or returns err if the n-th failure was the last.
func (c *Client) Wait(ctx context.Context, h *Host, err error, n int) error {
	most := c.opts.Attempts
	answer := &AnswerError{}
	if !errors.As(err, &answer) && !h.reached() {
		most = min(most, firstContact)
	}
	if !CanPass(err) || n >= most || answer.After > maxRetryAfter || ctx.Err() != nil {
		return err
	}
	pause := max(answer.After, backoff(n))
	throttled := answer.Status == http.StatusTooManyRequests ||
		answer.Status == http.StatusServiceUnavailable && answer.After > 0
	if throttled || h.reached() {
		if h.strained(pause, throttled) && c.opts.Paused != nil {
			c.opts.Paused(h.name, pause)
		}
	}
	return c.opts.Sleep(ctx, pause)
}

const (
	firstWait   = 500 * time.Millisecond
	longestWait = time.Minute
)

// backoff returns the wait after the n-th attempt, from 1: a random time of at least half of a doubling limit. The
// jitter spreads clients that were cut off together.
func backoff(n int) time.Duration {
	d := longestWait
	if n < 16 {
		d = min(firstWait<<(n-1), longestWait)
	}
	return d/2 + rand.N(d/2+1) //nolint:gosec // no secret
}

// sleep waits for d, or returns the cause if ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Exchange is one request and its outcome, without secrets: no header, body, query or login. Its path is shown only
// if the distribution specification defines it, since other addresses may be signed.
type Exchange struct {
	Method string
	Target string        // https://HOST/PATH
	Status int           // 0 without an answer
	Err    string        // why there was no answer
	Took   time.Duration // until the headers of the answer
}

// trace sends a request and reports it to Options.Trace.
func (c *Client) trace(t http.RoundTripper, req *http.Request) (*http.Response, error) {
	if c.opts.Trace == nil {
		return t.RoundTrip(req)
	}
	started := time.Now()
	resp, err := t.RoundTrip(req)
	x := Exchange{
		Method: req.Method, Took: time.Since(started),
		Target: req.URL.Scheme + "://" + req.URL.Host + c.shown(t, req.URL.EscapedPath()),
	}
	if err != nil {
		x.Err = harmless(err)
	} else {
		x.Status = resp.StatusCode
	}
	c.opts.Trace(x)
	return resp, err
}

// shown returns the path for a trace. It hides paths that a server chose: redirect targets and names of uploads.
func (c *Client) shown(t http.RoundTripper, path string) string {
	for _, n := range c.transports {
		if t == n.foreign {
			return "/…"
		}
	}
	if !strings.HasPrefix(path, "/v2/") {
		return "/…"
	}
	if before, name, upload := strings.Cut(path, "/blobs/uploads/"); upload && name != "" {
		return before + "/blobs/uploads/…"
	}
	return path
}

// harmless returns an error's text without anything that a server sent, which could repeat a secret.
func harmless(err error) string {
	var op *net.OpError
	switch {
	case errors.As(err, &op):
		return op.Error()
	case IsCertificate(err):
		return "its certificate is not trusted"
	}
	return "no answer"
}

// Web sends a request to a server that is no registry, and returns at most limit bytes of its answer. The settings of
// its host apply: CA, client certificate, plain HTTP, Concurrency. The server gets no login, nor the certificate for
// all registries. Hints of its faults name without, a way to work without the server.
func (c *Client) Web(ctx context.Context, op string, q Request, limit int64, without string) (a Reply, err error) {
	u := *q.URL
	if u.Scheme == "https" {
		u.Host = strings.TrimSuffix(u.Host, ":443") // as the settings write it
	}
	_, isNamed := c.transports[u.Host]
	q.URL, q.Strange = &u, !isNamed
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path} // the query may be secret
	h, subject := c.Host(u.Host), shown.String()
	if u.Scheme != "https" && (u.Scheme != "http" || !c.mayBePlain(h, u.Host)) {
		hint := "give an https: URL, or allow plain HTTP for this host with --plain-http " + u.Host
		if CheckHost("", u.Host) != nil {
			hint = "give an https: URL, or name the host with its domain or port"
		}
		err := Refused(hint, fmt.Errorf("vdo-bundle does not download over %q", u.Scheme))
		return a, c.Explain(ctx, h, op, subject, err)
	}
	release, err := h.pull.Acquire(ctx)
	if err != nil {
		return a, c.Explain(ctx, h, op, subject, err)
	}
	defer release()
	err = c.Retry(ctx, h, op, subject, func() error {
		resp, err := c.follow(ctx, h, q, u.Host, func() (string, error) { return "", nil })
		if err != nil {
			return err
		}
		defer resp.Body.Close() //nolint:errcheck // only read
		if !slices.Contains(q.OK, resp.StatusCode) {
			return h.answer(resp)
		}
		a = Reply{Status: resp.StatusCode, Header: resp.Header, Length: resp.ContentLength}
		a.Data, err = io.ReadAll(io.LimitReader(resp.Body, limit))
		return err
	})
	return a, doWithout(err, without)
}

// doWithout replaces the hints for registries with one for servers.
func doWithout(err error, without string) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Reason == fault.Refused {
		return err
	}
	out := *f
	out.Hint = "try again later, check the address, the proxy and the certificates (--ca-file, --hosts-config), or " +
		without
	return &out
}
