package assess_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
)

// What somebody has scaled down is not what is wanted; without replicas nothing works,
// whatever is known of them.
func TestADeploymentIsHeldAgainstTheReplicasThatAreWanted(t *testing.T) {
	const name = "Deployment vmware-system-csi/vsphere-csi-controller"
	for _, c := range []struct {
		has, updated int32
		wanted       map[string]int32
		says         string
	}{
		{0, 0, nil, "is scaled to 0, 1 are wanted"},
		{0, 0, map[string]int32{name: 3}, "is scaled to 0, 3 are wanted"},
		{2, 2, map[string]int32{name: 3}, "is scaled to 2, 3 are wanted"},
		{3, 3, map[string]int32{name: 3}, ""},
		{5, 3, map[string]int32{name: 3}, ""}, // there are nodes for three
		{2, 2, nil, ""},
	} {
		in := healthy()
		in.Nodes = append(in.Nodes, node("cp2", true, true), node("cp3", true, true))
		in.CSINodes = append(in.CSINodes, registered("cp2"), registered("cp3"))
		in.Deployments[0], in.Replicas = deployment(c.has, c.updated, c.updated), c.wanted
		h := assess.Assess(in).Drivers[matrix.CSI]
		if c.says == "" {
			require.True(t, h.Healthy(), "%+v: %+v", c, h)
			continue
		}
		require.False(t, h.Complete)
		require.ErrorContains(t, h.Err(), name+": "+c.says)
		require.Contains(t, h.Findings[0].Remedy, "spec.drift")
	}
}
