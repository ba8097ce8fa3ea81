package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

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
