package vdoconfig_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// deprecatedCloud is a cloud provider as upstream's deprecated manifests install it: its DaemonSet
// has the name of ours, another selector, and its configuration in another ConfigMap, in INI.
func (w *world) deprecatedCloud() *appsv1.DaemonSet {
	w.t.Helper()
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cloud-config"}, Data: map[string]string{
		"vsphere.conf": "[Global]\ndatacenters = \"dc, dc2\"\n\n[VirtualCenter \"vc1.site.example\"]\n\n[Labels]\nregion = \"r\"\nzone = \"z\"\n"}})
	w.t.Cleanup(func() {
		require.NoError(w.t, client.IgnoreNotFound(w.Delete(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cloud-config"}})))
	})
	labels := map[string]string{"k8s-app": ccm}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: ccm, Labels: labels}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: ccm, Image: "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.30.2",
				Args:         []string{"--v=2", "--cloud-provider=vsphere", "--cloud-config=/etc/cloud/vsphere.conf"},
				VolumeMounts: []corev1.VolumeMount{{Name: "vsphere-config-volume", MountPath: "/etc/cloud", ReadOnly: true}}}},
			Volumes: []corev1.Volume{{Name: "vsphere-config-volume", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cloud-config"}}}}},
		}},
	}}
	require.NoError(w.t, w.Create(context.Background(), ds, client.FieldOwner("kubectl-client-side-apply")))
	return ds
}

// The cloud provider of upstream's deprecated manifests has a selector that cannot be changed: it
// is made anew, with nothing lost of where it looks for nodes and of what was set by hand, whatever
// happens between its delete and its return.
func TestTheCloudProviderOfUpstreamsDeprecatedManifestsIsTakenOver(t *testing.T) {
	w := start(t, "cpi@1.33.1")
	old := w.deprecatedCloud()
	w.until("its pods run", func() bool { return len(w.running("kube-system", old.Spec.Selector.MatchLabels)) > 0 })
	c := &cloud{world: w, v: w.config("site")}
	searches := func(datacenters ...string) {
		o := get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one")
		w.change(o, func() { o.Spec.Datacenters = datacenters })
		w.checked(get(w, o, w.ns, "vc-one"), metav1.ConditionTrue, "Succeeded", "")
	}
	conf := func() string {
		return get(w, &corev1.ConfigMap{}, "kube-system", "vsphere-cloud-config").Data["vsphere.conf"]
	}
	stays := func() bool {
		var ds appsv1.DaemonSet
		err := w.Get(t.Context(), client.ObjectKeyFromObject(old), &ds)
		return err == nil && ds.UID == old.UID && ds.DeletionTimestamp.IsZero()
	}
	const narrower = "would not look in vc1.site.example/dc2 any more, and delete the Nodes"

	w.change(c.v, func() { c.v.Spec.StorageProvider, c.v.Spec.DryRun = nil, true })
	c.always("a dry run", stays)
	require.Contains(t, describe(c.v), narrower)
	require.Contains(t, planned(c.v), "wait DaemonSet/"+ccm)
	searches("dc", "dc2")
	c.always("a dry run", stays)
	require.Contains(t, planned(c.v), "recreate DaemonSet/"+ccm, describe(c.v))
	require.Zero(t, w.writes)
	w.change(c.v, func() { c.v.Spec.DryRun, c.v.Spec.Suspend = false, true })
	c.always("suspended", stays)
	require.Zero(t, w.writes)

	searches("dc")
	w.change(c.v, func() { c.v.Spec.Suspend = false })
	c.look(c.v) // the finalizer
	c.always("it would lose sight of nodes", stays)
	require.Contains(t, describe(c.v), narrower)
	searches("dc", "dc2")
	c.until("it is deleted", func() bool {
		c.look(c.v)
		return !stays()
	})
	require.LessOrEqual(t, c.next.RequeueAfter.Seconds(), 5.0, "nobody tells that it is gone")
	w.until("it is gone", func() bool { return gone(w, &appsv1.DaemonSet{}, "kube-system", ccm) })
	require.Empty(t, w.running("kube-system", old.Spec.Selector.MatchLabels), "two never run at once")

	w.deleted(&corev1.ConfigMap{}, "kube-system", "cloud-config")
	w.restart()
	w.away("vc-one")
	c.look(c.v)
	require.NotContains(t, w.events.all(), "Repaired")
	ds := get(w, &appsv1.DaemonSet{}, "kube-system", ccm)
	require.NotEqual(t, old.UID, ds.UID)
	require.Equal(t, map[string]string{"name": ccm}, ds.Spec.Selector.MatchLabels)
	searches("dc")
	c.until("looked at", func() bool { c.look(c.v); return !isTrue(c.v, "Resolved") || !isTrue(c.v, "Applied") })
	require.Contains(t, describe(c.v), narrower)
	require.Contains(t, conf(), "dc2")

	searches("dc", "dc2")
	c.ready(c.v)
	require.Equal(t, ds.UID, get(w, &appsv1.DaemonSet{}, "kube-system", ccm).UID)
	require.False(t, c.skips(), "all that it looked for is known")
	for _, set := range []string{"[labels] region", "[labels] zone"} {
		require.Contains(t, cond(t, c.v, "Resolved").Message, set)
	}
	require.Contains(t, w.events.all(), "upstream's deprecated manifests installed it")
}
