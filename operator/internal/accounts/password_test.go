package accounts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

func TestPasswordsAreOfTheRules(t *testing.T) {
	count := func(s, of string) (n int) {
		for _, c := range s {
			if strings.ContainsRune(of, c) {
				n++
			}
		}
		return n
	}
	for _, r := range []vcenter.PasswordRules{
		{}, {Least: 8, Most: 20, Adjacent: 3, Upper: 1, Lower: 1, Alphabetic: 2, Numeric: 1, Special: 1},
		{Least: 32, Most: 64, Upper: 4, Lower: 4, Alphabetic: 20, Numeric: 5, Special: 3}, {Most: 8, Adjacent: 1},
	} {
		seen := map[string]bool{}
		for range 200 {
			p := string(newPassword(r))
			require.False(t, seen[p])
			seen[p] = true
			require.GreaterOrEqual(t, len(p), max(r.Least, 8))
			if r.Most > 0 {
				require.LessOrEqual(t, len(p), r.Most)
			}
			require.GreaterOrEqual(t, count(p, upper), max(r.Upper, 1), p)
			require.GreaterOrEqual(t, count(p, lower), max(r.Lower, 1), p)
			require.GreaterOrEqual(t, count(p, digits), max(r.Numeric, 1), p)
			require.GreaterOrEqual(t, count(p, special), max(r.Special, 1), p)
			require.GreaterOrEqual(t, count(p, upper+lower), r.Alphabetic, p)
			for i := 1; i < len(p); i++ {
				require.NotEqual(t, p[i-1], p[i])
			}
		}
	}
}

func TestAccountsTakeTurns(t *testing.T) {
	require.Equal(t, "vdo-b@vsphere.local", successor("vdo@vsphere.local"))
	require.Equal(t, "vdo@vsphere.local", successor("vdo-b@vsphere.local"))
}
