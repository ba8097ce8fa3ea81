package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// requiredTerms are a workload's node selector terms, of which one has to hold.
func requiredTerms(t *testing.T, out *render.Rendered, what string) []corev1.NodeSelectorTerm {
	t.Helper()
	m := nested(unstructured.NestedMap(object(t, out, what).Object, "spec", "template", "spec"))(t)
	var spec corev1.PodSpec
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(m, &spec))
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

func TestNodesThatAreNotOnVSphereAreLeftAlone(t *testing.T) {
	const cloud, node, windows = "vsphere-cloud-controller-manager", "DaemonSet vsphere-csi-node", "DaemonSet vsphere-csi-node-windows"
	everyRelease(t, []matrix.Driver{matrix.CSI}, func(t *testing.T, id matrix.ReleaseID) {
		in := input(t, id, release(t, matrix.CPI, "1.33.1"))
		in.Cluster.Nodes = append(in.Cluster.Nodes, render.Node{Name: "win", Labels: map[string]string{"kubernetes.io/os": "windows"}})
		out := mustRender(t, in)
		require.Empty(t, requiredTerms(t, out, node))
		require.NotContains(t, variables(containerOf(t, out, "DaemonSet "+cloud, cloud)), "SKIP_NODE_DELETION")

		in.Spec.ExcludedNodes = map[string]string{"site/metal": "yes", "cloud": "other"}
		in.Spec.Patches = []v1alpha1.Patch{patchOf(matrix.CSI, "DaemonSet", "vsphere-csi-node", `
spec: {template: {spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: a, operator: Exists}]}, {matchFields: [{key: metadata.name, operator: In, values: [node-1]}]}]}}}}}}`)}
		out = mustRender(t, in)
		not := []corev1.NodeSelectorRequirement{
			{Key: "cloud", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"other"}},
			{Key: "site/metal", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"yes"}},
		}
		require.Equal(t, []corev1.NodeSelectorTerm{{MatchExpressions: not}}, requiredTerms(t, out, windows))
		require.Equal(t, []corev1.NodeSelectorTerm{
			{MatchExpressions: append([]corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpExists}}, not...)},
			{MatchExpressions: not, MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}}}},
		}, requiredTerms(t, out, node), "each of the terms, of which one has to hold")
		require.Equal(t, "true", variables(containerOf(t, out, "DaemonSet "+cloud, cloud))["SKIP_NODE_DELETION"])
		require.Contains(t, out.Notes, "spec.excludedNodes: the cloud provider deletes no Node objects; delete those of VMs that are gone by hand")
	})
}

// Nodes that were excluded may still be there.
func TestTheCloudProviderDeletesNodesAgainWhereThatIsAccepted(t *testing.T) {
	const cloud = "vsphere-cloud-controller-manager"
	in := input(t, release(t, matrix.CPI, "1.33.1"))
	skips := func(out *render.Rendered) bool {
		require.Equal(t, out.Cloud.KeepsNodes, variables(containerOf(t, out, "DaemonSet "+cloud, cloud))["SKIP_NODE_DELETION"] == "true")
		return out.Cloud.KeepsNodes
	}
	require.False(t, skips(mustRender(t, in)))
	in.Cluster.AnotherVCenter = true
	out := mustRender(t, in)
	require.Equal(t, "true", variables(containerOf(t, out, "DaemonSet "+cloud, cloud))["SKIP_NODE_DELETION"])
	require.False(t, out.Cloud.KeepsNodes, "it deletes them again once the vCenter is accepted")
	in.Cluster.AnotherVCenter = false
	in.Spec.ExcludedNodes = map[string]string{"site/metal": "yes", "cloud": "other"}
	require.True(t, skips(mustRender(t, in)))
	in.Cluster.KeepsNodes = true
	in.Spec.ExcludedNodes = map[string]string{"cloud": "other"}
	require.True(t, skips(mustRender(t, in)), "fewer labels delete no Nodes")
	in.Spec.ExcludedNodes = nil
	_, err := render.Render(in)
	require.Equal(t, fault.Refused, fault.ReasonOf(err))
	require.ErrorContains(t, err, "would delete the Nodes that are not on vSphere")
	require.Contains(t, fault.HintOf(err), "acceptNodeDeletion: [spec.excludedNodes]")
	in.Cluster.UnsureOfNodes = true
	require.True(t, skips(mustRender(t, in)), "it is made again first, and deletes none")
	in.Cluster.UnsureOfNodes = false
	in.Keep = map[matrix.Driver]bool{matrix.CPI: true}
	require.True(t, skips(mustRender(t, in)), "all else of the cloud provider goes on, and deletes none")
	in.Keep, in.Spec.CloudProvider.AcceptNodeDeletion = nil, []string{"spec.excludedNodes"}
	require.False(t, skips(mustRender(t, in)))
}
