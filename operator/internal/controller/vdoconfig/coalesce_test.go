package vdoconfig

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestNodesThatOnlyBeatStartNoPass(t *testing.T) {
	was := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1", Labels: map[string]string{"a": "b"}},
		Spec:   corev1.NodeSpec{ProviderID: "vsphere://1"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	for name, edit := range map[string]func(n *corev1.Node){
		"initialised": func(n *corev1.Node) { n.Spec.ProviderID = "" },
		"tainted":     func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} },
		"cordoned":    func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"upgraded":    func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.34.0" },
		"labelled":    func(n *corev1.Node) { n.Labels["a"] = "c" },
		"not ready":   func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown },
	} {
		is := was.DeepCopy()
		is.ResourceVersion = "2"
		is.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		require.False(t, nodeChanged.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}), name)
		edit(is)
		require.True(t, nodeChanged.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}), name)
	}
	require.True(t, nodeChanged.Create(event.CreateEvent{Object: was}))
	require.True(t, nodeChanged.Delete(event.DeleteEvent{Object: was}))
}
