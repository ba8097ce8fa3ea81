package remote

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSlotsShrinkAndGrowAgain(t *testing.T) {
	s := newSlots(8, 8)
	var held []func()
	for range 8 {
		release, err := s.Acquire(t.Context())
		require.NoError(t, err)
		held = append(held, release)
	}
	s.shrink()
	s.shrink()
	require.Equal(t, 2, s.limit)
	for _, release := range held[:6] {
		release()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Acquire(ctx)
	require.ErrorIs(t, err, context.Canceled)

	got := make(chan func())
	go func() {
		release, err := s.Acquire(t.Context())
		if err == nil {
			got <- release
		}
	}()
	held[6]()
	(<-got)()
	held[7]()
	require.Zero(t, s.used)
	for range 4 {
		require.Equal(t, 2, s.limit)
		s.succeed()
	}
	require.Equal(t, 3, s.limit)
	for range 1000 {
		s.succeed()
	}
	require.Equal(t, 8, s.limit)
	for range 10 {
		s.shrink()
	}
	require.Equal(t, 1, s.limit)
}

// As long as a host keeps up, each success makes room for one more.
func TestSlotsGrowFastUntilItIsTooMuch(t *testing.T) {
	s := newSlots(2, 8)
	for want := 3; want <= 8; want++ {
		s.succeed()
		require.Equal(t, want, s.limit)
	}
	s.succeed()
	require.Equal(t, 8, s.limit)
	s.shrink()
	s.succeed()
	require.Equal(t, 4, s.limit, "slowly from now on")
}

// Who gives up waiting takes no slot along, also when it was given one meanwhile.
func TestSlotsAreNotLost(t *testing.T) {
	s := newSlots(1, 1)
	for range 200 {
		release, err := s.Acquire(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if release, err := s.Acquire(ctx); err == nil {
				release()
			}
		}()
		go cancel()
		release()
		<-done
		require.Zero(t, s.used)
		require.Empty(t, s.waiting)
	}
}

// A host that cuts connections may have too many of them, once it has answered at all.
func TestACutConnectionMakesRoom(t *testing.T) {
	nap := func(context.Context, time.Duration) error { return nil }
	c, err := NewClient(Options{Concurrency: 6, Sleep: nap})
	require.NoError(t, err)
	h := c.Host("registry.test")
	for _, want := range []int{6, 3} {
		require.NoError(t, c.Wait(t.Context(), h, io.ErrUnexpectedEOF, 1))
		require.Equal(t, want, h.pull.limit)
		require.Equal(t, want, h.push.limit)
		h.pinged = true
	}
}

// One pause counts once, however many hear of it.
func TestOnePauseShrinksOnce(t *testing.T) {
	h := &Host{small: newSlots(12, 12), pull: newSlots(6, 6), push: newSlots(6, 6), pullSmall: newSlots(12, 12), pushSmall: newSlots(12, 12)}
	for range 5 {
		h.throttled(time.Hour)
	}
	require.Equal(t, 6, h.small.limit)
	h.strainedUntil = time.Time{} // the first who heard of it had less to wait
	h.throttled(time.Hour)
	require.Equal(t, 6, h.small.limit)
	require.Equal(t, 3, h.pull.limit)
	require.Equal(t, 3, h.push.limit)
}
