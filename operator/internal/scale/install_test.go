package scale

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// slow is how long a cloud provider that runs initialises no node, and then how long it takes
// for all of them.
const slow = 3 * interval

// install installs for the first time, where all nodes wait for a cloud provider that is slow.
// As soon as it has initialised one of them the storage driver comes, so that the pods of all
// nodes start while the others wait.
func (s *site) install(b *testing.B) {
	begun := time.Now()
	spent := s.during(b, "wait", func() { s.wait(b) })
	s.peak(b, "wait")
	s.report("wait-wall-ms", float64(time.Since(begun).Milliseconds()))
	require.Less(b, float64(spent), maxShare*float64(time.Since(begun)))
	s.during(b, "install", func() { s.settle(b) })
	s.peak(b, "install")
}

// wait plays until all nodes are initialised.
func (s *site) wait(b testing.TB) {
	s.until(b, "the cloud provider's pods", func() bool { cloud, _ := s.step(b); return cloud })
	all := make(chan error, 1)
	go func() { all <- s.initialiseSlowly(b.Context()) }()
	for {
		select {
		case err := <-all:
			require.NoError(b, err)
			return
		case <-time.After(200 * time.Millisecond):
			s.step(b)
		}
	}
}

func (s *site) initialiseSlowly(ctx context.Context) error {
	for begun := time.Now(); s.initialised < s.nodes; time.Sleep(100 * time.Millisecond) {
		part := float64(time.Since(begun)-slow) / float64(slow)
		if err := s.initialiseTo(ctx, min(s.nodes, int(part*float64(s.nodes)))); err != nil {
			return err
		}
	}
	return nil
}

// initialiseTo does the cloud provider's part for the first nodes.
func (s *site) initialiseTo(ctx context.Context, n int) error {
	from := s.initialised
	if n <= from {
		return nil
	}
	s.initialised = n
	return each(ctx, n-from, func(ctx context.Context, i int) error { return s.initialise(ctx, from+i) })
}

// step plays what workloads' controllers do; it tells which drivers' pods run.
func (s *site) step(b testing.TB) (cloud, storage bool) {
	cloud, storage, err := s.roll(b.Context())
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, false // the operator wrote it meanwhile
	}
	require.NoError(b, err)
	return cloud, storage
}
