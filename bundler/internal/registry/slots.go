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

const (
	// smallBlob is up to how many bytes a blob costs a round trip rather than a part
	// of the link: so many more of them are under way at a time.
	smallBlob = 128 << 10
	manySmall = 4
)

// pulls returns the slots for reading a blob.
func (h *host) pulls(size int64) *slots {
	if size <= smallBlob {
		return h.pullSmall
	}
	return h.pull
}

// pushes returns the slots for writing a blob. They are not those for reading: a
// blob may be read from the host that it is written to.
func (h *host) pushes(size int64) *slots {
	if size <= smallBlob {
		return h.pushSmall
	}
	return h.push
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

// try takes a slot if one is free at once; else it returns nil.
func (s *slots) try() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.limit || len(s.waiting) > 0 {
		return nil
	}
	s.used++
	return s.release
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
		for _, s := range h.slots() {
			s.shrink()
		}
	}
	if until := now.Add(wait); until.After(h.notBefore) {
		h.notBefore = until
	}
}

// thrive takes note that the host has answered.
func (h *host) thrive() {
	for _, s := range h.slots() {
		s.thrive()
	}
}

func (h *host) slots() [5]*slots {
	return [...]*slots{h.small, h.pull, h.push, h.pullSmall, h.pushSmall}
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
