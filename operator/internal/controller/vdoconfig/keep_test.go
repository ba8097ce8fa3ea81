package vdoconfig_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// volume makes a volume of the storage driver.
func (w *world) volume() *corev1.PersistentVolume {
	w.t.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + w.ns}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.vsphere.vmware.com", VolumeHandle: "h"}}}}
	w.create(pv)
	w.t.Cleanup(func() { w.dropVolume(pv) })
	return pv
}

// dropVolume removes it, and waits until it is gone.
func (w *world) dropVolume(pv *corev1.PersistentVolume) {
	w.t.Helper()
	require.NoError(w.t, client.IgnoreNotFound(w.Delete(context.Background(), pv)))
	w.until("the volume is gone", func() bool { return gone(w, pv, "", pv.Name) })
}

// destroyed removes an object of each driver, workloads among them, and waits until all are there again.
func (w *world) destroyed(v *v1alpha1.VDOConfig) {
	w.t.Helper()
	named := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	all := []client.Object{
		&corev1.ServiceAccount{ObjectMeta: named("kube-system", "cloud-controller-manager")},
		&appsv1.DaemonSet{ObjectMeta: named("kube-system", ccm)},
		&appsv1.Deployment{ObjectMeta: named("vmware-system-csi", csiController)},
		&appsv1.DaemonSet{ObjectMeta: named("vmware-system-csi", "vsphere-csi-node")},
	}
	for _, o := range all {
		require.NoError(w.t, w.Delete(context.Background(), o))
	}
	w.until("repaired", func() bool {
		w.play()
		w.look(v)
		return !slices.ContainsFunc(all, func(o client.Object) bool { return gone(w, o, o.GetNamespace(), o.GetName()) })
	})
}

var errBroken = errors.New("no such manifest")

// removed does passes until a VDOConfig that is being deleted is gone.
func (w *world) removed(v *v1alpha1.VDOConfig) {
	w.t.Helper()
	w.until("removed", func() bool { w.pass(client.ObjectKeyFromObject(v)); return gone(w, v, w.ns, v.Name) })
}

