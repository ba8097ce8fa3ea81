package remote

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	maxRetryAfter = 2 * time.Minute
	// firstContact is how often a host is tried that has never answered: a wrong
	// name should not take a minute to be told.
	firstContact = 4
)

// Retry runs an attempt until it succeeds, its fault cannot pass, or there have
// been enough. What it returns is a fault for op and subject.
func (c *Client) Retry(ctx context.Context, h *Host, op, subject string, attempt func(n int) error) error {
	for n := 1; ; n++ {
		err := attempt(n)
		if err == nil {
			return nil
		}
		if err = c.Wait(ctx, h, err, n); err != nil {
			return c.Explain(ctx, h, op, subject, err)
		}
	}
}

// Wait returns nil when the n-th attempt that failed may be followed by another,
// after having waited for it.
func (c *Client) Wait(ctx context.Context, h *Host, err error, n int) error {
	most := c.opts.Attempts
	var answered *AnswerError
	if !h.reached() && !errors.As(err, &answered) {
		most = min(most, firstContact)
	}
	after := retryAfter(err)
	if !CanPass(err) || n >= most || after > maxRetryAfter || ctx.Err() != nil {
		return err
	}
	pause := max(after, Backoff(c.opts.Backoff, n))
	switch {
	case isThrottling(err):
		h.throttled(pause)
	case answered == nil && h.reached():
		h.strained(pause)
	}
	return c.opts.Sleep(ctx, pause)
}

// Backoff is the wait after the n-th failure: it doubles with each attempt, up to a minute, and varies so that many do not come at once.
func Backoff(first time.Duration, n int) time.Duration {
	d := maxBackoff
	if n < 16 {
		d = min(first<<(n-1), maxBackoff)
	}
	return d/2 + rand.N(d/2+1) //nolint:gosec // no secret
}
