package vdoconfig_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// images are those of the workloads of each driver.
func (w *world) images() (cpi, csi string) {
	w.t.Helper()
	return get(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager").Spec.Template.Spec.Containers[0].Image,
		get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").Spec.Template.Spec.Containers[0].Image
}

// away has the check of a vCenter find nobody, as it does of one that let the login in before.
func (w *world) away(name string) *v1alpha1.VsphereCloudConfig {
	w.t.Helper()
	vcc := get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, name)
	verified := vcc.Status.VerifiedCredentials
	w.checked(vcc, metav1.ConditionFalse, "Unreachable", "no answer from "+name)
	vcc.Status.VerifiedCredentials = verified
	require.NoError(w.t, w.Status().Update(context.Background(), vcc))
	return vcc
}

// Each driver has a vCenter of its own. The one that is away holds back its driver, be it an
// installation, an upgrade or a bundle that was built anew; the other one goes on.
func TestOneVCenterThatIsAwayHoldsBackItsDriverAlone(t *testing.T) {
	w := start(t, pair)
	storage := w.vcenter("vc-two", "vc2.site.example", "secret-2")
	w.checked(storage, metav1.ConditionFalse, "Unreachable", "no answer from vc-two")
	v := w.config("site")
	w.change(v, func() { v.Spec.StorageProvider.VsphereCloudConfig = "vc-two" })
	w.until("the cloud provider is installed", func() bool { w.play(); w.look(v); return isTrue(v, "CPIReady") })
	require.True(t, gone(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node"), describe(v))
	require.Contains(t, cond(t, v, "Resolved").Message, "no answer from vc-two")
	require.Equal(t, "Unreachable", cond(t, v, "Ready").Reason)
	w.checked(get(w, storage, w.ns, "vc-two"), metav1.ConditionTrue, "Succeeded", "")
	w.ready(v)

	// The bundle is built anew and has a newer storage driver: that goes on, and the cloud
	// provider keeps what it is made of, and is repaired with it.
	w.away("vc-one")
	w.store.contents = rebuilt(t, strings.Fields(newer)...)
	was, _ := w.images()
	w.until("the storage driver is upgraded", func() bool { w.play(); w.look(v); return driver(v, "csi").Version == "3.7.3" })
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")))
	w.look(v)
	get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repaired
	is, upgraded := w.images()
	require.Equal(t, was, is, describe(v))
	w.later(v)
	require.Equal(t, "Unreachable", cond(t, v, "Ready").Reason)

	w.checked(get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one"), metav1.ConditionTrue, "Succeeded", "")
	w.until("the cloud provider follows", func() bool { w.ready(v); is, _ = w.images(); return is != was })
	_, stays := w.images()
	require.Equal(t, upgraded, stays)
}
