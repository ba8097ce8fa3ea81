package driverbundle_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// installed retains the copy of a bundle, REPOSITORY@DIGEST, for a revision.
func (w *world) installed(bundle string) {
	w.t.Helper()
	kept := &corev1.ConfigMap{ObjectMeta: w.named(revision.ConfigMapName("site", "r1"))}
	kept.Labels = map[string]string{revision.LabelDigest: revision.DigestLabel(bundle)}
	w.create(kept)
	_, digest, _ := strings.Cut(bundle, "@")
	for _, part := range w.copies(image.MustDigest(digest)) {
		part.OwnerReferences = append(part.OwnerReferences, revision.Owner(kept))
		require.NoError(w.t, w.Update(w.t.Context(), &part))
	}
}

// uninstalled has nothing of revisions.
func (w *world) uninstalled() {
	w.t.Helper()
	w.stop() // so that the next pass reads what is left
	require.NoError(w.t, w.DeleteAllOf(w.t.Context(), &corev1.ConfigMap{}, client.InNamespace(w.ns), client.HasLabels{revision.LabelDigest}))
	w.collect()
	w.start()
}

// collect removes what has lost all of its owners, as a cluster's garbage collector does.
func (w *world) collect() {
	w.t.Helper()
	var (
		bundles v1alpha1.DriverBundleList
		maps    corev1.ConfigMapList
		there   = map[types.UID]bool{}
	)
	require.NoError(w.t, w.List(w.t.Context(), &bundles, client.InNamespace(w.ns)))
	require.NoError(w.t, w.List(w.t.Context(), &maps, client.InNamespace(w.ns)))
	for _, b := range bundles.Items {
		there[b.UID] = true
	}
	for _, cm := range maps.Items {
		there[cm.UID] = true
	}
	for _, cm := range maps.Items {
		if len(cm.OwnerReferences) > 0 && !slices.ContainsFunc(cm.OwnerReferences, func(r metav1.OwnerReference) bool { return there[r.UID] }) {
			require.NoError(w.t, w.Delete(w.t.Context(), &cm))
		}
	}
}

// madeAgain deletes the DriverBundle, and makes it anew once it is gone.
func (w *world) madeAgain() {
	w.t.Helper()
	before := w.get()
	require.NoError(w.t, w.Delete(w.t.Context(), before))
	w.bundle()
	require.Equal(w.t, before.Status.Digest, w.ready("True Succeeded").Status.Digest)
	w.collect()
	for _, part := range w.copies(image.MustDigest(before.Status.Digest)) {
		require.True(w.t, metav1.IsControlledBy(&part, w.get()), "what the mirror has is owned anew")
	}
}

// upgraded accepts two bundles, one after the other, of which the first was installed from.
func (w *world) upgraded() (first, second image.Digest) {
	w.t.Helper()
	first = w.accepted(mirror.Bundle{Seed: 1, Serial: 5})
	w.installed(w.at(first))
	second = w.publish(mirror.Bundle{Seed: 2, Serial: 6}, w.key)
	require.Equal(w.t, second.String(), w.poke().Status.Digest)
	return first, second
}

// at is a digest in the mirror.
func (w *world) at(d image.Digest) string {
	repository, _, _ := strings.Cut(w.repo.Reference("1"), ":1")
	return repository + "@" + d.String()
}

// goBack points at a digest, with consent to it.
func (w *world) goBack(d image.Digest) {
	w.t.Helper()
	w.change(func(b *v1alpha1.DriverBundle) { b.Spec.Reference, b.Spec.AcceptOlder = w.at(d), d.String() })
}

const fromTheCopy = "the bundle is taken from the copy in the cluster"

func TestABundleThatWasInstalledFromIsTakenFromItsCopyWithoutTheMirror(t *testing.T) {
	for name, c := range map[string]struct {
		gone        func(w *world, first image.Digest)
		ready, text string
	}{
		"it is pruned": {func(w *world, first image.Digest) {
			w.madeAgain()
			w.repo.Prune(w.t, first)
		}, "False NotFound", "404 Not Found"},
		"it has stopped": {func(w *world, _ image.Digest) { require.NoError(w.t, w.reg.Close()) }, "False Unreachable", "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first, second := w.upgraded()
			c.gone(w, first)

			w.change(func(b *v1alpha1.DriverBundle) { b.Spec.Reference = w.at(first) })
			b := w.ready(c.ready)
			require.Equal(t, second.String(), b.Status.Digest, "without consent it is older")
			require.Contains(t, message(b, v1alpha1.ConditionReady), "nor is it accepted from the copy in the cluster: ")
			require.Contains(t, message(b, v1alpha1.ConditionReady), "its serial 5 is lower than 6")

			w.goBack(first)
			b = w.until("taken", func(b *v1alpha1.DriverBundle) bool { return b.Status.Digest == first.String() })
			require.Equal(t, c.ready, condition(b, v1alpha1.ConditionReady), "nodes pull its images from the mirror")
			told := message(b, v1alpha1.ConditionReady)
			require.Contains(t, told, fromTheCopy)
			require.Contains(t, told, c.text)
			require.Equal(t, "True Succeeded", condition(b, v1alpha1.ConditionVerified))
			require.Equal(t, []string{"release"}, b.Status.VerifiedBy)
			require.EqualValues(t, 5, b.Status.Matrix.Serial)
			require.EqualValues(t, 6, b.Status.HighestSerial, "it does not go back")

			w.uninstalled()
			again := w.poke()
			require.Equal(t, first.String(), again.Status.Digest)
			require.Equal(t, "True Succeeded", condition(again, v1alpha1.ConditionVerified), "its copy is there, though no revision is")
			require.Equal(t, told, message(again, v1alpha1.ConditionReady), "the same each time")
			if name == "it is pruned" {
				w.publish(mirror.Bundle{Seed: 1, Serial: 5}, w.key)
				again = w.poke()
				require.Equal(t, "True Succeeded", condition(again, v1alpha1.ConditionReady))
				require.Equal(t, first.String(), again.Status.Digest)
			}
		})
	}
}

