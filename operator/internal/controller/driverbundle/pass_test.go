package driverbundle

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/store"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

const (
	good      = "True Succeeded"
	untrusted = "False Untrusted"
	isFresh   = v1alpha1.ConditionFresh
	ready     = v1alpha1.ConditionReady
)

func TestAGoodBundleIsAcceptedAndListed(t *testing.T) {
	w := newWorld(t)
	root := w.accepted(mirror.Bundle{Seed: 1, Serial: 7})
	b := w.get()
	requireIs(t, b, good, good, root, root.String())
	require.Equal(t, good, status(b, isFresh))
	require.Equal(t, []string{w.reg.Host + "/vdo/drivers", "1", "1.31, 1.32, 1.33"},
		[]string{b.Status.Repository, b.Status.Tag, b.Status.Kubernetes})
	require.Equal(t, []string{"release"}, b.Status.VerifiedBy)
	require.Equal(t, []int64{7, 7}, []int64{b.Status.Matrix.Serial, b.Status.HighestSerial})
	require.Equal(t, []v1alpha1.ReleaseStatus{{
		Driver: "csi", Version: "3.5.1", State: "lts", Kubernetes: "1.31 to 1.33",
		VSphere: b.Status.Releases[0].VSphere,
	}}, b.Status.Releases)
	require.NotNil(t, b.Status.AcceptedAt)
	require.Equal(t, b.Status, w.pass().Status, "a pass that finds nothing new changes nothing")

	second := w.publish(mirror.Bundle{Seed: 2, Serial: 8}, w.key)
	requireIs(t, w.pass(), good, good, second)
	w.pass()
	require.Equal(t, w.parts(), w.parts(second), "old copies go with the next pass")
	require.Empty(t, w.parts()[0].OwnerReferences, "else it would go with the DriverBundle while drivers run")

	require.NoError(t, w.Delete(t.Context(), &w.parts()[0]))
	requireIs(t, w.pass(), good, good, second)
	require.Len(t, w.parts(second), 1, "a copy that was lost is made again")
	require.NoError(t, w.Delete(t.Context(), &w.parts()[0]))
	w.now = b.Status.Matrix.Expires.Time
	b = w.pass()
	requireIs(t, b, good, good, second)
	require.Equal(t, "False Expired", status(b, isFresh), "likewise, though it has expired")

	r := &Reconciler{Reader: w.Client, Store: w.store, Floor: w.floor, Timeout: w.limit, Now: time.Now}
	must.Have(r.Pass(t.Context(), b))(t)
	require.Len(t, w.parts(second), 1, "a pass with an old status removes no copy of what is accepted")
}

func expire(d *matrix.Document) { d.Expires = time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC) }

func TestARefusedBundleLeavesTheAcceptedOneServing(t *testing.T) {
	w := newWorld(t)
	first := w.accepted(mirror.Bundle{Seed: 1, Serial: 5})
	for _, c := range []struct {
		bundle       mirror.Bundle
		signed       bool
		reason, text string
	}{
		{mirror.Bundle{Seed: 2, Serial: 6}, false, "Untrusted", "it has no signature"},
		{mirror.Bundle{Seed: 3, Serial: 4}, true, "Superseded", "its serial 4 is lower than 5"},
		{mirror.Bundle{Seed: 4, Serial: 6, Edit: expire}, true, "Expired", "it expired at 2021-01-01"},
		{mirror.Bundle{Seed: 5, Serial: 6, Matrix: []byte("a: b\n")}, true, "InvalidInput", "matrix of the bundle"},
	} {
		root := w.publish(c.bundle, map[bool][]*trust.Signer{true: {w.key}}[c.signed]...)
		b := w.pass()
		requireIs(t, b, "False "+c.reason, good, first,
			c.text, root.String(), "the bundle accepted before, "+first.String()+", stays in use")
		consent := "accept this one: spec.acceptOlder: " + root.String()
		stale := c.reason == "Superseded" || c.reason == "Expired"
		require.Equal(t, stale, strings.Contains(message(b, ready), consent))
		require.NotContains(t, message(b, ready), "delete secret", "the accepted one has that serial")
		require.Equal(t, good, status(b, isFresh))
		require.EqualValues(t, 5, b.Status.HighestSerial)
		contents := must.Have(store.New(store.Options{Client: w.Client}).Contents(t.Context(), b))(t)
		require.EqualValues(t, 5, contents.Lock.Matrix.Serial)
	}
	older := w.publish(mirror.Bundle{Seed: 6, Serial: 4, Releases: []string{"csi@3.5.0"}}, w.key)
	requireIs(t, w.pass(func(b *v1alpha1.DriverBundle) { b.Spec.AcceptOlder = older.String() }), good, good, older)
	requireIs(t, w.pass(func(b *v1alpha1.DriverBundle) { b.Spec.AcceptOlder = "" }), good, good, older)
	lower := w.publish(mirror.Bundle{Seed: 7, Serial: 6, Releases: []string{"csi@3.4.0"}}, w.key)
	last := w.pass()
	requireIs(t, last, good, good, lower)
	require.EqualValues(t, 6, last.Status.Matrix.Serial)
}

