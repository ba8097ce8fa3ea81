package deploy_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// A cluster whose nodes are NotReady, for want of a network plug-in: the operator that is
// to install one starts there, as it is not without the variant for it.
func TestTheOperatorStartsOnNodesWithoutANetwork(t *testing.T) {
	c := cluster.New(t, cluster.Options{Kubelets: true}) // none joins but this one's Node
	admin := cluster.Client(t, c.Config())
	node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{
		{Key: cluster.TaintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule},
	}}}
	node.Name = "cp-1"
	node.Status.Allocatable = corev1.ResourceList{
		"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110"),
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	require.NoError(t, admin.Create(t.Context(), node))
	put := func(change func([]byte) ([]byte, error)) {
		for _, m := range append([]deploy.Manifest{deploy.DriverNamespaces()}, deploy.Manifests()...) {
			if m.Name == "networkpolicy.yaml" || m.Name == deploy.AntreaRights {
				continue
			}
			data, err := change(m.Data)
			require.NoError(t, err, m.Name)
			for _, u := range decode(t, m.Name, data) {
				require.NoError(t, apply(t.Context(), admin, u), "%s: %s %s", m.Name, u.GetKind(), u.GetName())
			}
		}
	}
	pods := func() []corev1.Pod {
		var list corev1.PodList
		require.NoError(t, admin.List(context.Background(), &list, client.InNamespace(namespace)))
		return list.Items
	}
	put(func(data []byte) ([]byte, error) { return data, nil })
	var ns corev1.Namespace
	require.NoError(t, admin.Get(t.Context(), client.ObjectKey{Name: namespace}, &ns))
	require.Equal(t, "restricted", ns.Labels["pod-security.kubernetes.io/enforce"])
	require.Eventually(t, func() bool {
		all := pods()
		return len(all) == 1 && len(all[0].Status.Conditions) > 0 && all[0].Status.Conditions[0].Reason == corev1.PodReasonUnschedulable
	}, time.Minute, 50*time.Millisecond, "without the variant there is no node for it")

	put(deploy.OnHostNetwork)
	require.Eventually(t, func() bool {
		for _, p := range pods() {
			if p.Spec.HostNetwork && p.Spec.NodeName != "" && p.DeletionTimestamp.IsZero() {
				return true // its kubelet needs no network to start it
			}
		}
		return false
	}, time.Minute, 50*time.Millisecond, "no node for the variant either")
	var d appsv1.Deployment
	require.NoError(t, admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "vdo-operator"}, &d))
	require.Equal(t, "0", d.Spec.Strategy.RollingUpdate.MaxSurge.String(), "on one node, the new pod needs the ports of the old one")
}
