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

// boundVolume makes a volume of the storage driver that a claim has.
func (w *world) boundVolume() *corev1.PersistentVolume {
	w.t.Helper()
	pv := w.volume()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		VolumeName: pv.Name, StorageClassName: new(string), AccessModes: pv.Spec.AccessModes,
		Resources: corev1.VolumeResourceRequirements{Requests: pv.Spec.Capacity}}}
	w.create(claim)
	w.t.Cleanup(func() { require.NoError(w.t, client.IgnoreNotFound(w.Delete(context.Background(), claim))) })
	w.until("the volume is bound", func() bool { return get(w, pv, "", pv.Name).Status.Phase == corev1.VolumeBound })
	return pv
}

// storageTakenOver requires that what upstream's manifests installed was changed in place.
func (w *world) storageTakenOver(v *v1alpha1.VDOConfig, made map[string]*unstructured.Unstructured, pv *corev1.PersistentVolume) {
	w.t.Helper()
	for _, name := range []string{"CSIDriver csi.vsphere.vmware.com", "Deployment vsphere-csi-controller", "DaemonSet vsphere-csi-node"} {
		was := made[name]
		require.NotNil(w.t, was, name)
		is := get(w, &unstructured.Unstructured{Object: map[string]any{"apiVersion": was.GetAPIVersion(), "kind": was.GetKind()}}, was.GetNamespace(), was.GetName())
		require.Equal(w.t, was.GetUID(), is.GetUID(), name)
		selector, _, _ := unstructured.NestedMap(was.Object, "spec", "selector")
		now, _, _ := unstructured.NestedMap(is.Object, "spec", "selector")
		require.Equal(w.t, selector, now, name)
		require.Equal(w.t, "3.5.1", is.GetLabels()["vdo.vmware.com/version"], name)
		_, byHand, _ := unstructured.NestedString(is.Object, "spec", "template", "metadata", "annotations", "by-hand")
		require.False(w.t, byHand, "what the release does not have is gone: %s", name)
		for _, m := range is.GetManagedFields() {
			require.NotEqual(w.t, "kubectl-client-side-apply", m.Manager, name)
		}
	}
	require.Equal(w.t, pv.UID, get(w, pv.DeepCopy(), "", pv.Name).UID)
	require.Equal(w.t, corev1.VolumeBound, get(w, pv, "", pv.Name).Status.Phase)
	require.Contains(w.t, w.events.all(), "trigger-csi-fullsync: true becomes false", "what was set by hand")
	w.ready(v)
	require.Equal(w.t, "3.5.1", driver(v, "csi").Version)
	conf := func() *corev1.Secret { return get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret") }
	require.Contains(w.t, string(conf().Data["csi-vsphere.conf"]), "by-hand", "the volumes are known by it")
	require.NoError(w.t, w.Delete(w.t.Context(), conf()))
	w.ready(v)
	require.Contains(w.t, string(conf().Data["csi-vsphere.conf"]), "by-hand", "it outlives the Secret")
}

// While a node is emptied it stays as it is, before anything is in force and after.
func TestTheStorageDriverOfUpstreamsManifestIsTakenOver(t *testing.T) {
	w := start(t, pair)
	storage, pv := w.upstreamStorage("v3.3.1"), w.boundVolume()
	uncordon := w.emptied("worker-2")
	t.Cleanup(uncordon)
	v := w.config("site")
	w.until("the cloud provider is installed", func() bool { w.play(); w.look(v); return isTrue(v, "CPIReady") && current(v, "cpi") != "" })
	was := current(v, "cpi")
	w.look(v)
	require.Equal(t, "Interlocked", v.Status.Candidate.Reason, describe(v))
	require.Contains(t, v.Status.Candidate.Message, "nodes are being emptied: worker-2")
	require.Equal(t, was, current(v, "cpi"), "it is begun once")
	for _, name := range []string{"Deployment vsphere-csi-controller", "DaemonSet vsphere-csi-node"} {
		is := storage[name].DeepCopy()
		require.Equal(t, storage[name].GetGeneration(), get(w, is, is.GetNamespace(), is.GetName()).GetGeneration(), name)
	}
	require.Equal(t, "3.3.1", driver(v, "csi").Version)
	uncordon()
	w.ready(v)
	w.storageTakenOver(v, storage, pv)
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

	w.change(c.v, func() { c.v.Spec.StorageProvider, c.v.Spec.DryRun = nil, true })
	c.always("a dry run", stays)
	require.Contains(t, describe(c.v), narrower)
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

// emptied cordons a node, until what it returns is called.
func (w *world) emptied(name string) func() {
	w.t.Helper()
	node := get(w, &corev1.Node{}, "", name)
	w.change(node, func() { node.Spec.Unschedulable = true })
	w.until("the cluster has noted since when", func() bool {
		for _, taint := range get(w, &corev1.Node{}, "", name).Spec.Taints {
			if taint.Key == corev1.TaintNodeUnschedulable && taint.TimeAdded != nil {
				return true
			}
		}
		return false
	})
	return func() { w.change(node, func() { node.Spec.Unschedulable = false }) }
}
