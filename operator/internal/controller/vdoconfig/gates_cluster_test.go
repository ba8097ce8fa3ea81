package vdoconfig_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
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
	const anew = "sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd"
	w.offer(anew, strings.Fields(newer)...)
	w.store.of[anew] = rebuilt(t, strings.Fields(newer)...)
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

	// What falls over of what goes on is gone back from, though the other vCenter is away.
	if !tier.Open(tier.All) {
		return // TestARevisionFailsForItsOwnDriversAlone shows what is decided
	}
	last := v.Status.Revision
	w.advance(v, "all is healthy", func() bool { return revisionNamed(v, last).Outcome == string(revision.Healthy) })
	w.change(v, func() {
		v.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{HealthDeadline: metav1.Duration{Duration: 4 * time.Minute}}
	})
	w.away("vc-two")
	w.refuseImage("true", bundleOf(t, "cpi@1.33.1").Lock.Images[0].Digest.String())
	w.offer(nextDigest, newerPair()...)
	w.advance(v, "the cloud provider is rolled out", func() bool { now, _ := w.images(); return now != is })
	failing := v.Status.Revision
	w.advance(v, "it is gone back from", func() bool {
		return v.Status.Revision == last && revisionNamed(v, last).Outcome == string(revision.Healthy)
	})
	require.Equal(t, string(revision.RolledBack), revisionNamed(v, failing).Outcome)
	require.Contains(t, revisionNamed(v, failing).Reason, "progress: cpi: ")
	cpi, csi := w.images()
	require.Equal(t, []string{is, upgraded}, []string{cpi, csi})
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