func TestTheAcceptedBundleOutlivesTheMirrorAndARestart(t *testing.T) {
	w := newWorld(t)
	root := w.accepted(mirror.Bundle{Seed: 1, Serial: 5})
	w.reg.Fail(registry.Fault{Match: registry.Match{Path: "/manifests/"}, Status: 404})
	b := w.pass()
	requireIs(t, b, "False NotFound", good, root)
	require.Equal(t, "True NotFound", status(b, v1alpha1.ConditionStalled))
	w.reg.Heal()
	requireIs(t, w.pass(), good, good, root)
	require.NoError(t, w.reg.Close())
	for range 2 {
		b := w.pass()
		requireIs(t, b, good, good, root) // for two minutes
		require.Equal(t, "True Unreachable", status(b, v1alpha1.ConditionReconciling))
		require.Equal(t, good, status(b, isFresh))
		w.restart()
	}
	require.NoError(t, w.Delete(t.Context(), &w.parts()[0]))
	requireIs(t, w.pass(), good, "Unknown NotFound", root)
}

// A mirror may answer so that it is never silent for long, and never done.
func TestASlowMirrorIsGivenUp(t *testing.T) {
	w := newWorld(t)
	w.publish(mirror.Bundle{Seed: 1})
	w.bundle()
	never := make(chan struct{})
	defer close(never)
	w.reg.Fail(registry.Fault{Match: registry.Match{Path: "/manifests/"}, Wait: never})
	w.limit, w.store = 50*time.Millisecond, store.New(store.Options{Client: w.Client, Timeout: time.Hour})
	began := time.Now()
	requireIs(t, w.pass(), "False Unreachable", "-", image.Digest{}, "does not answer in time")
	require.Less(t, time.Since(began), time.Minute, "by the limit of a pass")
}

// Whoever installs holds what the status speaks of against the policies of now.
func TestAChangedPolicyIsHeldAgainstTheAcceptedBundle(t *testing.T) {
	w := newWorld(t)
	root := w.accepted(mirror.Bundle{Seed: 1})
	version := func() string {
		return must.Have(source.PolicyVersion(t.Context(), w.Client, w.get(), ""))(t)
	}
	before := version()
	require.Equal(t, before, w.get().Status.VerifiedPolicy)

	second, public := mirror.NewKey(t)
	w.put(v1alpha1.DefaultTrustName, "second.pub", public)
	b := w.pass()
	requireIs(t, b, untrusted, untrusted, root)
	require.Contains(t, message(b, v1alpha1.ConditionVerified), "stays in use only where it is healthy")
	trusted := func() fault.Reason { return fault.ReasonOf(w.r.Trusted(t.Context(), w.get())) }
	require.Equal(t, fault.Untrusted, trusted())
	require.NotEqual(t, before, b.Status.VerifiedPolicy)
	require.Equal(t, version(), b.Status.VerifiedPolicy)
	w.repo.Sign(t, root, second)
	require.Equal(t, []string{"second"}, w.pass().Status.VerifiedBy)
	require.Empty(t, trusted())

	policy := &corev1.ConfigMap{ObjectMeta: w.named(v1alpha1.DefaultTrustName)}
	require.NoError(t, w.Delete(t.Context(), policy))
	b = w.pass()
	requireIs(t, b, "False NotFound", "Unknown NotFound", root, "kubectl -n vdo create configmap vdo-trust")
	require.Equal(t, fault.NotFound, trusted(), "it cannot be checked")
	require.Contains(t, message(b, v1alpha1.ConditionVerified), "the trust policy cannot be read")
	require.Empty(t, b.Status.VerifiedPolicy)
}

