package vdoconfig_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
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

// without is a bundle whose cloud provider has no object of a kind and name.
func without(t *testing.T, c *bundle.Contents, kind, name string) *bundle.Contents {
	t.Helper()
	const file = "cpi/1.33.1/vsphere-cloud-controller-manager.yaml"
	all := strings.Split(string(c.Manifests[file]), "\n---\n")
	left := slices.DeleteFunc(slices.Clone(all), func(doc string) bool {
		return strings.Contains(doc, "kind: "+kind+"\n") && strings.Contains(doc, "\n  name: "+name+"\n")
	})
	require.Len(t, left, len(all)-1)
	c.Manifests[file] = []byte(strings.Join(left, "\n---\n"))
	for i := range c.Lock.Releases {
		r := &c.Lock.Releases[i]
		for j := range r.Manifests {
			r.Manifests[j].Digest = image.DigestOf(c.Manifests[r.Path(r.Manifests[j])])
		}
	}
	var err error
	c.Matrix, err = upstream.Listed(t, c.Manifests).Marshal()
	require.NoError(t, err)
	return c
}

const authReader = "servicecatalog.k8s.io:apiserver-authentication-reader"

// builtAnew accepts a bundle of the same releases with other images, and without a part of the
// cloud provider, while the vCenter is away.
func (w *world) builtAnew(v *v1alpha1.VDOConfig) (first string) {
	w.t.Helper()
	_, first, _ = strings.Cut(v.Status.Bundle, "@")
	w.away("vc-one")
	w.offer(nextDigest, strings.Fields(pair)...)
	w.store.of[nextDigest] = without(w.t, rebuilt(w.t, strings.Fields(pair)...), "RoleBinding", authReader)
	w.look(v)
	return first
}

// deleted deletes an object, and waits until it is gone.
func (w *world) deleted(o client.Object, ns, name string) {
	w.t.Helper()
	require.NoError(w.t, w.Delete(context.Background(), get(w, o, ns, name)))
	w.until("gone", func() bool { return gone(w, o, ns, name) })
}

// What is held is repaired from the bundle that it runs from, whole: what is deleted by hand, what is changed by
// hand, and what the bundle that was built anew has no more. All else comes from that. Where the one that it runs
// from cannot be read, it is left as it is, and it is said why; nothing of it is forgotten.
func TestWhatIsHeldIsRepairedFromWhatItRunsFrom(t *testing.T) {
	w, v := installed(t)
	w.spoilt = true // a revision more is remembered
	cpi, csi := w.images()
	snapshots := func() string {
		return get(w, &appsv1.Deployment{}, "kube-system", "snapshot-controller").Spec.Template.Spec.Containers[0].Image
	}
	was, first := snapshots(), w.builtAnew(v)
	w.until("what is not held comes from the new bundle", func() bool { w.play(); w.look(v); return snapshots() != was })

	w.deleted(&appsv1.DaemonSet{}, "kube-system", ccm)
	w.deleted(&rbacv1.RoleBinding{}, "kube-system", authReader)
	node := get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node")
	w.change(node, func() { node.Spec.Template.Spec.Containers[0].Image = "registry.evil/image:1" })
	w.store.broken = first
	for range again() {
		w.look(v)
		require.True(t, gone(w, &appsv1.DaemonSet{}, "kube-system", ccm), describe(v))
		require.True(t, gone(w, &rbacv1.RoleBinding{}, "kube-system", authReader), describe(v))
		_, known := w.inventory(v).Get(inventory.Key{
			Group: "rbac.authorization.k8s.io", Kind: "RoleBinding", Namespace: "kube-system", Name: authReader})
		require.True(t, known)
		require.Contains(t, cond(t, v, "Applied").Message, errBroken.Error(), describe(v))
	}
	w.store.broken = ""
	for range again() {
		w.look(v)
		nowCPI, nowCSI := w.images()
		require.Equal(t, []string{cpi, csi}, []string{nowCPI, nowCSI}, describe(v))
		get(w, &rbacv1.RoleBinding{}, "kube-system", authReader)
	}

	w.checked(get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one"), metav1.ConditionTrue, "Succeeded", "")
	w.until("all comes from the new bundle", func() bool {
		w.ready(v)
		nowCPI, nowCSI := w.images()
		return nowCPI != cpi && nowCSI != csi && gone(w, &rbacv1.RoleBinding{}, "kube-system", authReader)
	})
}
