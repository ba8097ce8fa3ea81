package model

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// life is how many writes an operator lives for: at most in `make soak`, and where what kills it is not looked at.
const life = 7

// mostLives bounds an installation, an upgrade, a removal.
const mostLives = 400

// killedAllTheWay has the operator die after every so many writes of an installation, of an
// upgrade that fails and is gone back from, of the same upgrade once it can succeed, and of a
// removal, and another one without any memory go on. Each of them dies once the API server
// has taken the write, and gets nothing through any more. Every invariant holds after each
// death, and it converges. With lives of one write, there is no place between two writes at
// which none was killed.
func killedAllTheWay(t *testing.T, s *site, each int) {
	t.Helper()
	start := time.Now()
	w, err := enact(context.Background(), s, func(w *world) {
		step := func(name string, do func()) {
			_, writes := w.wire.written(0)
			deaths, repeated := w.wire.deaths, w.wire.repeated
			do()
			_, now := w.wire.written(0)
			writes, deaths, repeated = now-writes, w.wire.deaths-deaths, w.wire.repeated-repeated
			t.Logf("%s: killed after %d of %d writes, of which %d only repeat what the one before was killed after", name, deaths, writes, repeated)
			if each == 1 {
				require.Equal(t, writes, deaths+repeated, name)
			}
			require.Greater(t, deaths*each, 10, name)
		}
		step("installation", func() { w.lives(each) })
		w.peace(true)
		if !tier.Open(tier.All) {
			return
		}
		failing := ""
		step("an upgrade that is gone back from", func() { failing = w.goesBack(each) })
		w.peace(false)
		step("the upgrade once more", func() { w.succeeds(each, failing) })
		w.peace(true)
		w.drop(w.vdoConfig("m-site"))
		step("removal", func() { w.lives(each) })
		w.removed()
	})
	require.NoError(t, err, "VDO_TEST_WRITES=%d", each)
	t.Logf("lives of %d writes: %d deaths, %s", each, w.wire.deaths, time.Since(start).Round(time.Millisecond))
}

// lives does passes until no life has anything left to write, and has not in some minutes
// more, which is longer than anything here is waited for but a deadline.
func (w *world) lives(each int) {
	w.wire.live(each)
	defer w.wire.live(0)
	idle := 0
	for range mostLives {
		did := w.play()
		_, before := w.wire.written(0)
		deaths := w.wire.deaths
		if w.pass(passDrivers); len(w.since(before)) == 0 { // else the others have nothing to do
			w.pass(passBundle, passVCenter)
		}
		w.deaths += w.wire.deaths - deaths
		if len(w.since(before)) > 0 || did {
			idle = 0
			w.now = w.now.Add(time.Duration(each) * 4 * time.Second) // a step takes as long whatever a life is
			continue
		}
		if idle++; idle > 3 {
			return
		}
		w.now = w.now.Add(time.Minute)
	}
	writes, n := w.wire.written(0)
	w.fail("it converges", "after %d passes it still writes, at last:\n%s", mostLives, lines(writes[max(0, n-20):]))
}

// since are the writes from the n-th on that change something. An operator that starts asks the
// vCenter, and notes when.
func (w *world) since(n int) []write {
	writes, _ := w.wire.written(n)
	return slices.DeleteFunc(writes, func(x write) bool { return strings.Contains(x.path, "/vspherecloudconfigs/") })
}

// goesBack upgrades to pods that fall over, and returns the revision of the storage driver that is gone back
// from once the deadline is over: each workload is then what it was, and so is what is current.
func (w *world) goesBack(each int) (failing string) {
	v := w.config()
	v.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{HealthDeadline: metav1.Duration{Duration: 5 * time.Minute}}
	w.must(w.Update(w.ctx, v))
	was, before := current(v), w.templates()
	w.falls, w.back = func(_ workload, template string) bool { return !before[template] }, true
	w.retag(bundleNewer)
	w.lives(each) // the deadline passes meanwhile: how long it has waited is written now and then
	v = w.config()
	failing = first(v.Status.Revisions, func(r v1alpha1.RevisionStatus) bool {
		return r.Group == "csi" && r.Outcome == string(revision.RolledBack)
	}).Name
	if now := current(v); now.Name != was.Name || now.Outcome != string(revision.Healthy) || failing == "" {
		w.fail("what fails is gone back from", "%s is current, of %s and %q: %s", now.Name, was.Name, failing,
			describe(v.Status.Conditions))
	}
	for template := range w.templates() {
		if !before[template] {
			w.fail("what fails is gone back from", "a workload is not what it was before")
		}
	}
	w.falls, w.back = nil, false
	return failing
}

// succeeds has a revision that failed tried again, now that its pods run.
func (w *world) succeeds(each int, failing string) {
	v := w.config()
	v.Annotations = map[string]string{v1alpha1.AnnotationRetry: v.Status.Candidate.Name}
	w.must(w.Update(w.ctx, v))
	w.lives(each)
	w.now = w.now.Add(interval) // it has to stay well for a while before it counts
	w.lives(each)
	v = w.config()
	if now := current(v); now.Name != failing || now.Outcome != string(revision.Healthy) {
		w.fail("an upgrade is tried again", "%s is current: %s", now.Name, describe(v.Status.Conditions))
	}
}

func (w *world) config() *v1alpha1.VDOConfig {
	v := &v1alpha1.VDOConfig{}
	w.must(w.Get(w.ctx, client.ObjectKeyFromObject(w.vdoConfig("m-site")), v))
	return v
}

// current is the storage driver's current revision.
func current(v *v1alpha1.VDOConfig) v1alpha1.RevisionStatus {
	return first(v.Status.Revisions, func(r v1alpha1.RevisionStatus) bool { return r.Current && r.Group == "csi" })
}

// templates are what pods are made from.
func (w *world) templates() map[string]bool {
	all := map[string]bool{}
	for _, x := range w.workloads() {
		all[text(x.template)] = true
	}
	return all
}

// removed requires that nothing that runs, and none of the essentials, is left of a VDOConfig
// that was deleted.
func (w *world) removed() {
	var v v1alpha1.VDOConfig
	err := w.Get(w.ctx, client.ObjectKeyFromObject(w.vdoConfig("m-site")), &v)
	if !apierrors.IsNotFound(err) {
		w.fail("what is deleted goes", "the VDOConfig is there: %v %s", err, describe(v.Status.Conditions))
	}
	for _, x := range w.workloads() {
		w.fail("what is deleted goes", "%s is there", x.key())
	}
	if left := w.left(); len(left) > 0 {
		w.fail("what is deleted goes", "%v are there", left)
	}
}
