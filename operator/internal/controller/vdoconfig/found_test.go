package vdoconfig_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
)

// What power users had put into the configuration by hand is named when it is taken over,
// and stays named until somebody has edited the VDOConfig. Classes that a VDOConfig asks
// for are made, never made anew, and stop nothing.
func TestSettingsThatWereFoundAreNamedAndClassesAreMade(t *testing.T) {
	w := start(t, pair)
	w.allow(deploy.ClassesRights)
	ctx := context.Background()
	require.NoError(t, client.IgnoreAlreadyExists(w.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "vmware-system-csi"}})))
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vsphere-cloud-config"},
		Data: map[string]string{"vsphere.conf": "vcenter: {one: {server: vc1.site.example, datacenters: [dc]}}\nlabels: {region: r, zone: z}\n"}})
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: "vsphere-config-secret"},
		StringData: map[string]string{"csi-vsphere.conf": "[Global]\nquery-limit = 500\n[VirtualCenter \"vc1.site.example\"]\npassword = \"canary\"\n"}})
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: "internal-feature-states.csi.vsphere.vmware.com"},
		Data: map[string]string{"trigger-csi-fullsync": "true"}})
	v := w.ready(w.config("site"))
	for range 2 {
		message := cond(t, v, "Resolved").Message
		for _, want := range []string{"[labels] region", "[labels] zone", "[global] query-limit", "trigger-csi-fullsync: true becomes false"} {
			require.Contains(t, message, want)
		}
		require.NotContains(t, describe(v), "canary")
		w.look(v) // all is ours by now
	}
	gold := func() *storagev1.StorageClass { return get(w, &storagev1.StorageClass{}, "", "gold") }
	t.Cleanup(func() {
		_ = w.Delete(ctx, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}})
	})
	w.change(v, func() {
		v.Spec.StorageProvider.StorageClasses = []v1alpha1.StorageClass{{Name: "gold", StoragePolicy: "Gold"}}
	})
	w.ready(v)
	require.NotContains(t, cond(t, v, "Resolved").Message, "query-limit", "the VDOConfig was edited")
	require.Equal(t, map[string]string{"storagepolicyname": "Gold"}, gold().Parameters)

	was := gold()
	w.change(v, func() { v.Spec.StorageProvider.StorageClasses[0].StoragePolicy = "Platinum" })
	require.NoError(t, w.Delete(ctx, get(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller")))
	w.until("repaired", func() bool {
		w.look(v)
		return !gone(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller")
	})
	require.False(t, isTrue(v, "Ready"))
	require.Contains(t, cond(t, v, "Ready").Message, "its parameters differs and cannot change")
	require.Equal(t, was.UID, gold().UID)
	require.Equal(t, was.Parameters, gold().Parameters)

	w.change(v, func() { v.Spec.StorageProvider.StorageClasses = nil })
	w.ready(v)
	require.Equal(t, was.UID, gold().UID, "claims may name it")
}

// The cloud provider deletes the Nodes of VMs that it does not find: its configuration is
// left as it is, and all else goes on, until that is accepted.
func TestADatacenterIsNotTakenAwayUnasked(t *testing.T) {
	w, v := installed(t)
	conf := func() string {
		return get(w, &corev1.ConfigMap{}, "kube-system", "vsphere-cloud-config").Data["vsphere.conf"]
	}
	was := conf()
	vcc := func() *v1alpha1.VsphereCloudConfig { return get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one") }
	o := vcc()
	w.change(o, func() { o.Spec.Datacenters = []string{"dc1"} })
	w.checked(vcc(), metav1.ConditionTrue, "Succeeded", "")
	require.NoError(t, w.Delete(context.Background(), get(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager")))
	w.until("repaired", func() bool {
		w.look(v)
		return !gone(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager")
	})
	require.False(t, isTrue(v, "Ready"))
	require.Contains(t, describe(v), "would not look in vc1.site.example/dc any more, and delete the Nodes")
	require.Equal(t, was, conf())

	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.ConfigMap{}, "kube-system", "vsphere-cloud-config")))
	w.change(v, func() { v.Spec.ExcludedNodes = map[string]string{"site/metal": "yes"} })
	w.until("passed", func() bool { w.look(v); return v.Status.ObservedGeneration == v.Generation })
	require.Contains(t, describe(v), "would not look in vc1.site.example/dc any more, and delete the Nodes", "what was searched is remembered")
	require.True(t, gone(w, &corev1.ConfigMap{}, "kube-system", "vsphere-cloud-config"))

	w.change(v, func() { v.Spec.CloudProvider.AcceptNodeDeletion = []string{"vc1.site.example/dc"} })
	w.ready(v)
	require.Contains(t, conf(), "dc1")
}
