package vdoconfig_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// withoutRecords deletes both records, has another operator look a few times, and requires that
// nothing was begun, that the revision in force is the same, and that it was told.
func (w *world) withoutRecords(v *v1alpha1.VDOConfig, when string) {
	w.t.Helper()
	was, runs, before := v.Status.Revision, w.image(&appsv1.DaemonSet{}), w.generations()
	w.dropRecords(v)
	w.restart()
	w.events.told = nil
	for range again() {
		w.look(v)
		require.Equal(w.t, was, v.Status.Revision, "%s\n%s\n%s", when, w.events.all(), describe(v))
	}
	require.Equal(w.t, runs, w.image(&appsv1.DaemonSet{}), when)
	require.Equal(w.t, before, w.generations(), "%s: nothing was changed", when)
	require.NotContains(w.t, w.events.all(), "RevisionStarted", when)
	require.NotContains(w.t, w.events.all(), "RolledBack", "%s: it became nothing new of any", when)
	require.Equal(w.t, 1, strings.Count(w.events.all(), "NotFound: ConfigMaps vdo-inventory-site and vdo-inventory-copy-site, the records of what is installed, were deleted"), w.events.all())
	require.NotEmpty(w.t, revisionNamed(v, was).Reason, when)
	require.NotZero(w.t, w.inventory(v).Len(), "%s: what is installed is taken over", when)
	cur, ok := w.inventory(v).Memory().Revisions.InForce()
	require.True(w.t, ok, when)
	require.NotEmpty(w.t, cur.Seal, when)
	require.NotEmpty(w.t, w.recorded(v)[inventory.SealKey], when)
}

// Who deletes both records has no upgrade begin that waits: for a window, be it to another
// release or to the same one built anew, for what changes just now, or for the nodes that have
// it first.
func TestAnUpgradeThatWaitsGoesOnWaitingWithoutTheRecords(t *testing.T) {
	tier.Later(t, tier.All) // TestWhatTheStatusKnowsOfALostHistory shows what is decided
	w, v := installed(t)
	was := v.Status.Revision
	closed := time.Now().UTC().Add(12*time.Hour).Format("4 15") + " * * *"
	w.change(v, func() {
		v.Spec.UpgradePolicy = canary(time.Hour, time.Hour)
		v.Spec.UpgradePolicy.Windows = []v1alpha1.UpgradeWindow{{Schedule: closed, Duration: metav1.Duration{Duration: time.Hour}}}
		v.Spec.UpgradePolicy.Canary.NodeSelector.MatchLabels = map[string]string{"role": "canary"}
	})
	w.offer(nextDigest, newerPair()...)
	w.look(v)
	require.Equal(t, "Interlocked", v.Status.Candidate.Reason, describe(v))
	w.withoutRecords(v, "interlocked")
	require.Equal(t, "Interlocked", v.Status.Candidate.Reason, describe(v))
	require.Contains(t, v.Status.Candidate.Message, "vCenter vc-one is of version 8.0.3 since", "since when is not known any more")

	_, w.store.broken, _ = strings.Cut(v.Status.Bundle, "@")
	w.dropRecords(v)
	w.restart()
	w.events.told = nil
	for range again() {
		w.look(v)
		require.Equal(t, "Interlocked", v.Status.Candidate.Reason, describe(v))
		require.NotEqual(t, "Absent", cond(t, v, "Upgraded").Reason, describe(v))
	}
	require.Equal(t, 1, strings.Count(w.events.all(), "the records of what is installed, were deleted"), w.events.all())
	require.Equal(t, was, v.Status.Revision)
	kept, _ := w.inventory(v).Memory().Revisions.InForce()
	require.Equal(t, was, kept.Name(), "what was recalled is remembered, though its bundle cannot be read")
	w.ahead += 11 * time.Minute
	w.look(v)
	require.NotContains(t, v.Status.Candidate.Message, "vCenter", "it ends, though the bundle cannot be read")
	require.False(t, isTrue(v, "Upgraded"), describe(v))
	w.store.broken = ""
	w.look(v)
	kept, _ = w.inventory(v).Memory().Revisions.InForce()
	require.NotEmpty(t, kept.Seal, "it is sealed once its bundle can be read")

	w.change(v, func() { v.Spec.UpgradePolicy.Canary = canary(time.Hour, time.Hour).Canary })
	w.look(v)
	waits := func(when string) {
		t.Helper()
		require.Equal(t, "WindowClosed", v.Status.Candidate.Reason, "%s\n%s", when, describe(v))
		require.Equal(t, "WindowClosed", cond(t, v, "Upgraded").Reason, when)
		require.Contains(t, revisionNamed(v, was).Reason, "the records of what is installed were deleted", when)
	}
	w.withoutRecords(v, "another release")
	waits("another release")

	same := "sha256:" + strings.Repeat("8", 64)
	w.offer(same, strings.Fields(pair)...)
	w.store.of[same] = rebuilt(t, strings.Fields(pair)...)
	w.look(v)
	waits("built anew, before")
	w.withoutRecords(v, "built anew")
	waits("built anew")

	before := w.nodePods()
	w.offer(nextDigest, newerPair()...)
	w.change(v, func() { v.Spec.UpgradePolicy.Windows = nil })
	w.advance(v, "the chosen node has it", func() bool { return v.Status.Canary != nil && v.Status.Canary.HealthySince != nil })
	w.withoutRecords(v, "chosen nodes first")
	require.NotNil(t, v.Status.Canary, describe(v))
	require.Equal(t, before["worker-2"], w.nodePods()["worker-2"], "the others wait")
	require.Equal(t, before["cp-1"], w.nodePods()["cp-1"], "the others wait")
	w.change(v, func() { v.Spec.UpgradePolicy.Canary.Soak = metav1.Duration{Duration: 2 * time.Minute} })
	w.advance(v, "it is ended", func() bool {
		return revisionNamed(v, v.Status.Revision).Outcome == string(revision.Healthy) && driver(v, "csi").Version == "3.7.3"
	})
}