// A key may expire in peace, but not be revoked; and suspended means that the mirror is left alone,
// not that revoked keys count.
func TestARevokedDigestAndAnExpiringKey(t *testing.T) {
	w := newWorld(t)
	root := w.publish(mirror.Bundle{Seed: 1}, w.key)
	w.bundle()
	until := time.Now().Add(time.Hour)
	b := w.pass(func(b *v1alpha1.DriverBundle) {
		key := v1alpha1.TrustKey{ID: "a", PublicKey: w.public, NotAfter: &metav1.Time{Time: until}}
		b.Spec.Trust = &v1alpha1.TrustPolicy{Keys: []v1alpha1.TrustKey{key}}
	})
	requireIs(t, b, good, good, root)
	w.now = until.Add(time.Hour)
	requireIs(t, w.pass(), good, good, root) // it was in force at the acceptance

	second := w.publish(mirror.Bundle{Seed: 2})
	requireIs(t, w.pass(), untrusted, good, root)
	w.reg.ForgetRequests()
	b = w.pass(func(b *v1alpha1.DriverBundle) {
		b.Spec.Suspend, b.Spec.Trust.RevokedDigests = true, []string{root.String()}
	})
	requireIs(t, b, untrusted, untrusted, root) // Ready stays as it was
	require.Empty(t, w.reg.Requests())
	require.Contains(t, message(b, v1alpha1.ConditionVerified), "revoked this digest")
	b = w.pass(func(b *v1alpha1.DriverBundle) { b.Spec.Suspend = false })
	requireIs(t, b, untrusted, untrusted, root, second.String())
}

// Whoever writes a DriverBundle names the keys that it trusts; the operator's own floor is not theirs to
// lower.
func TestADriverBundleCannotLowerTheTrustFloor(t *testing.T) {
	const floor = "the operator's --trust-floor: "
	w := newWorld(t)
	first := w.accepted(mirror.Bundle{Seed: 1, Serial: 7})
	own, sites := mirror.NewKey(t)
	key := must.Have(trust.NewKey(trust.Entry{ID: "site"}, []byte(sites)))(t)
	w.floor = must.Have(trust.NewPolicy(1, key))(t)
	requireIs(t, w.pass(), untrusted, untrusted, first, floor)
	w.publish(mirror.Bundle{Seed: 2, Serial: 8}, w.key)
	requireIs(t, w.pass(), untrusted, untrusted, first, floor)
	w.publish(mirror.Bundle{Seed: 3, Serial: 8}, own)
	b := w.pass()
	requireIs(t, b, untrusted, untrusted, first)
	require.NotContains(t, message(b, ready), floor, "it is the DriverBundle's own policy")
	both := w.publish(mirror.Bundle{Seed: 4, Serial: 8}, w.key, own)
	b = w.pass()
	requireIs(t, b, good, good, both)
	require.Equal(t, []string{"release"}, b.Status.VerifiedBy)
}

