package logins

import (
	"context"
	"sync"
)

// lanes lets one at a time through for each name. The zero value is ready.
type lanes struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // closed when the lane is left
}

// enter waits until the lane is free, or ctx is over. Call leave when done.
func (l *lanes) enter(ctx context.Context, name string) (leave func(), err error) {
	for {
		taken, mine := l.take(name)
		if taken == nil {
			return func() { l.free(name, mine) }, nil
		}
		select {
		case <-taken:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take takes the lane, or returns what to wait for.
func (l *lanes) take(name string) (taken, mine chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy == nil {
		l.busy = map[string]chan struct{}{}
	}
	if c, ok := l.busy[name]; ok {
		return c, nil
	}
	mine = make(chan struct{})
	l.busy[name] = mine
	return nil, mine
}

func (l *lanes) free(name string, mine chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.busy, name)
	close(mine)
}