// What is held is repaired from the bundle that it runs from, whole: what is deleted by hand, what
// is changed by hand, and what the bundle that was built anew has no more. All else comes from that.
func TestWhatIsHeldIsRepairedFromWhatItRunsFrom(t *testing.T) {
	w, v := installed(t)
	w.spoilt = true // a revision more is remembered
	cpi, csi := w.images()
	snapshots := func() string {
		return get(w, &appsv1.Deployment{}, "kube-system", "snapshot-controller").Spec.Template.Spec.Containers[0].Image
	}
	was := snapshots()
	w.builtAnew(v)
	w.until("what is not held comes from the new bundle", func() bool { w.play(); w.look(v); return snapshots() != was })

	w.deleted(&appsv1.DaemonSet{}, "kube-system", ccm)
	w.deleted(&rbacv1.RoleBinding{}, "kube-system", authReader)
	w.deleted(&corev1.ConfigMap{}, "vmware-system-csi", "internal-feature-states.csi.vsphere.vmware.com")
	node := get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node")
	w.change(node, func() { node.Spec.Template.Spec.Containers[0].Image = "registry.evil/image:1" })
	for range again() {
		w.look(v)
		nowCPI, nowCSI := w.images()
		require.Equal(t, cpi, nowCPI, describe(v))
		require.Equal(t, csi, nowCSI, describe(v))
		get(w, &rbacv1.RoleBinding{}, "kube-system", authReader)
		get(w, &corev1.ConfigMap{}, "vmware-system-csi", "internal-feature-states.csi.vsphere.vmware.com")
	}
	require.Contains(t, cond(t, v, "Resolved").Message, "no answer from vc-one")

	w.checked(get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one"), metav1.ConditionTrue, "Succeeded", "")
	w.until("all comes from the new bundle", func() bool {
		w.ready(v)
		nowCPI, nowCSI := w.images()
		return nowCPI != cpi && nowCSI != csi && gone(w, &rbacv1.RoleBinding{}, "kube-system", authReader)
	})
}

// Where the bundle that it runs from cannot be read, it is left as it is, and it is said why; nothing of
// it is forgotten.
func TestWhatIsHeldIsNotMadeOfAnotherBundle(t *testing.T) {
	w, v := installed(t)
	w.spoilt = true // likewise
	cpi, _ := w.images()
	w.store.broken = w.builtAnew(v)
	w.deleted(&appsv1.DaemonSet{}, "kube-system", ccm)
	w.deleted(&rbacv1.RoleBinding{}, "kube-system", authReader)
	for range again() {
		w.look(v)
		require.True(t, gone(w, &appsv1.DaemonSet{}, "kube-system", ccm), describe(v))
		require.True(t, gone(w, &rbacv1.RoleBinding{}, "kube-system", authReader), describe(v))
		_, known := w.inventory(v).Get(inventory.Key{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding", Namespace: "kube-system", Name: authReader})
		require.True(t, known)
		said := cond(t, v, "Applied").Message
		require.Contains(t, said, "repair cpi@1.33.1", describe(v))
		require.Contains(t, said, errBroken.Error(), describe(v))
		require.Equal(t, metav1.ConditionFalse, cond(t, v, "Ready").Status)
	}
	w.store.broken = ""
	w.look(v)
	is, _ := w.images()
	require.Equal(t, cpi, is)
	get(w, &rbacv1.RoleBinding{}, "kube-system", authReader)
}

// What goes over to a bundle that was built anew, once its vCenter is back, does so as an upgrade:
// it waits as one does, is repaired meanwhile from what it runs from, and is watched. A revision
// that was begun without it is gone back to without it.
func TestWhatWasHeldGoesOverAsAnUpgrade(t *testing.T) {
	tier.Later(t, tier.All) // TestARevisionIsNotCompleteWhileADriverOfItIsHeld shows what is decided
	left = nil              // a rollback would choose a revision that a test before made healthy later
	w, v := installed(t)
	w.spoilt = true // likewise
	was := v.Status.Revision
	cpi, csi := w.images()
	same := func() {
		t.Helper()
		nowCPI, nowCSI := w.images()
		require.Equal(t, cpi, nowCPI, describe(v))
		require.Equal(t, csi, nowCSI, describe(v))
	}
	w.builtAnew(v)
	w.advance(v, "what is not held is of the new bundle, and healthy", func() bool {
		same()
		return v.Status.Revision != was && revisionNamed(v, v.Status.Revision).Outcome == string(revision.Healthy)
	})
	anew := v.Status.Revision
	w.change(v, func() { v.Spec.Upgrade = v1alpha1.UpgradeManual })
	w.checked(get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one"), metav1.ConditionTrue, "Succeeded", "")
	for range 2 {
		w.look(v)
		same()
		require.NotNil(t, v.Status.Candidate, describe(v))
		require.Equal(t, "NotApproved", v.Status.Candidate.Reason)
		require.NotEqual(t, anew, v.Status.Candidate.Name)
	}
	whole := v.Status.Candidate.Name
	w.deleted(&appsv1.DaemonSet{}, "kube-system", ccm)
	w.look(v)
	same()
	w.ready(v)

	const third = "sha256:3333333333333333333333333333333333333333333333333333333333333333"
	w.crash()
	w.offer(third, newerPair()...)
	for i, img := range w.store.of[third].Lock.Images {
		if strings.Contains(img.Reference.String(), "cloud-provider-vsphere") {
			w.store.of[third].Lock.Images[i].Digest = image.DigestOf([]byte("third"))
		}
	}
	w.look(v)
	failing := v.Status.Candidate.Name
	w.change(v, func() {
		v.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{
			HealthDeadline: metav1.Duration{Duration: 4 * time.Minute}, Approval: &v1alpha1.UpgradeApproval{Revision: failing, By: "alice"}}
	})
	w.advance(v, "the next one is rolled out", func() bool { now, _ := w.images(); return now != cpi })
	w.advance(v, "it is gone back from", func() bool {
		return v.Status.Revision == anew && revisionNamed(v, anew).Outcome == string(revision.Healthy)
	})
	require.Equal(t, string(revision.RolledBack), revisionNamed(v, failing).Outcome)
	same()

	b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	b.Status.Digest = nextDigest
	w.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
	w.change(v, func() {
		v.Spec.UpgradePolicy.Approval.Revision, v.Spec.UpgradePolicy.HealthDeadline = whole, metav1.Duration{}
	})
	w.events.told = nil
	w.look(v)
	require.Contains(t, w.events.all(), "RevisionStarted: Started revision "+whole)
	require.Equal(t, string(revision.Progressing), revisionNamed(v, whole).Outcome, describe(v))
	_, before := w.images()
	require.Equal(t, csi, before, "the cloud provider comes first")
	w.away("vc-one") // what was begun is ended
	w.until("it has gone over", func() bool {
		w.play()
		w.look(v)
		nowCPI, nowCSI := w.images()
		return nowCPI != cpi && nowCSI != csi
	})
	w.checked(get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one"), metav1.ConditionTrue, "Succeeded", "")
	w.advance(v, "it is healthy", func() bool { return revisionNamed(v, whole).Outcome == string(revision.Healthy) })
	require.Equal(t, "alice", revisionNamed(v, whole).ApprovedBy)
}
