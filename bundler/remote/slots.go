package remote

import (
	"context"
	"sync"
	"time"
)

// slots let so many do something at a time. The number grows by one with each
// success until the host says that it is too many; then it is halved, and grows by
// one with two rounds of successes.
type slots struct {
	free chan struct{} // one token for each that is not taken; its capacity is what the user allows

	mu       sync.Mutex
	limit    int  // what the host takes now
	owed     int  // tokens that are taken and not given back, since the limit has shrunk
	cautious bool // the host has once answered that it was too many
	good     int  // successes since the limit last changed
}

const (
	// SmallBlob is up to how many bytes a blob costs a round trip rather than a part
	// of the link: so many more of them are under way at a time, fewSmall to begin
	// with and manySmall where the host keeps up, and never more than mostSmall, since
	// each has a connection with its buffers.
	SmallBlob = 128 << 10
	fewSmall  = 4
	manySmall = 16
	mostSmall = 128
)

// Pulls returns the slots for reading a blob.
func (h *Host) Pulls(size int64) *slots {
	if size <= SmallBlob {
		return h.pullSmall
	}
	return h.pull
}

// Pushes returns the slots for writing a blob. They are not those for reading: a
// blob may be read from the host that it is written to.
func (h *Host) Pushes(size int64) *slots {
	if size <= SmallBlob {
		return h.pushSmall
	}
	return h.push
}

// newSlots lets first do something at a time to begin with, and most where the host keeps up.
func newSlots(first, most int) *slots {
	s := &slots{free: make(chan struct{}, most), limit: first}
	for range first {
		s.free <- struct{}{}
	}
	return s
}

// Acquire takes a slot until release is called.
func (s *slots) Acquire(ctx context.Context) (release func(), err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	select {
	case <-s.free:
		return s.release, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give()
}

// give gives a token back. The caller holds the lock.
func (s *slots) give() {
	if s.owed > 0 {
		s.owed--
		return
	}
	s.free <- struct{}{}
}

// Most is how many the user allows at a time.
func (s *slots) Most() int { return cap(s.free) }

// shrink halves the number.
func (s *slots) shrink() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for least := max(1, s.limit/2); s.limit > least; s.limit-- {
		select {
		case <-s.free:
		default:
			s.owed++
		}
	}
	s.good, s.cautious = 0, true
}

// succeed counts a success.
func (s *slots) succeed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit == s.Most() {
		return
	}
	if s.good++; !s.cautious || s.good >= 2*s.limit {
		s.limit, s.good = s.limit+1, 0
		s.give()
	}
}

// strained takes note of a fault that may come from too many connections: fewer at a time from now
// on. What is heard of within the wait counts once: it is of one cause. Where the host has said that
// it has had enough, no one asks it before the wait is over.
func (h *Host) strained(wait time.Duration, isThrottled bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	until := now.Add(wait)
	if isThrottled && until.After(h.notBefore) {
		h.notBefore = until
	}
	if now.Before(h.strainedUntil) {
		return
	}
	h.strainedUntil = until
	for _, s := range h.slots() {
		s.shrink()
	}
}

// succeeded takes note that the host has answered.
func (h *Host) succeeded() {
	for _, s := range h.slots() {
		s.succeed()
	}
}

func (h *Host) slots() [5]*slots {
	return [...]*slots{h.small, h.pull, h.push, h.pullSmall, h.pushSmall}
}

// ready waits until the host may be asked again.
func (c *Client) ready(ctx context.Context, h *Host) error {
	h.mu.Lock()
	wait := time.Until(h.notBefore)
	h.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	return c.opts.Sleep(ctx, wait)
}

// paced is how many bytes are read or sent before the rate is looked at.
const paced = 64 << 10

// pace waits until n bytes more are due, of all transfers together.
func (c *Client) pace(ctx context.Context, n int) error {
	if c.rate == nil || n <= 0 {
		return nil
	}
	return c.opts.Sleep(ctx, c.rate.ReserveN(time.Now(), n).Delay())
}

// piece is as much of a buffer as may be filled at once.
func (c *Client) piece(p []byte) []byte {
	if c.rate == nil {
		return p
	}
	return p[:min(len(p), paced)]
}
