package remote

import (
	"context"
	"sync"
	"time"
)

// slots is an adaptive concurrency limit. It grows by one with each success until the host reports overload. It is
// then halved, and grows by one with two rounds of successes.
type slots struct {
	free chan struct{} // one token per free slot; its capacity is the user's limit

	mu       sync.Mutex
	limit    int  // current limit of the host
	owed     int  // tokens to withhold on release, since the limit has shrunk
	cautious bool // the host has reported overload before
	good     int  // successes since the limit last changed
}

const (
	// SmallBlob is the size, in bytes, up to which a blob costs a round trip rather than bandwidth. The limit for
	// such blobs starts at fewSmall times and grows to manySmall times the Concurrency. It is at most mostSmall,
	// since each blob has a connection with buffers.
	SmallBlob = 128 << 10
	fewSmall  = 4
	manySmall = 16
	mostSmall = 128
)

// Pulls returns the slots for reading a blob of that size.
func (h *Host) Pulls(size int64) *slots {
	if size <= SmallBlob {
		return h.pullSmall
	}
	return h.pull
}

// Pushes returns the slots for writing a blob, apart from those for reading: a push may read from the same host.
func (h *Host) Pushes(size int64) *slots {
	if size <= SmallBlob {
		return h.pushSmall
	}
	return h.push
}

// newSlots returns slots with the limit first, which may grow to most.
func newSlots(first, most int) *slots {
	s := &slots{free: make(chan struct{}, most), limit: first}
	for range first {
		s.free <- struct{}{}
	}
	return s
}

// Acquire allocates a slot until release is called.
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

// give returns a token. The caller holds the lock.
func (s *slots) give() {
	if s.owed > 0 {
		s.owed--
		return
	}
	s.free <- struct{}{}
}

// Most returns the user's limit.
func (s *slots) Most() int { return cap(s.free) }

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

// strained records a fault that may come from too many connections, and lowers the limits. Faults within the wait
// count once, since they share a cause. After throttling, no request starts before the wait ends. It reports whether
// that lengthens the host's pause by longPause.
func (h *Host) strained(wait time.Duration, isThrottled bool) (isLong bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	until := now.Add(wait)
	if isThrottled && until.After(h.notBefore) {
		isLong = min(wait, until.Sub(h.notBefore)) >= longPause
		h.notBefore = until
	}
	if now.Before(h.strainedUntil) {
		return isLong
	}
	h.strainedUntil = until
	for _, s := range h.slots() {
		s.shrink()
	}
	return isLong
}

// succeeded counts an answer of the host.
func (h *Host) succeeded() {
	for _, s := range h.slots() {
		s.succeed()
	}
}

func (h *Host) slots() [5]*slots {
	return [...]*slots{h.small, h.pull, h.push, h.pullSmall, h.pushSmall}
}

// ready waits until the host's pause is over.
func (c *Client) ready(ctx context.Context, h *Host) error {
	h.mu.Lock()
	wait := time.Until(h.notBefore)
	h.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	return c.opts.Sleep(ctx, wait)
}

// paced is how many bytes are read or sent between two checks of the rate limiter.
const paced = 64 << 10

// pace waits until the rate limit of all transfers allows n more bytes.
func (c *Client) pace(ctx context.Context, n int) error {
	if c.rate == nil || n <= 0 {
		return nil
	}
	return c.opts.Sleep(ctx, c.rate.ReserveN(time.Now(), n).Delay())
}

// piece returns as much of a buffer as may be filled at once.
func (c *Client) piece(p []byte) []byte {
	if c.rate == nil {
		return p
	}
	return p[:min(len(p), paced)]
}
