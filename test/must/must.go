// Package must has what a test wants of calls that may not fail.
package must

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Have returns what a call returns, and fails the test where that comes with an error.
func Have[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}