// What was accepted is remembered by the repository.
func TestToDeleteADriverBundleDoesNotOpenTheWayToOlderOnes(t *testing.T) {
	w := newWorld(t)
	w.accepted(mirror.Bundle{Seed: 1, Serial: 5})
	require.NoError(t, w.Delete(t.Context(), w.get()))
	w.publish(mirror.Bundle{Seed: 4})
	w.bundle()
	requireIs(t, w.pass(), untrusted, untrusted, image.Digest{})
	older := w.publish(mirror.Bundle{Seed: 2, Serial: 4}, w.key)
	requireIs(t, w.pass(), "False Superseded", "-", image.Digest{}, "its serial 4 is lower than 5")
	requireIs(t, w.pass(func(b *v1alpha1.DriverBundle) { b.Spec.AcceptOlder = older.String() }), good, good, older)

	// A wrong serial blocks newer bundles until the administrator deletes the Secret, as the message says.
	newer := w.publish(mirror.Bundle{Seed: 3, Serial: 6}, w.key)
	serials := func(text string) *corev1.Secret {
		secret := &corev1.Secret{}
		w.read(secret, v1alpha1.SerialsName)
		for key := range secret.Data {
			secret.Data[key] = []byte(text)
		}
		require.NoError(t, w.Update(t.Context(), secret))
		return secret
	}
	serials("five") // is not taken for none
	requireIs(t, w.pass(), "False Corrupt", good, older)
	secret := serials("9000000000000000000")
	require.Contains(t, message(w.pass(), isFresh), ", accepted by spec.acceptOlder")
	another := image.DigestOf([]byte("another")).String()
	b := w.pass(func(b *v1alpha1.DriverBundle) { b.Spec.AcceptOlder = another })
	requireIs(t, b, "False Superseded", good, older)
	for _, typ := range []string{ready, isFresh} {
		require.Contains(t, message(b, typ), "which Secret vdo/vdo-highest-serials has")
		require.Contains(t, message(b, typ), "if the higher serial is wrong: kubectl delete secret -n vdo vdo-highest-serials")
	}
	require.NoError(t, w.Delete(t.Context(), secret))
	b = w.pass()
	requireIs(t, b, good, good, newer)
	require.EqualValues(t, 6, b.Status.HighestSerial)
}

// A repository has serials of its own: those of the one before neither count in it nor are recorded there.
func TestSerialsDoNotCountInAnotherRepository(t *testing.T) {
	w := newWorld(t)
	first := w.accepted(mirror.Bundle{Seed: 1, Serial: 100})
	moves := func(to string, bundle mirror.Bundle, by ...*trust.Signer) (*v1alpha1.DriverBundle, image.Digest) {
		w.repo = mirror.New(t, w.reg, to)
		root := w.publish(bundle, by...)
		return w.pass(func(b *v1alpha1.DriverBundle) { b.Spec.Reference = w.repo.Reference("1") }), root
	}
	b, _ := moves("vdo/moved", mirror.Bundle{Seed: 2, Serial: 5})
	requireIs(t, b, untrusted, good, first)
	b, _ = moves("vdo/moved", mirror.Bundle{Seed: 6, Serial: 5, Edit: expire}, w.key)
	requireIs(t, b, "False Expired", good, first)
	require.NotContains(t, message(b, ready), "delete secret")
	b, second := moves("vdo/moved", mirror.Bundle{Seed: 3, Serial: 5}, w.key)
	requireIs(t, b, good, good, second)
	b, third := moves("vdo/moved", mirror.Bundle{Seed: 4, Serial: 6}, w.key)
	requireIs(t, b, good, good, third)
	require.EqualValues(t, 6, b.Status.HighestSerial)

	b, _ = moves("vdo/drivers", mirror.Bundle{Seed: 5, Serial: 99}, w.key)
	requireIs(t, b, "False Superseded", good, third, "its serial 99 is lower than 100")
	require.Equal(t, good, status(b, isFresh), "the accepted bundle is of the other repository")
	b, fourth := moves("vdo/drivers", mirror.Bundle{Seed: 7, Serial: 100}, w.key)
	requireIs(t, b, good, good, fourth)
	// Its record may be wrong, whatever was accepted.
	b, _ = moves("vdo/moved", mirror.Bundle{Seed: 2, Serial: 5}, w.key)
	requireIs(t, b, "False Superseded", good, fourth, "its serial 5 is lower than 6", "delete secret")
}

// upgraded accepts two bundles, one after the other, of which the first was installed from.
func upgraded(t *testing.T) (w *world, first, second image.Digest) {
	w = newWorld(t)
	first = w.accepted(mirror.Bundle{Seed: 1, Serial: 5})
	w.keeps = []string{w.at(first)}
	second = w.publish(mirror.Bundle{Seed: 2, Serial: 6}, w.key)
	requireIs(t, w.pass(), good, good, second)
	require.Len(t, w.parts(first), 1)
	return w, first, second
}

