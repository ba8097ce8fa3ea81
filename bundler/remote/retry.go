package remote

import (
	"context"
	"errors"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/retry"
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
	pause := max(after, retry.Backoff(c.opts.Backoff, n))
	switch {
	case isThrottling(err):
		h.throttled(pause)
	case answered == nil && h.reached():
		h.strained(pause)
	}
	return c.opts.Sleep(ctx, pause)
}
