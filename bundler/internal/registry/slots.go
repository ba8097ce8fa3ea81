package registry

import (
	"context"
	"sync"
	"time"
)

// slots let so many do something at a time. The number is halved when the host
// says that it is too many, and grows again by one with what succeeds.
type slots struct {
	mu      sync.Mutex
	most    int // what the user allows
	limit   int // what the host takes now
	used    int
	good    int             // successes since the limit last changed
	waiting []chan struct{} // in the order of their coming
}

func newSlots(most int) *slots { return &slots{most: most, limit: most} }

// acquire takes a slot until release is called.
func (s *slots) acquire(ctx context.Context) (release func(), err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.used < s.limit && len(s.waiting) == 0 {
		s.used++
		s.mu.Unlock()
		return s.release, nil
	}
	turn := make(chan struct{})
	s.waiting = append(s.waiting, turn)
	s.mu.Unlock()
	select {
	case <-turn:
		return s.release, nil
	case <-ctx.Done():
		s.leave(turn)
		return nil, context.Cause(ctx)
	}
}

// leave gives up waiting, or the slot that was given meanwhile.
func (s *slots) leave(turn chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, w := range s.waiting {
		if w == turn {
			s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
			return
		}
	}
	s.used--
	s.admit()
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.admit()
}

// admit lets in who waits. The caller holds the lock.
func (s *slots) admit() {
	for s.used < s.limit && len(s.waiting) > 0 {
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
		s.used++
	}
}

// shrink halves the number.
func (s *slots) shrink() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit, s.good = max(1, s.limit/2), 0
}

// thrive counts a success: after two rounds of them there is one slot more.
func (s *slots) thrive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit == s.most {
		return
	}
	if s.good++; s.good >= 2*s.limit {
		s.limit, s.good = s.limit+1, 0
		s.admit()
	}
}

// throttled takes note that the host has had enough: nobody asks it before the wait
// is over, and fewer at a time after that.
func (h *host) throttled(wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if !now.Before(h.notBefore) { // one pause counts once, however many hear of it
		h.small.shrink()
		h.pull.shrink()
		h.push.shrink()
	}
	if until := now.Add(wait); until.After(h.notBefore) {
		h.notBefore = until
	}
}

// thrive takes note that the host has answered.
func (h *host) thrive() {
	h.small.thrive()
	h.pull.thrive()
	h.push.thrive()
}

// ready waits until the host may be asked again.
func (c *Client) ready(ctx context.Context, h *host) error {
	h.mu.Lock()
	wait := time.Until(h.notBefore)
	h.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	return c.opts.Sleep(ctx, wait)
}

// pace holds all transfers of a client to a number of bytes a second.
type pace struct {
	rate  int64
	sleep func(context.Context, time.Duration) error

	mu   sync.Mutex
	next time.Time // when what was taken so far is paid for
}

// take waits until n bytes more are due. Nil: there is no limit.
func (p *pace) take(ctx context.Context, n int) error {
	if p == nil || n <= 0 {
		return nil
	}
	p.mu.Lock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	wait := p.next.Sub(now)
	p.mu.Unlock()
	return p.sleep(ctx, wait)
}
