package retry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/retry"
)

func TestBackoffDoublesAndIsBounded(t *testing.T) {
	for n := 1; n < 40; n++ {
		d := retry.Backoff(time.Second, n)
		whole := time.Minute
		if n < 7 {
			whole = min(time.Second<<(n-1), time.Minute)
		}
		require.GreaterOrEqual(t, d, whole/2)
		require.LessOrEqual(t, d, whole)
	}
}

func TestDoRepeatsWhatMayPassAndNothingElse(t *testing.T) {
	passing, final := errors.New("passing"), errors.New("final")
	for name, c := range map[string]struct {
		fails  []error
		result int // 0: the last error
	}{
		"at once": {nil, 1}, "third": {[]error{passing, passing}, 3}, "too often": {[]error{passing, passing, passing, passing}, 0}, "final": {[]error{passing, final}, 0},
	} {
		var waits []time.Duration
		n := 0
		got, err := retry.Do(t.Context(), retry.Policy{Attempts: 4, First: time.Second, Sleep: func(_ context.Context, d time.Duration) error {
			waits = append(waits, d)
			return nil
		}}, func() (int, bool, error) {
			if n++; n <= len(c.fails) {
				return 0, errors.Is(c.fails[n-1], passing), c.fails[n-1]
			}
			return n, false, nil
		})
		require.Len(t, waits, n-1, name)
		require.Equal(t, c.result, got, name)
		if c.result == 0 {
			require.ErrorIs(t, err, c.fails[n-1], name)
		} else {
			require.NoError(t, err, name)
		}
	}
}

func TestAWaitEndsWithTheContext(t *testing.T) {
	stop := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(stop) })
	_, err := retry.Do(ctx, retry.Policy{Attempts: 2, First: time.Hour}, func() (int, bool, error) { return 0, true, errors.New("passing") })
	require.ErrorIs(t, err, stop)
}