// A mirror that has the root still may have lost what it leads to.
func TestABundleOfWhichTheMirrorHasLostPartsIsTakenFromItsCopy(t *testing.T) {
	w := newWorld(t)
	first, _ := w.upgraded()
	owned := w.copies(first)
	w.reg.Fail(registry.Fault{Match: registry.Match{Method: "GET", Path: "/manifests/sha256:"}, After: 3, Status: 404})
	w.goBack(first)
	b := w.until("taken", func(b *v1alpha1.DriverBundle) bool { return b.Status.Digest == first.String() })
	require.Contains(t, message(b, v1alpha1.ConditionReady), fromTheCopy)
	require.NotContains(t, message(b, v1alpha1.ConditionReady), "stays in use")
	require.NotContains(t, message(b, v1alpha1.ConditionReady), "read "+w.at(first), "that is there")
	require.Equal(t, owned, w.copies(first), "its DriverBundle owns it already")
}

// copies are the parts of the copies of a digest.
func (w *world) copies(of image.Digest) []corev1.ConfigMap {
	w.t.Helper()
	var list corev1.ConfigMapList
	require.NoError(w.t, w.List(w.t.Context(), &list, client.InNamespace(w.ns), client.MatchingLabels{revision.LabelCopy: of.Hex()[:63]}))
	require.NotEmpty(w.t, list.Items)
	return list.Items
}

// The copy is held against the policies of now, whatever it was accepted by.
func TestACopyIsRefusedAsTheMirrorsWouldBe(t *testing.T) {
	w := newWorld(t)
	_, strangers := mirror.NewKey(t)
	first, second := w.upgraded()
	refused := func(what, want string) {
		t.Helper()
		b := w.poke()
		require.Equal(t, second.String(), b.Status.Digest, what)
		require.Contains(t, condition(b, v1alpha1.ConditionReady), "False ", what)
		require.Contains(t, message(b, v1alpha1.ConditionReady), want, what)
		require.NotContains(t, message(b, v1alpha1.ConditionReady), fromTheCopy, what)
	}
	const copied = "nor is it accepted from the copy in the cluster: "
	trusts := func(change func(*v1alpha1.TrustPolicy)) {
		t.Helper()
		w.change(func(b *v1alpha1.DriverBundle) {
			b.Spec.Trust = &v1alpha1.TrustPolicy{Keys: []v1alpha1.TrustKey{{ID: "a", PublicKey: w.public}}}
			change(b.Spec.Trust)
		})
	}

	signatures := registry.Fault{Match: registry.Match{Path: "/manifests/sha256-"}, Status: 404}
	w.reg.Fail(signatures)
	w.goBack(first)
	refused("the mirror has it, and no signature", "no signature")

	w.reg.Heal()
	w.repo.Prune(t, first)
	w.trustConfigMap(map[string]string{"stranger.pub": strangers})
	refused("its key was withdrawn", copied+"accept "+w.at(first))
	trusts(func(p *v1alpha1.TrustPolicy) { p.RevokedDigests = []string{first.String()} })
	refused("its digest is revoked", "revoked this digest")

	// The digest of another repository.
	w.change(func(b *v1alpha1.DriverBundle) { b.Spec.Reference = w.reg.Host + "/vdo/elsewhere@" + first.String() })
	refused("in a repository that nothing was accepted from", "404 Not Found")
	require.NotContains(t, message(w.get(), v1alpha1.ConditionReady), copied)

	w.goBack(first)
	trusts(func(*v1alpha1.TrustPolicy) {})
	w.until("taken, as all of this is over", func(b *v1alpha1.DriverBundle) bool { return b.Status.Digest == first.String() })
}
