package vdoconfig_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
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

// removed does passes until a VDOConfig that is being deleted is gone.
func (w *world) removed(v *v1alpha1.VDOConfig) {
	w.t.Helper()
	w.until("removed", func() bool { w.pass(client.ObjectKeyFromObject(v)); return gone(w, v, w.ns, v.Name) })
}

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
	for n, of := range []string{drivers.CSIDriver, "another.csi.site"} {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
			"metadata": map[string]any{"name": fmt.Sprint(w.ns, n)},
			"spec": map[string]any{
				"driver": of, "deletionPolicy": "Retain", "source": map[string]any{"snapshotHandle": "h"},
				"volumeSnapshotRef": map[string]any{"name": "s", "namespace": w.ns},
			},
		}}
		w.create(o)
		t.Cleanup(func() { require.NoError(t, w.Delete(context.Background(), o)) })
		others, err := w.access.edge.OthersSnapshots(t.Context())
		require.NoError(t, err)
		require.Equal(t, n, others)
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
	w.removed(v)
	require.Empty(t, w.ours())
}

// Who has installed something stays in force, and to delete the other VDOConfig, as its status says, harms
// nothing: also where both have the finalizer, from a pass that did not see the other one, and an inventory.
func TestDeletingTheOtherVDOConfigHarmsNothing(t *testing.T) {
	w, v := installed(t)
	was := w.generations()
	later := w.config("a-later")
	w.look(later)
	require.True(t, isTrue(later, "Stalled"))
	require.Contains(t, cond(t, later, "Ready").Message, "VDOConfig "+w.ns+"/site is active")
	require.Contains(t, cond(t, later, "Ready").Message, "delete this one; what is installed stays")
	require.Empty(t, later.Finalizers)

	inv := get(w, &corev1.ConfigMap{}, w.ns, inventory.VDOConfigs.ConfigMap(v.Name))
	w.create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: inventory.VDOConfigs.ConfigMap(later.Name)}, Data: inv.Data})
	w.change(later, func() {
		later.Finalizers, later.Spec.OnDelete = []string{v1alpha1.FinalizerDrivers}, v1alpha1.DeleteRemove
	})
	writes := w.writes
	require.NoError(t, w.Delete(context.Background(), later))
	w.removed(later)
	require.Equal(t, was, w.generations(), "nothing was torn down")
	get(w, &corev1.Secret{}, w.ns, "vdo-config-hash")
	w.ready(v)
	require.LessOrEqual(t, w.writes-writes, 2, "the other one's inventory is all that was removed")
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

// Between the change of a Secret and the vCenter's word on it there are passes: they
// see a VsphereCloudConfig that is Ready, of the Secret before. The new password
// reaches no driver, not even one whose configuration was deleted meanwhile.
func TestAPasswordThatWasNotCheckedYetReachesNoDriver(t *testing.T) {
	w, v := installed(t)
	all := func() string {
		var secrets corev1.SecretList
		require.NoError(t, w.List(context.Background(), &secrets))
		var text strings.Builder
		for _, s := range secrets.Items {
			if s.Namespace == "kube-system" || s.Namespace == "vmware-system-csi" {
				for _, value := range s.Data {
					text.Write(value)
				}
			}
		}
		return text.String()
	}
	creds := get(w, &corev1.Secret{}, w.ns, "vc-one-creds")
	w.change(creds, func() { creds.Data["password"] = []byte("unchecked-2") })
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret")))
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")))
	w.look(v)
	require.NotContains(t, all(), "unchecked-2")
	require.Contains(t, all(), "secret-1", "the cloud provider keeps what works")
	get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repairs go on
	require.Contains(t, cond(t, v, "Resolved").Message, "VsphereCloudConfig vc-one is being checked")
	require.False(t, isTrue(v, "Ready"))

	// What a pod writes is shown without either, also where no bundle can be read that a plan could be made from.
	pod := w.nodePodOn("worker-1")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, RestartCount: 5, Image: "x", ImageID: "x",
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "the vCenter refuses secret-1 as it does unchecked-2"}},
	}}
	require.NoError(t, w.Status().Update(t.Context(), pod))
	for _, w.store.err = range []error{nil, errBroken} {
		w.look(v)
		require.Contains(t, describe(v), "the vCenter refuses (hidden) as it does (hidden)")
	}
	w.store.err = nil
	require.NoError(t, w.Delete(t.Context(), pod))

	w.checked(get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one"), metav1.ConditionTrue, "Succeeded", "")
	w.ready(v)
	require.Contains(t, all(), "unchecked-2")
	require.NotContains(t, all(), "secret-1")
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

	again = w.config("again")
	w.change(again, func() { again.Spec.StorageProvider.Webhook = true })
	w.ready(again)

	w.change(again, func() {
		again.Spec.OnDelete, again.Spec.StorageProvider = v1alpha1.DeleteOrphan, nil
	})
	w.ready(again)
	w.advance(again, "its webhook is not registered any more", func() bool { return gone(w, hook, "", hook.Name) })
	require.Equal(t, uid, get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").UID)
}