const (
	fromTheCopy = "the bundle is taken from the copy in the cluster"
	notFromCopy = "nor is it accepted from the copy in the cluster: "
)

func TestABundleThatWasInstalledFromIsTakenFromItsCopyWithoutTheMirror(t *testing.T) {
	for name, c := range map[string]struct {
		gone        func(w *world, first image.Digest)
		ready, text string
	}{
		"it is pruned":   {func(w *world, first image.Digest) { w.repo.Prune(w.t, first) }, "False NotFound", "404 Not Found"},
		"it has stopped": {func(w *world, _ image.Digest) { require.NoError(w.t, w.reg.Close()) }, "False Unreachable", "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			w, first, second := upgraded(t)
			c.gone(w, first)
			w.pass(func(b *v1alpha1.DriverBundle) { b.Spec.Reference = w.at(first) })
			w.now = time.Now().Add(3 * time.Minute) // a fault has two to pass
			requireIs(t, w.pass(), c.ready, good, second, notFromCopy, "its serial 5 is lower than 6", c.text)

			b := w.pass(func(b *v1alpha1.DriverBundle) { b.Spec.AcceptOlder = first.String() })
			requireIs(t, b, c.ready, good, first, fromTheCopy, c.text) // nodes pull its images from the mirror
			require.Equal(t, []string{"release"}, b.Status.VerifiedBy)
			require.EqualValues(t, 5, b.Status.Matrix.Serial)
			require.EqualValues(t, 6, b.Status.HighestSerial, "it does not go back")

			require.Equal(t, message(b, ready), message(w.pass(), ready), "the same each time")
			if name == "it is pruned" {
				w.publish(mirror.Bundle{Seed: 1, Serial: 5}, w.key)
				requireIs(t, w.pass(), good, good, first)
			}
		})
	}
}

// A mirror that has the root still may have lost what it leads to.
func TestABundleOfWhichTheMirrorHasLostPartsIsTakenFromItsCopy(t *testing.T) {
	w, first, _ := upgraded(t)
	w.reg.Fail(registry.Fault{Match: registry.Match{Method: "GET", Path: "/manifests/sha256:"}, After: 3, Status: 404})
	b := w.pass(func(b *v1alpha1.DriverBundle) { b.Spec.Reference, b.Spec.AcceptOlder = w.at(first), first.String() })
	requireIs(t, b, "False Incomplete", good, first, fromTheCopy)
	require.NotContains(t, message(b, ready), "stays in use")
}

// The copy is held against the policies of now, whatever it was accepted by.
func TestACopyIsRefusedAsTheMirrorsWouldBe(t *testing.T) {
	w, first, second := upgraded(t)
	_, strangers := mirror.NewKey(t)
	refused := func(verified string, texts ...string) {
		b := w.pass(func(b *v1alpha1.DriverBundle) { b.Spec.AcceptOlder = first.String() })
		requireIs(t, b, status(b, ready), verified, second, texts...)
		require.NotEqual(t, good, status(b, ready))
		require.NotContains(t, message(b, ready), fromTheCopy)
	}
	w.pass(func(b *v1alpha1.DriverBundle) { b.Spec.Reference = w.reg.Host + "/vdo/elsewhere@" + first.String() })
	refused(good, "404 Not Found")
	require.NotContains(t, message(w.get(), ready), notFromCopy, "nothing was accepted from that repository")

	w.reg.Fail(registry.Fault{Match: registry.Match{Path: "/manifests/sha256-"}, Status: 404})
	w.pass(func(b *v1alpha1.DriverBundle) { b.Spec.Reference = w.at(first) })
	refused(good, "no signature") // the mirror has it
	w.reg.Heal()
	w.repo.Prune(t, first)
	w.put(v1alpha1.DefaultTrustName, "stranger.pub", strangers)
	refused(untrusted, notFromCopy+"accept "+w.at(first))
	w.put(v1alpha1.DefaultTrustName, "release.pub", w.public)
	requireIs(t, w.pass(), "False NotFound", good, first, fromTheCopy)
}
