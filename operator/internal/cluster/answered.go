package cluster

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// AnswerTimeout is how long an API server's answer may take, to its last byte. The API
// server gives a request up itself after 60 s (--request-timeout); what takes longer lost
// it on the way.
const AnswerTimeout = 75 * time.Second

var errNoAnswer = errors.New("the API server took the request and did not answer it in time")

// Answered bounds how long requests wait for their answers, so that a proxy that takes
// them and does not pass them on holds no pass for ever, nor has a cache stay as it is. A
// watch has to begin to be answered in that time; it ends when it was asked to
// (timeoutSeconds), and is ended where as much time again has passed after that. limit 0:
// [AnswerTimeout].
func Answered(next http.RoundTripper, limit time.Duration) http.RoundTripper {
	return &answered{next: next, limit: cmp.Or(limit, AnswerTimeout)}
}

type answered struct {
	next  http.RoundTripper
	limit time.Duration
}

func (a *answered) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, end := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(a.limit, func() { end(errNoAnswer) })
	cancel := func() { timer.Stop(); end(nil) }
	resp, err := a.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		err = told(ctx, err)
		cancel()
		return nil, err
	}
	if q := req.URL.Query(); q.Get("watch") == "true" || q.Get("follow") == "true" {
		if timer.Stop(); lasts(q) > 0 {
			timer.Reset(lasts(q) + a.limit)
		}
	}
	resp.Body = &answeredBody{ReadCloser: resp.Body, ctx: ctx, cancel: cancel}
	return resp, nil
}

// lasts is how long a watch is asked for, 0 for as long as there is no end.
func lasts(q url.Values) time.Duration {
	seconds, err := strconv.ParseUint(q.Get("timeoutSeconds"), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// told returns why a request ended, where that was the time.
func told(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errNoAnswer) {
		return cause
	}
	return err
}

// answeredBody is the body of an answer, whose time ends when it is closed.
type answeredBody struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // of the answer
	cancel context.CancelFunc
}

func (b *answeredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = told(b.ctx, err)
	}
	return n, err
}

func (b *answeredBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
