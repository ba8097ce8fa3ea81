package render_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

// Nodes that were excluded may still be there.
func TestTheCloudProviderDeletesNodesAgainWhereThatIsAccepted(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"))
	const skips = `{"name":"SKIP_NODE_DELETION","value":"true"}`
	keeps := func(out *render.Rendered) bool {
		require.Equal(t, out.Cloud.KeepsNodes, strings.Contains(at(t, out, cloudEnv), skips))
		return out.Cloud.KeepsNodes
	}
	require.False(t, keeps(mustRender(t, in)))
	in.Cluster.AnotherVCenter = true
	out := mustRender(t, in)
	require.Contains(t, at(t, out, cloudEnv), skips)
	require.False(t, out.Cloud.KeepsNodes, "it deletes them again once the vCenter is accepted")
	in.Spec.Patches = []v1alpha1.Patch{patchOf(matrix.CPI, "DaemonSet", "vsphere-cloud-controller-manager",
		`spec: {template: {spec: {containers: [{name: vsphere-cloud-controller-manager, env: [`+
			`{name: SKIP_NODE_DELETION, value: "false"}]}]}}}`)}
	require.Equal(t, 1, strings.Count(at(t, mustRender(t, in), cloudEnv), "SKIP_NODE_DELETION"), "a list keyed by name")
	in.Cluster.AnotherVCenter, in.Spec.Patches = false, nil
	in.Spec.ExcludedNodes = map[string]string{"site/metal": "yes", "cloud": "other"}
	require.True(t, keeps(mustRender(t, in)))
	in.Cluster.KeepsNodes = true
	in.Spec.ExcludedNodes = map[string]string{"cloud": "other"}
	require.True(t, keeps(mustRender(t, in)), "fewer labels delete no Nodes")
	in.Spec.ExcludedNodes = nil
	must.Fail(t, must.Err(render.Render(in)), fault.Refused,
		"would delete the Nodes that are not on vSphere", "acceptNodeDeletion: [spec.excludedNodes]")
	in.Cluster.UnsureOfNodes = true
	require.True(t, keeps(mustRender(t, in)), "it is made again first, and deletes none")
	in.Cluster.UnsureOfNodes = false
	in.Keep = map[matrix.Driver]bool{matrix.CPI: true}
	require.True(t, keeps(mustRender(t, in)), "all else of the cloud provider goes on, and deletes none")
	in.Keep, in.Spec.CloudProvider.AcceptNodeDeletion = nil, []string{"spec.excludedNodes"}
	require.False(t, keeps(mustRender(t, in)))
}
