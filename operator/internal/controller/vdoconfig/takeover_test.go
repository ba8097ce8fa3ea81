package vdoconfig_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
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

// upstreamStorage installs the storage driver as `kubectl apply` of a release's manifests does, with
// a setting of the site's own. It returns what it made, by "Kind name".
func (w *world) upstreamStorage(release string) map[string]*unstructured.Unstructured {
	w.t.Helper()
	ctx, made := w.t.Context(), map[string]*unstructured.Unstructured{}
	id, err := matrix.ParseReleaseID("csi@" + strings.TrimPrefix(release, "v"))
	require.NoError(w.t, err)
	for _, file := range []string{"namespace.yaml", "vsphere-csi-driver.yaml"} {
		data, err := upstream.Read("", id, file)
		require.NoError(w.t, err)
		for _, text := range strings.Split(string(data), "\n---") {
			o := &unstructured.Unstructured{}
			require.NoError(w.t, yaml.Unmarshal([]byte(text), &o.Object))
			if len(o.Object) == 0 || (o.GetKind() == "Namespace" && !gone(w, o.DeepCopy(), "", o.GetName())) {
				continue // the fixture may have the namespace
			}
			if o.GetKind() == "ConfigMap" {
				require.NoError(w.t, unstructured.SetNestedField(o.Object, "true", "data", "trigger-csi-fullsync"))
			}
			if o.GetKind() == "DaemonSet" {
				require.NoError(w.t, unstructured.SetNestedField(o.Object, "yes", "spec", "template", "metadata", "annotations", "by-hand"))
			}
			applied, err := o.MarshalJSON()
			require.NoError(w.t, err)
			o.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: string(applied)})
			require.NoError(w.t, w.Create(ctx, o, client.FieldOwner("kubectl-client-side-apply")))
			made[o.GetKind()+" "+o.GetName()] = o
		}
	}
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: "vsphere-config-secret"},
		StringData: map[string]string{"csi-vsphere.conf": "[Global]\ncluster-id = \"by-hand\"\n[VirtualCenter \"vc1.site.example\"]\nuser = \"u@vsphere.local\"\npassword = \"canary\"\n"}})
	return made
}

func TestTheStorageDriverOfUpstreamsManifestIsTakenOver(t *testing.T) {
	w := start(t, pair)
	made, pv := w.upstreamStorage("v3.3.1"), w.volume()
	v := w.ready(w.config("site"))
	for _, name := range []string{
		"CSIDriver csi.vsphere.vmware.com", "Deployment vsphere-csi-controller", "DaemonSet vsphere-csi-node",
	} {
		was := made[name]
		require.NotNil(t, was, name)
		is := &unstructured.Unstructured{Object: map[string]any{"apiVersion": was.GetAPIVersion(), "kind": was.GetKind()}}
		get(w, is, was.GetNamespace(), was.GetName())
		require.Equal(t, was.GetUID(), is.GetUID(), "%s is changed in place", name)
		require.Equal(t, "3.5.1", is.GetLabels()["vdo.vmware.com/version"], name)
		_, byHand, _ := unstructured.NestedString(is.Object, "spec", "template", "metadata", "annotations", "by-hand")
		require.False(t, byHand, "what the release does not have is gone: %s", name)
		for _, m := range is.GetManagedFields() {
			require.NotEqual(t, "kubectl-client-side-apply", m.Manager, name)
		}
	}
	require.Equal(t, pv.UID, get(w, pv.DeepCopy(), "", pv.Name).UID)
	require.Contains(t, w.events.all(), "trigger-csi-fullsync: true becomes false", "what was set by hand")
	conf := func() *corev1.Secret {
		return get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret")
	}
	require.Contains(t, string(conf().Data["csi-vsphere.conf"]), "by-hand", "the volumes are known by it")
	require.NoError(t, w.Delete(t.Context(), conf()))
	w.ready(v)
	require.Contains(t, string(conf().Data["csi-vsphere.conf"]), "by-hand", "it outlives the Secret")
}

// away has the check of a vCenter find nobody, as it does of one that let the login in before.
func (w *world) away(name string) {
	w.t.Helper()
	vcc := get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, name)
	verified := vcc.Status.VerifiedCredentials
	w.checked(vcc, metav1.ConditionFalse, "Unreachable", "no answer from "+name)
	vcc.Status.VerifiedCredentials = verified
	require.NoError(w.t, w.Status().Update(context.Background(), vcc))
}

// endless has a pod never end, as one whose node does not answer.
func (w *world) endless(ns string, labels client.MatchingLabels) *corev1.Pod {
	w.t.Helper()
	var pods corev1.PodList
	require.NoError(w.t, w.List(context.Background(), &pods, client.InNamespace(ns), labels))
	require.NotEmpty(w.t, pods.Items)
	pod := &pods.Items[0]
	w.change(pod, func() { pod.Finalizers = []string{"site.example/kubelet"} })
	w.t.Cleanup(func() { w.change(pod, func() { pod.Finalizers = nil }) })
	return pod
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

	w.change(c.v, func() { c.v.Spec.StorageProvider = nil })
	c.look(c.v) // the finalizer
	c.always("it would lose sight of nodes", stays)
	require.Contains(t, describe(c.v), narrower)
	searches("dc", "dc2")
	labels := map[string]string{"a": "b"}
	admit := w.refuse("apps", "daemonsets", "!object.spec.template.spec.containers.exists(c, c.image.startsWith('mirror.site'))", "no images of mirror.site",
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "try"}, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "c", Image: "mirror.site/x"}}}}}})
	c.always("the new one is refused", stays)
	require.Contains(t, cond(t, c.v, "Applied").Message, "no images of mirror.site", describe(c.v))
	require.Contains(t, planned(c.v), "conflict DaemonSet/"+ccm)
	admit()
	silent := w.endless("kube-system", old.Spec.Selector.MatchLabels)
	c.until("it is deleted", func() bool {
		c.look(c.v)
		return !stays()
	})
	require.True(t, gone(w, &appsv1.DaemonSet{}, "kube-system", ccm), "it waits for no pod")
	w.until("its pods are deleted", func() bool {
		return !get(w, &corev1.Pod{}, silent.Namespace, silent.Name).DeletionTimestamp.IsZero()
	})

	c.remove(get(w, &corev1.ConfigMap{}, "kube-system", "cloud-config"))
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
		require.Contains(t, w.events.all(), set)
	}
	require.Contains(t, w.events.all(), "upstream's deprecated manifests installed it")
}

// always requires something to hold, look after look.
func (c *cloud) always(when string, holds func() bool) {
	c.t.Helper()
	for range again() {
		c.look(c.v)
		require.True(c.t, holds(), "%s\n%s\n%s", when, c.events.all(), describe(c.v))
	}
}

// skips tells whether the cloud provider is told to delete no Nodes.
func (c *cloud) skips() bool {
	for _, k := range get(c.world, &appsv1.DaemonSet{}, "kube-system", ccm).Spec.Template.Spec.Containers {
		for _, e := range k.Env {
			if e.Name == "SKIP_NODE_DELETION" { // upstream asks whether it is there
				return true
			}
		}
	}
	return false
}
