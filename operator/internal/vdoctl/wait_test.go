package vdoctl

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A request that times out says what the end of the wait says, and nobody knows what it would have found.
func TestAWaitEndsWithTheErrorOfARequestThatTimesOut(t *testing.T) {
	p := (&app{err: &bytes.Buffer{}}).progress()
	slow := fmt.Errorf("read it: %w", context.DeadlineExceeded)
	_, err := p.wait(t.Context(), time.Minute, func() (string, error) { return "", slow })
	require.ErrorIs(t, err, slow)
	why, err := p.wait(t.Context(), time.Millisecond, func() (string, error) { return "a pod", nil })
	require.NoError(t, err)
	require.Equal(t, "a pod", why)
}
