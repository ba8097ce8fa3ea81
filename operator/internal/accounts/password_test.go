package accounts

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPasswordsHaveAllKindsOfCharacters(t *testing.T) {
	seen := map[string]bool{}
	for range 200 {
		p := string(newPassword())
		require.False(t, seen[p])
		seen[p] = true
		require.Len(t, p, 20, "what a vCenter takes by default")
		require.True(t, hasAllKinds(p), p)
		for i := 1; i < len(p); i++ {
			require.NotEqual(t, p[i-1], p[i])
		}
	}
	require.False(t, hasAllKinds("Babc23-_"))
}

func TestAccountsTakeTurns(t *testing.T) {
	require.Equal(t, "vdo-b@vsphere.local", successor("vdo@vsphere.local"))
	require.Equal(t, "vdo@vsphere.local", successor("vdo-b@vsphere.local"))
}
