// Package retry waits between attempts at what fails for a passing reason.
//
//	data, err := retry.Do(ctx, retry.Policy{Attempts: 4}, func() (data []byte, again bool, err error) {
//		return fetch(ctx)
//	})
//
// The wait doubles with each attempt up to a minute, and varies, so that many who were
// cut off at once do not come back at once.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Policy says how often something is tried, and how patiently.
type Policy struct {
	// Attempts is how often it is tried before its error is final. Zero: once.
	Attempts int
	// First is about how long the wait after the first attempt is. Zero: half a second.
	First time.Duration
	// Sleep waits. Nil: the clock.
	Sleep func(ctx context.Context, d time.Duration) error
}

const (
	defaultFirst = 500 * time.Millisecond
	longest      = time.Minute
)

// Do returns what an attempt does, and repeats one that says that another may succeed.
// When ctx ends, the last attempt's error is returned, or the cause where it ends a wait.
func Do[T any](ctx context.Context, p Policy, attempt func() (result T, again bool, err error)) (T, error) {
	if p.First <= 0 {
		p.First = defaultFirst
	}
	if p.Sleep == nil {
		p.Sleep = Sleep
	}
	for n := 1; ; n++ {
		result, again, err := attempt()
		if err == nil || !again || n >= p.Attempts || ctx.Err() != nil {
			return result, err
		}
		if err := p.Sleep(ctx, Backoff(p.First, n)); err != nil {
			return result, err
		}
	}
}

// Backoff is the wait after the n-th attempt, counted from 1, where the first is about
// so long: half of it at least.
func Backoff(first time.Duration, n int) time.Duration {
	d := longest
	if n < 16 {
		d = min(first<<(n-1), longest)
	}
	return d/2 + rand.N(d/2+1) //nolint:gosec // no secret
}

// Sleep waits until a time is over or ctx ends, and returns the cause of that.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