// While it serves volumes the storage driver stays and is cared for as it was last asked for, whether nobody asks
// for it any more, or the VDOConfig is deleted, or that had begun to remove it when a volume appeared.
func TestTheStorageDriverStaysWhileItServesVolumes(t *testing.T) {
	w, v := installed(t)
	w.change(v, func() { v.Spec.StorageProvider.CustomKubeletPath = "/var/lib/k0s/kubelet" })
	w.ready(v)
	refused := func() {
		t.Helper()
		ready := cond(t, v, "Ready")
		require.Equal(t, "Refused", ready.Reason)
		require.Contains(t, ready.Message, "1 PersistentVolumes and 0 VolumeAttachments")
		require.True(t, isTrue(v, "Reconciling") && !isTrue(v, "Stalled"), "it goes on by itself once they are gone")
	}
	pv := w.volume()
	w.change(v, func() { v.Spec.StorageProvider = nil })
	w.look(v)
	was := get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").Spec.Template
	w.destroyed(v)
	require.Equal(t, was, get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").Spec.Template)
	require.Equal(t, "3.5.1", driver(v, "csi").Version)
	refused()

	require.NoError(t, w.Delete(context.Background(), v))
	w.look(v)
	w.destroyed(v)
	refused()

	w.dropVolume(pv)
	there := func() bool {
		w.look(v)
		return !gone(w, &appsv1.Deployment{}, "vmware-system-csi", csiController) ||
			!gone(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node")
	}
	w.until("the pods are gone", func() bool { return !there() })
	w.volume()
	w.until("it is installed again", func() bool {
		w.play()
		return there() && !gone(w, &appsv1.Deployment{}, "vmware-system-csi", csiController) &&
			!gone(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node")
	})
	refused()

	// What is being taken down is not ready, and is looked at less and less often where it waits for somebody else.
	held := get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")
	w.change(held, func() { held.Finalizers = []string{"example.org/backup"} })
	t.Cleanup(func() { w.change(held, func() { held.Finalizers = nil }) })
	w.change(v, func() { v.Spec.OnDelete = v1alpha1.DeleteRemove })
	w.look(v)
	for name, typ := range map[string]string{"cpi": "CPIReady", "csi": "CSIReady"} {
		require.Equal(t, "Removing", cond(t, v, typ).Reason)
		require.False(t, isTrue(v, typ) || driver(v, name).Ready || isTrue(v, "Ready"), describe(v))
		require.Contains(t, driver(v, name).Message, "is being removed")
	}
	require.Empty(t, v.Status.NodesReady)
	require.LessOrEqual(t, w.next.RequeueAfter, time.Second)
	w.until("the storage driver is gone", func() bool { w.look(v); return driver(v, "csi").Driver == "" })
	require.NotContains(t, describe(v), "CSIReady")
	w.until("it is not looked at each second", func() bool { w.look(v); return w.next.RequeueAfter >= 4*time.Second })
	w.change(held, func() { held.Finalizers = nil })
	w.removed(v)
	require.Empty(t, w.ours(), "everything goes, pull secrets and configuration too")
	require.True(t, gone(w, &corev1.ConfigMap{}, w.ns, inventory.VDOConfigs.ConfigMap(v.Name)))
	for _, kind := range []string{"volumesnapshots.snapshot.storage.k8s.io", "csinodetopologies.cns.vmware.com"} {
		get(w, &apiextensionsv1.CustomResourceDefinition{}, "", kind) // they stay: resources hang on them
	}
}

// ours lists what is on the cluster under our label, of the kinds that matter.
func (w *world) ours() []inventory.Key {
	w.t.Helper()
	var all []inventory.Key
	for _, gvk := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "ServiceAccount"}, {Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"},
		{Version: "v1", Kind: "Service"}, {Group: "apps", Version: "v1", Kind: "DaemonSet"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		{Group: "storage.k8s.io", Version: "v1", Kind: "CSIDriver"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"},
		// of Antrea: nothing serves it, and all discovery waits for that
		{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		require.NoError(w.t, w.List(context.Background(), list, client.MatchingLabels{"app.kubernetes.io/managed-by": "vdo-operator"}))
		for _, o := range list.Items {
			all = append(all, inventory.Key{Group: gvk.Group, Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName()})
		}
	}
	return all
}

func TestOrphanedDriversStayAndAreTakenOverAgain(t *testing.T) {
	w, v := installed(t)
	uid := get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").UID
	w.change(v, func() { v.Spec.OnDelete, v.Spec.StorageProvider.Webhook = v1alpha1.DeleteOrphan, true })
	w.ready(v)
	made := &corev1.ConfigMap{Data: map[string]string{"clusterID": "made-by-the-driver"}}
	made.Namespace, made.Name = "vmware-system-csi", "vsphere-csi-cluster-id"
	w.create(made)
	t.Cleanup(func() { require.NoError(t, w.Delete(context.Background(), made)) })
	require.NoError(t, w.Delete(context.Background(), v))
	secret, hook := get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-webhook-certs").UID, &admissionv1.ValidatingWebhookConfiguration{}
	get(w, hook, "", "validation.csi.vsphere.vmware.com")
	w.removed(v)
	require.Equal(t, uid, get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").UID)
	require.Equal(t, secret, get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-webhook-certs").UID)
	require.True(t, gone(w, hook, "", hook.Name), "nobody renews its certificate, and it fails closed")
	require.Contains(t, w.events.all(), "ValidatingWebhookConfiguration validation.csi.vsphere.vmware.com was removed: without the operator its certificate expires")
	require.Contains(t, w.events.all(), `the storage driver's cluster id is "made-by-the-driver": if namespace`)
	again := w.config("again")
	w.change(again, func() { again.Spec.StorageProvider.Webhook = true })
	w.ready(again)
	require.Equal(t, "made-by-the-driver", w.inventory(again).Memory().ClusterID, "the reinstallation finds it")
	require.Equal(t, uid, get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").UID)
	require.NotZero(t, w.inventory(again).Len())
	get(w, hook, "", hook.Name)

	w.change(again, func() { again.Spec.OnDelete = v1alpha1.DeleteOrphan })
	w.dropRecord(again)
	require.NoError(t, w.Delete(context.Background(), again))
	w.removed(again)
	require.True(t, gone(w, hook, "", hook.Name), "its labels say whose it is where no record does")

}
