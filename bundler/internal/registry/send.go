package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxRedirects  = 5
	maxRetryAfter = 2 * time.Minute
	// firstContact is how often a host is tried that has never answered: a wrong
	// name should not take a minute to be told.
	firstContact = 4
	// commitFactor is how much longer than Options.Stall a registry may take to
	// answer once a whole blob is there: many copy it to where it stays first.
	commitFactor = 5
)

// call is one request to a registry.
type call struct {
	method string
	url    *url.URL
	header map[string]string
	access access
	body   func() (io.ReadCloser, error) // opened for every attempt
	size   int64                         // of the body
	ok     []int                         // statuses that are returned; others are errors
}

// send makes a request once: with the login, once more where that had run out, and
// through redirects. The caller closes the answer's body.
func (c *Client) send(ctx context.Context, h *host, q call) (*http.Response, error) {
	for again := false; ; again = true {
		if err := c.ready(ctx, h); err != nil {
			return nil, err
		}
		resp, err := c.follow(ctx, h, q)
		if err != nil {
			return nil, err
		}
		if slices.Contains(q.ok, resp.StatusCode) {
			h.thrive()
			return resp, nil
		}
		err = answer(resp)
		drain(resp.Body)
		if resp.StatusCode != http.StatusUnauthorized || again || resp.Request.URL.Host != h.base.Host {
			return nil, err
		}
		h.challenged(resp, q.access)
	}
}

// follow makes a request and goes where the answer points, without a login once
// that is another host.
func (c *Client) follow(ctx context.Context, h *host, q call) (*http.Response, error) {
	u, left := q.url, false
	for hop := 0; ; hop++ {
		left = left || u.Host != h.base.Host
		resp, err := c.sendTo(ctx, h, q, u, left)
		if err != nil || !isRedirect(resp.StatusCode) || (q.method != http.MethodGet && q.method != http.MethodHead) {
			return resp, err
		}
		drain(resp.Body)
		if hop == maxRedirects {
			return nil, refused("", errors.New("the registry redirects without end"))
		}
		if u, err = c.location(h, u, resp); err != nil {
			return nil, err
		}
	}
}

func isRedirect(status int) bool {
	return status == 301 || status == 302 || status == 303 || status == 307 || status == 308
}

func (c *Client) sendTo(ctx context.Context, h *host, q call, u *url.URL, foreign bool) (*http.Response, error) {
	req := &http.Request{Method: q.method, URL: u, Header: http.Header{}}
	for k, v := range q.header {
		req.Header.Set(k, v)
	}
	if !foreign {
		header, err := c.authorization(ctx, h, q.access)
		if err != nil {
			return nil, err
		}
		if header != "" {
			req.Header.Set("Authorization", header)
		}
	}
	if q.body != nil {
		body, err := q.body()
		if err != nil {
			return nil, &sourceError{err}
		}
		req.Body, req.ContentLength = body, q.size
		if q.size == 0 {
			_ = body.Close()
			req.Body = http.NoBody
		}
	}
	return c.roundTrip(ctx, c.transport(u.Host, foreign), req)
}

// location returns where an answer points. It may be another host, never one
// without TLS unless the user named it. The same host under http is taken for
// https: registries behind a proxy do not know that they are spoken to by TLS.
func (c *Client) location(h *host, from *url.URL, resp *http.Response) (*url.URL, error) {
	raw := resp.Header.Get("Location")
	u, err := from.Parse(raw)
	if err != nil || raw == "" || u.Host == "" || u.User != nil {
		return nil, refused("", errors.New("the registry points to what is no address"))
	}
	if u.Hostname() == h.base.Hostname() && (port(u) == port(h.base) || u.Scheme == "http" && port(u) == "80") {
		u.Host = h.base.Host
		if u.Scheme == "http" {
			u.Scheme = h.base.Scheme
		}
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !c.mayBePlain(h, u.Host)) {
		return nil, refused("name "+u.Host+" in --plain-http if that is right",
			fmt.Errorf("the registry points to %s://%s, which is not HTTPS", u.Scheme, u.Host))
	}
	u.Fragment = ""
	return u, nil
}

// port returns a URL's port, or its scheme's.
func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "http":
		return "80"
	}
	return "443"
}

// roundTrip sends a request over a transport and watches that neither side falls
// silent. When the answer's body is closed, nothing of the request runs any more.
func (c *Client) roundTrip(ctx context.Context, transport http.RoundTripper, req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{stall: c.opts.Stall}
	w.timer = time.AfterFunc(w.stall, func() { cancel(errStalled) })
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("User-Agent", c.opts.UserAgent)
	closed := make(chan struct{})
	if req.Body == nil || req.Body == http.NoBody {
		close(closed)
	} else {
		req.Body = &sending{body: req.Body, watch: w, pace: c.pace, ctx: ctx, closed: closed}
	}
	end := func() {
		w.stop()
		cancel(nil)
		<-closed
	}
	resp, err := transport.RoundTrip(req.WithContext(ctx))
	w.stop()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		end()
		return nil, err
	}
	resp.Body = &receiving{ReadCloser: resp.Body, watch: w, pace: c.pace, ctx: ctx, end: end}
	return resp, nil
}

var errStalled = errors.New("the host has been silent for too long")

// leastRate is how many bytes a second a host has to send of an answer, over
// Options.Stall each: one that drips is as good as silent.
const leastRate = 64

