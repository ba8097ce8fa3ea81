package sshd

import (
	"sync"
	"time"
)

// settling is how long the last lines of the audit may take when the program ends.
const settling = 10 * time.Second

// pending counts connections and channels whose last line of the audit is to come.
type pending struct {
	mu   sync.Mutex
	over bool
	all  sync.WaitGroup
}

// enter counts one; false at the end of the program.
func (p *pending) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.all.Add(1)
	}
	return !p.over
}

func (p *pending) leave() { p.all.Done() }

// end lets nothing more in, and returns what is closed when all have left.
func (p *pending) end() <-chan struct{} {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	left := make(chan struct{})
	go func() {
		p.all.Wait()
		close(left)
	}()
	return left
}

// settle closes the connections that are left, those before their login too, and waits
// until the audit has told of each: a program that ended before its last lines would
// leave an auditor with logins that have no end.
func (s *Server) settle() {
	left := s.pending.end()
	for _, c := range s.connections() {
		_ = c.Close()
	}
	select {
	case <-left:
	case <-time.After(settling):
		s.o.Log.Warn("the audit may lack the last lines of some connections", "waited", settling.String())
	}
}

// connections are those that are open.
func (s *Server) connections() []*connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	conns := make([]*connection, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}
