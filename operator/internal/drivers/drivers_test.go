package drivers_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

func allowed(c *drivers.Ceiling, object string) bool {
	return slices.ContainsFunc(c.Objects, func(r *regexp.Regexp) bool { return r.MatchString(object) })
}

func TestEachPlaceOfOursIsWithinTheCeilingAndNoOtherWorkloadIs(t *testing.T) {
	ours := map[string]bool{}
	for _, p := range drivers.Places() {
		c := drivers.CeilingOf(p.Driver)
		if p.Foreign {
			require.False(t, allowed(c, p.String()), "%s is another installer's", p)
			continue
		}
		ours[p.String()] = true
		require.True(t, allowed(c, p.String()), "%s", p)
		require.NotEmpty(t, c.Pods[p.String()].Account, "%s: its pods' account", p)
	}
	for _, d := range []matrix.Driver{matrix.CNI, matrix.CPI, matrix.SnapshotController, matrix.CSI} {
		for name := range drivers.CeilingOf(d).Pods {
			require.True(t, ours[name] || name == "Deployment kube-system/snapshot-validation-deployment", "%s has pods and no place", name)
		}
	}
	require.Nil(t, drivers.CeilingOf("another"), "what is not known may hold nothing")
}

func TestAccountsOfPodsAreThoseThatTheDriverMayName(t *testing.T) {
	for _, d := range []matrix.Driver{matrix.CNI, matrix.CPI, matrix.SnapshotController, matrix.CSI} {
		c := drivers.CeilingOf(d)
		for name, pods := range c.Pods {
			namespace, _, _ := strings.Cut(strings.Fields(name)[1], "/")
			require.Contains(t, c.Accounts, namespace+"/"+pods.Account, name)
		}
	}
}

func TestPlacesAreNotSharedState(t *testing.T) {
	drivers.Places()[0].Name = "changed"
	require.NotEqual(t, "changed", drivers.Places()[0].Name)
}
