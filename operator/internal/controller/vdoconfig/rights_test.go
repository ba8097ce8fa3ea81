package vdoconfig_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Rights that are missing in one driver's place, be it with its namespace, are a fault of that driver's.
func TestMissingRightsInOnePlaceConcernItsDriverAlone(t *testing.T) {
	w := start(t, pair)
	t.Cleanup(w.grant)
	w.lacks = true
	v := w.ready(w.config("site"))
	node := get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").UID
	count := w.inventory(v).Len()
	for says, take := range map[string]func(){
		"forbidden": func() {
			w.discard(get(w, &rbacv1.RoleBinding{}, "vmware-system-csi", "vdo-operator"))
		},
		"namespace vmware-system-csi is not there": func() {
			w.discard(get(w, &corev1.Namespace{}, "", "vmware-system-csi"))
			w.end("vmware-system-csi")
		},
	} {
		take()
		w.discard(get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager"))
		w.look(v)
		get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repaired
		w.look(v)
		require.True(t, isTrue(v, "CPIReady"), describe(v))
		applied := cond(t, v, "Applied")
		require.Equal(t, metav1.ConditionFalse, applied.Status)
		require.Contains(t, applied.Message, says)
		require.Contains(t, applied.Message, "vmware-system-csi")
		require.Equal(t, count, w.inventory(v).Len(), "what cannot be seen is not forgotten")
		w.grant()
		w.ready(v)
	}
	require.NotEqual(t, node, get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").UID, "it went with the namespace")
	require.Equal(t, "3.5.1", driver(v, "csi").Version)
}
