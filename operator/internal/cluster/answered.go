package cluster

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// AnswerTimeout is how long an API server's answer may take, to its last byte. The API
// server gives a request up itself after 60 s (--request-timeout); what takes longer lost
// it on the way.
const AnswerTimeout = 75 * time.Second

var errNoAnswer = errors.New("the API server took the request and did not answer it in time")

// Answered bounds how long requests wait for their answers, so that a proxy that takes
// them and does not pass them on holds no pass for ever. Watches are not bounded: they
// stay open as long as nothing happens. limit 0: [AnswerTimeout].
func Answered(next http.RoundTripper, limit time.Duration) http.RoundTripper {
	if limit == 0 {
		limit = AnswerTimeout
	}
	return &answered{next: next, limit: limit}
}

type answered struct {
	next  http.RoundTripper
	limit time.Duration
}

func (a *answered) RoundTrip(req *http.Request) (*http.Response, error) {
	if q := req.URL.Query(); q.Get("watch") == "true" || q.Get("follow") == "true" {
		return a.next.RoundTrip(req)
	}
	ctx, cancel := context.WithTimeoutCause(req.Context(), a.limit, errNoAnswer)
	resp, err := a.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		err = told(ctx, err)
		cancel()
		return nil, err
	}
	resp.Body = &answeredBody{ReadCloser: resp.Body, ctx: ctx, cancel: cancel}
	return resp, nil
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