// Who deletes both records has nothing tried again that failed, though somebody had asked for it
// once and that was done. It is tried where somebody asks anew.
func TestAFailedUpgradeIsNotTriedAgainWithoutTheRecords(t *testing.T) {
	tier.Later(t, tier.All) // likewise
	w, v := installed(t)
	was := v.Status.Revision
	w.advance(v, "what the test before has left is healthy again", func() bool { return revisionNamed(v, was).Outcome == string(revision.Healthy) })
	w.crash()
	w.change(v, func() {
		v.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{HealthDeadline: metav1.Duration{Duration: 2 * time.Minute}}
	})
	w.offer(nextDigest, newerPair()...)
	failing := ""
	w.advance(v, "it is gone back from", func() bool {
		if v.Status.Revision != was {
			failing = v.Status.Revision
		}
		return failing != "" && v.Status.Revision == was && isTrue(v, "CSIReady") && revisionNamed(v, was).Outcome == string(revision.Healthy)
	})
	failed := revisionNamed(v, failing)
	refused := func(when string) {
		t.Helper()
		require.Equal(t, failed.Reason, revisionNamed(v, failing).Reason, when)
		require.Equal(t, string(revision.RolledBack), revisionNamed(v, failing).Outcome, when)
		require.Equal(t, "RolledBack", cond(t, v, "Upgraded").Reason, when)
		require.Contains(t, cond(t, v, "Ready").Message, failing+" failed", when)
		require.Equal(t, failing+" Failed", v.Status.Candidate.Name+" "+v.Status.Candidate.Reason, when)
	}
	refused("before")
	w.withoutRecords(v, "rolled back")
	refused("after")

	w.change(v, func() { v.Annotations = map[string]string{v1alpha1.AnnotationRetry: failing} })
	w.advance(v, "it is tried once more, and gone back from again", func() bool {
		return strings.Contains(w.events.all(), "RevisionStarted: revision "+failing) && v.Status.Revision == was && isTrue(v, "CSIReady") && driver(v, "csi").Version == "3.5.1"
	})
	w.withoutRecords(v, "a wish that was acted on")
	w.change(v, func() { v.Annotations[v1alpha1.AnnotationRetry] = failing + " again" })
	w.look(v)
	require.Contains(t, w.events.all(), "RevisionStarted: revision "+failing, "another one counts")
}
