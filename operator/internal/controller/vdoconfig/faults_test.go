package vdoconfig_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// ours lists what is on the cluster under our label, of the kinds that matter.
func (w *world) ours() []inventory.Key {
	w.t.Helper()
	var all []inventory.Key
	for _, gvk := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "ServiceAccount"}, {Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "Service"},
		{Group: "apps", Version: "v1", Kind: "DaemonSet"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		{Group: "storage.k8s.io", Version: "v1", Kind: "CSIDriver"},
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

	vcc := get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one")
	w.change(vcc, func() { vcc.Spec.Suspend = true })
	w.look(v)
	require.NotContains(t, all(), "unchecked-2")
	require.Contains(t, cond(t, v, "Resolved").Message, "set its spec.suspend to false")

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

	w.checked(get(w, vcc, w.ns, "vc-one"), metav1.ConditionTrue, "Succeeded", "")
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
	w.until("let go", func() bool { w.pass(client.ObjectKeyFromObject(v)); return gone(w, v, w.ns, v.Name) })
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
	w.until("let go", func() bool { w.pass(client.ObjectKeyFromObject(again)); return gone(w, again, w.ns, again.Name) })
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
