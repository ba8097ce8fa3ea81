package vdoconfig

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestWhatOnlyAStatusSaysIsNoDrift(t *testing.T) {
	was := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "x", Generation: 3, ResourceVersion: "7", Labels: map[string]string{"a": "b"}}}
	for name, edit := range map[string]func(m *metav1.PartialObjectMetadata){
		"spec":       func(m *metav1.PartialObjectMetadata) { m.Generation++ },
		"labels":     func(m *metav1.PartialObjectMetadata) { m.Labels["a"] = "c" },
		"annotation": func(m *metav1.PartialObjectMetadata) { m.Annotations = map[string]string{"a": "b"} },
		"deletion":   func(m *metav1.PartialObjectMetadata) { m.DeletionTimestamp = &metav1.Time{Time: time.Now()} },
		"made anew":  func(m *metav1.PartialObjectMetadata) { m.UID = "another" },
	} {
		is := was.DeepCopy()
		is.ResourceVersion = "8"
		require.True(t, statusOnly(was, is), name)
		edit(is)
		require.False(t, statusOnly(was, is), name)
	}
	none, other := was.DeepCopy(), was.DeepCopy()
	none.Generation, other.Generation, other.ResourceVersion = 0, 0, "8"
	require.False(t, statusOnly(none, other), "a ConfigMap has no status")
}

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
