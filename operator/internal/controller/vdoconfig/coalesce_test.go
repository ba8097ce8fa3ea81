package vdoconfig

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
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

func TestOnlyTheDriversRegistrationStartsAPass(t *testing.T) {
	empty := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	with := empty.DeepCopy()
	with.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "csi.vsphere.vmware.com", NodeID: "n"}}
	topology := with.DeepCopy()
	topology.Spec.Drivers[0].TopologyKeys = []string{"zone"}
	again := with.DeepCopy()
	again.ResourceVersion = "9"
	update := func(was, is *storagev1.CSINode) bool {
		return csiNodeChanged.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is})
	}
	require.True(t, update(empty, with))
	require.True(t, update(with, topology))
	require.True(t, update(with, empty))
	require.False(t, update(with, again))
	require.False(t, csiNodeChanged.Create(event.CreateEvent{Object: empty}))
	require.True(t, csiNodeChanged.Create(event.CreateEvent{Object: with}))
	require.False(t, csiNodeChanged.Delete(event.DeleteEvent{Object: empty}))
	require.True(t, csiNodeChanged.Delete(event.DeleteEvent{Object: with}))
}

// When a bundle or a vCenter was looked at last is no reason for a pass: an idle operator would make two for one.
func TestOnlyWhatAPassReadsOfAVCenterOrABundleStartsOne(t *testing.T) {
	now := metav1.Now()
	vc := func(change func(*v1alpha1.VsphereCloudConfig)) bool {
		was, is := &v1alpha1.VsphereCloudConfig{}, &v1alpha1.VsphereCloudConfig{}
		change(is)
		return vcenterChanged.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is})
	}
	require.False(t, vc(func(v *v1alpha1.VsphereCloudConfig) { v.Status.CheckedAt, v.Status.AskedAt = &now, &now }))
	require.True(t, vc(func(v *v1alpha1.VsphereCloudConfig) { v.Status.VerifiedCredentials = "v" }))
	require.True(t, vc(func(v *v1alpha1.VsphereCloudConfig) { v.Status.Version = "8.0.3" }))
	ready := []metav1.Condition{{Type: "Ready"}}
	require.True(t, vc(func(v *v1alpha1.VsphereCloudConfig) { v.Status.Conditions = ready }))
	b := func(change func(*v1alpha1.DriverBundle)) bool {
		was, is := &v1alpha1.DriverBundle{}, &v1alpha1.DriverBundle{}
		change(is)
		return bundleChanged.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is})
	}
	require.False(t, b(func(b *v1alpha1.DriverBundle) { b.Status.HandledReconcileAt = "now" }))
	require.True(t, b(func(b *v1alpha1.DriverBundle) { b.Generation = 2 }))
	require.True(t, b(func(b *v1alpha1.DriverBundle) { b.Status.Digest = "sha256:a" }))
}
