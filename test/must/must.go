// Package must has what a test wants of calls: a value, or an error.
package must

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Have returns what a call returns, and fails the test where that comes with an error.
func Have[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		require.NoError(t, err)
		return v
	}
}

// Err returns the error of a call alone.
func Err[T any](_ T, err error) error { return err }

// Fail fails the test unless an error is of a reason, says a text, and has a hint with further ones.
func Fail(t testing.TB, err error, reason fault.Reason, says string, hints ...string) {
	require.Equal(t, reason, fault.ReasonOf(err), "%v", err)
	require.ErrorContains(t, err, says)
	for _, hint := range hints {
		require.Contains(t, fault.HintOf(err), hint)
	}
}
