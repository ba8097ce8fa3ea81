package vdoconfig_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// destroy removes objects of each driver, workloads among them.
func (w *world) destroy() {
	w.t.Helper()
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cloud-controller-manager"}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vsphere-cloud-controller-manager"}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: "vsphere-csi-controller"}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: "vsphere-csi-node"}},
	} {
		require.NoError(w.t, w.Delete(context.Background(), o))
	}
}

// whole requires what destroy removed to be there again.
func (w *world) whole(why string) {
	w.t.Helper()
	require.False(w.t, gone(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager"), why)
	require.False(w.t, gone(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager"), why)
	require.False(w.t, gone(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller"), why)
	require.False(w.t, gone(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node"), why)
}

var errBroken = errors.New("no such manifest")

// remade waits until what destroy removed is there again.
func (w *world) remade(v *v1alpha1.VDOConfig) {
	w.t.Helper()
	w.until("repaired", func() bool {
		w.play()
		w.look(v)
		return !gone(w, &appsv1.Deployment{}, "vmware-system-csi", csiController) &&
			!gone(w, &appsv1.DaemonSet{}, "kube-system", ccm)
	})
	w.whole(describe(v))
}

// Without a bundle whole drivers are repaired from the one that they came from, though the status is lost too.
func TestRepairsGoOnWithoutABundle(t *testing.T) {
	w, v := installed(t)
	was := v.Status.Bundle
	require.NoError(w.t, w.Delete(context.Background(), get(w, &v1alpha1.DriverBundle{}, w.ns, "site")))
	v.Status = v1alpha1.VDOConfigStatus{}
	require.NoError(w.t, w.Status().Update(context.Background(), v))
	w.destroy()
	w.remade(v)
	require.Contains(t, cond(t, v, "Resolved").Message, "create a DriverBundle")
	require.False(t, isTrue(v, "Ready"))
	require.Equal(t, was, v.Status.Bundle)
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
	w.destroy()
	w.remade(v)
	require.Equal(t, was, get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").Spec.Template)
	require.Equal(t, "3.5.1", driver(v, "csi").Version)
	refused()

	require.NoError(t, w.Delete(context.Background(), v))
	w.look(v)
	w.destroy()
	w.remade(v)
	refused()

	w.dropVolume(pv)
	there := func() bool {
		w.look(v)
		return !gone(w, &appsv1.Deployment{}, "vmware-system-csi", csiController) ||
			!gone(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node")
	}
	w.until("the pods are gone", func() bool { return !there() })
	w.volume()
	w.remade(v)
	refused()

	w.change(v, func() { v.Spec.OnDelete = v1alpha1.DeleteRemove })
	w.until("removed", func() bool { w.pass(client.ObjectKeyFromObject(v)); return gone(w, v, w.ns, v.Name) })
	require.Empty(t, w.ours(), "everything goes, pull secrets and configuration too")
	require.True(t, gone(w, &corev1.ConfigMap{}, w.ns, inventory.VDOConfigs.ConfigMap(v.Name)))
	for _, kind := range []string{"volumesnapshots.snapshot.storage.k8s.io", "csinodetopologies.cns.vmware.com"} {
		get(w, &apiextensionsv1.CustomResourceDefinition{}, "", kind) // they stay: resources hang on them
	}
}

// What runs is taken over as it is where the inventory, or the key of configuration hashes, is lost. Then it
// rolls once the configuration is another one, and all of it goes with the VDOConfig.
func TestLostRecordsAreMadeAgain(t *testing.T) {
	w, v := installed(t)
	was, known := w.generations(), w.inventory(v).Len()
	key := func() *corev1.Secret { return get(w, &corev1.Secret{}, w.ns, "vdo-config-hash") }
	for _, lose := range []func(){
		func() { w.dropRecord(v) },
		func() { require.NoError(t, w.Delete(t.Context(), key())) },
		func() { s := key(); w.change(s, func() { s.Data = nil }) },
	} {
		lose()
		for range 2 {
			w.ready(v)
			require.Equal(t, was, w.generations(), "nothing rolls")
		}
		require.Equal(t, known, w.inventory(v).Len())
		require.NotEmpty(t, key().Data)
	}
	w.change(v, func() { v.Spec.StorageProvider.ClusterDistribution = "Other" })
	w.until("it rolls", func() bool { w.play(); w.look(v); return !reflect.DeepEqual(was, w.generations()) })
	w.ready(v)

	w.dropRecord(v)
	require.NoError(t, w.Delete(context.Background(), v))
	w.until("removed", func() bool { w.pass(client.ObjectKeyFromObject(v)); return gone(w, v, w.ns, v.Name) })
	require.Empty(t, w.ours())
}