// watch ends a request when the network is silent for too long, or slower than
// leastRate. The time that this side takes does not count.
type watch struct {
	timer *time.Timer
	stall time.Duration

	waited time.Duration // since got was last looked at
	got    int64
}

// arrived takes note of what came within so much waiting.
func (w *watch) arrived(n int, waited time.Duration) error {
	w.got += int64(n)
	if w.waited += waited; w.waited < w.stall {
		return nil
	}
	got, least := w.got, int64(leastRate*w.waited.Seconds())
	w.got, w.waited = 0, 0
	if got < least {
		return fmt.Errorf("the host is too slow: it has sent %d bytes in %s, and %d bytes a second are the least", got, w.stall, leastRate)
	}
	return nil
}

func (w *watch) start(d time.Duration) { w.timer.Reset(d) }
func (w *watch) stop()                 { w.timer.Stop() }

// sending is a request's body: the network is silent between two reads of it.
// The transport may close it from several goroutines, and while it reads; what is
// sent must be spared that.
type sending struct {
	mu     sync.Mutex
	body   io.ReadCloser
	watch  *watch
	pace   *pace
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
	n, err := s.body.Read(p)
	if err := s.pace.take(s.ctx, n); err != nil {
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

// receiving is an answer's body: the network is silent while a read lasts.
type receiving struct {
	io.ReadCloser
	watch *watch
	pace  *pace
	ctx   context.Context //nolint:containedctx // the context of the request that the body belongs to
	end   func()
}

func (r *receiving) Read(p []byte) (int, error) {
	began := time.Now()
	r.watch.start(r.watch.stall)
	n, err := r.ReadCloser.Read(p)
	r.watch.stop()
	if slow := r.watch.arrived(n, time.Since(began)); slow != nil && err == nil {
		err = slow
	}
	if err := r.pace.take(r.ctx, n); err != nil {
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

// drain reads the rest of a small body, so that the connection can serve again,
// and closes it.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, maxDrain)
	_ = body.Close()
}

var errTooLong = errors.New("the answer is longer than allowed")

// readAll reads at most limit bytes; more is an error.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = errTooLong
	}
	return data, err
}

// acquire takes a slot until release is called.
func acquire(ctx context.Context, slots chan struct{}) (release func(), err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// retry runs an attempt until it succeeds, its fault cannot pass, or there have
// been enough. What it returns is a fault for op and subject.
func (c *Client) retry(ctx context.Context, h *host, op, subject string, attempt func(n int) error) error {
	for n := 1; ; n++ {
		err := attempt(n)
		if err == nil {
			return nil
		}
		if err = c.wait(ctx, h, err, n); err != nil {
			return c.explain(ctx, h, op, subject, err)
		}
	}
}

// wait returns nil when the n-th attempt that failed may be followed by another,
// after having waited for it.
func (c *Client) wait(ctx context.Context, h *host, err error, n int) error {
	most := c.opts.Attempts
	var answered *answerError
	if !h.reached() && !errors.As(err, &answered) {
		most = min(most, firstContact)
	}
	after := retryAfter(err)
	if !canPass(err) || n >= most || after > maxRetryAfter || ctx.Err() != nil {
		return err
	}
	pause := max(after, backoff(c.opts.Backoff, n))
	switch {
	case isThrottling(err):
		h.throttled(pause)
	case answered == nil && h.reached():
		h.strained(pause)
	}
	return c.opts.Sleep(ctx, pause)
}

// backoff doubles with each attempt, and varies so that many do not come at once.
func backoff(first time.Duration, n int) time.Duration {
	d := maxBackoff
	if n < 16 {
		d = min(first<<(n-1), maxBackoff)
	}
	return d/2 + rand.N(d/2+1) //nolint:gosec // no secret
}

// reply is an answer that was read into memory.
type reply struct {
	status int
	header http.Header
	length int64 // what Content-Length said; -1 for nothing
	data   []byte
}

// mediaType returns the Content-Type without parameters, or "".
func (a reply) mediaType() string {
	t, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}

// small makes a request whose answer is read into memory, tried as often as it
// takes.
func (r *Repository) small(ctx context.Context, op, subject string, q call, limit int64) (reply, error) {
	var a reply
	release, err := r.host.small.acquire(ctx)
	if err != nil {
		return a, r.client.explain(ctx, r.host, op, subject, err)
	}
	defer release()
	err = r.client.retry(ctx, r.host, op, subject, func(int) error {
		resp, err := r.client.send(ctx, r.host, q) //nolint:bodyclose // drain closes it
		if err != nil {
			return err
		}
		defer drain(resp.Body)
		a = reply{status: resp.StatusCode, header: resp.Header, length: resp.ContentLength}
		a.data, err = readAll(resp.Body, limit)
		if err == nil && a.length > 0 && q.method != http.MethodHead && a.length != int64(len(a.data)) {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	return a, err
}

// address returns the URL of a thing in the repository.
func (r *Repository) address(parts ...string) *url.URL {
	return &url.URL{Scheme: r.host.base.Scheme, Host: r.host.base.Host, Path: "/v2/" + r.ref.Path() + "/" + strings.Join(parts, "/")}
}

func (r *Repository) pulls() access  { return access{path: r.ref.Path(), actions: "pull"} }
func (r *Repository) pushes() access { return access{path: r.ref.Path(), actions: "pull,push"} }
