package vdoconfig

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
)

// shelf has bundles by digest.
type shelf map[string]*opened

func (s shelf) Contents(_ context.Context, b *v1alpha1.DriverBundle) (*bundle.Contents, error) {
	o, ok := s[b.Status.Digest]
	if !ok {
		return nil, because(fault.Unreachable)
	}
	c := *o.contents
	c.Matrix = matrix.Default()
	return &c, nil
}

// row is what a status says of a revision.
func row(number int, digest, releases string, outcome revision.Outcome) v1alpha1.RevisionStatus {
	rev := revision.Revision{Bundle: "mirror.site/vdo@" + digest, Releases: []string{releases}}
	at := metav1.NewTime(time.Date(2026, 8, 1, 12, number, 0, 0, time.UTC))
	return v1alpha1.RevisionStatus{Name: rev.Name(number), Bundle: rev.Bundle, Releases: releases, Outcome: string(outcome), Reason: "as it was", MadeAt: at, Since: at}
}

// Where both records are lost the status holds back what they held back, and puts nothing in
// force that nobody trusts now.
func TestWhatTheStatusKnowsOfALostHistory(t *testing.T) {
	last := row(1, "sha256:last", "csi@3.5.1", revision.Healthy)
	newer := row(2, "sha256:new", "csi@3.7.3", revision.RolledBack)
	for name, c := range map[string]struct {
		rows     []v1alpha1.RevisionStatus
		current  int // of rows; 0: none
		edit     func(g *gatherer)
		inForce  string // its name, "" for none
		outcome  revision.Outcome
		unsealed bool
		action   upgrade.Action // while no window is open
		reason   upgrade.Reason
	}{
		"a first installation":              {edit: func(g *gatherer) { g.config.Status, g.installed = v1alpha1.VDOConfigStatus{}, nil }, action: upgrade.Proceed},
		"somebody else's is taken over":     {edit: func(g *gatherer) { g.config.Status = v1alpha1.VDOConfigStatus{}; csiRuns("3.7.3")(g) }, action: upgrade.Proceed},
		"somebody else's is to be upgraded": {edit: func(g *gatherer) { g.config.Status = v1alpha1.VDOConfigStatus{} }, action: upgrade.Wait, reason: upgrade.WindowClosed},
		"somebody else's is newer":          {edit: func(g *gatherer) { g.config.Status = v1alpha1.VDOConfigStatus{}; csiRuns("3.8.0")(g) }, action: upgrade.Hold, reason: upgrade.DowngradeRefused},
		"a first installation that was killed": {rows: []v1alpha1.RevisionStatus{row(1, "sha256:new", "csi@3.7.3", revision.Progressing)}, current: 1,
			edit: func(g *gatherer) { g.installed = nil }, inForce: row(1, "sha256:new", "csi@3.7.3", "").Name, outcome: revision.Progressing, action: upgrade.Proceed},
		"an upgrade waits": {rows: []v1alpha1.RevisionStatus{last}, current: 1, inForce: last.Name, outcome: revision.Healthy, action: upgrade.Wait, reason: upgrade.WindowClosed},
		"it is built anew": {rows: []v1alpha1.RevisionStatus{last}, current: 1, edit: anew, inForce: last.Name, outcome: revision.Healthy, action: upgrade.Wait, reason: upgrade.WindowClosed},
		"a driver is apart in it": {rows: []v1alpha1.RevisionStatus{last, row(2, "sha256:new", "csi@3.5.1", revision.Healthy)}, current: 2, edit: csiApart,
			inForce: row(2, "sha256:new", "csi@3.5.1", "").Name, outcome: revision.Healthy, action: upgrade.Wait, reason: upgrade.WindowClosed},
		"likewise, and nobody knows what it is": {rows: []v1alpha1.RevisionStatus{last, row(2, "sha256:new", "csi@3.5.1", revision.Healthy)}, current: 2, edit: func(g *gatherer) {
			csiApart(g)
			g.config.Status.Revisions[1].Apart["csi"] = revision.Unknown
		}, inForce: row(2, "sha256:new", "csi@3.5.1", "").Name, outcome: revision.Healthy, action: upgrade.Wait, reason: upgrade.WindowClosed},
		"it has the same of all": {rows: []v1alpha1.RevisionStatus{last}, current: 1, edit: alike, inForce: last.Name, outcome: revision.Healthy, action: upgrade.Proceed},
		"what was cannot be read": {rows: []v1alpha1.RevisionStatus{last}, current: 1, edit: func(g *gatherer) { alike(g); g.Store = shelf{} },
			inForce: last.Name, outcome: revision.Healthy, unsealed: true, action: upgrade.Wait, reason: upgrade.WindowClosed},
		"what was is not trusted now": {rows: []v1alpha1.RevisionStatus{last}, current: 1, edit: func(g *gatherer) { g.Trust = nobody{} },
			inForce: last.Name, outcome: revision.Healthy, unsealed: true, action: upgrade.Wait, reason: upgrade.WindowClosed},
		"an upgrade was gone back from": {rows: []v1alpha1.RevisionStatus{last, newer}, current: 1, inForce: last.Name, outcome: revision.Healthy, action: upgrade.Hold, reason: upgrade.Failed},
		"likewise, after a wish": {rows: []v1alpha1.RevisionStatus{last, newer}, current: 1, edit: func(g *gatherer) {
			g.config.Annotations = map[string]string{v1alpha1.AnnotationRetry: newer.Name + " once more"}
		}, inForce: last.Name, outcome: revision.Healthy, action: upgrade.Hold, reason: upgrade.Failed},
		"one that failed stays": {rows: []v1alpha1.RevisionStatus{last, row(2, "sha256:new", "csi@3.7.3", revision.Failed)}, current: 2, edit: func(g *gatherer) { g.installed[matrix.CSI] = mustVersion("3.7.3") },
			inForce: newer.Name, outcome: revision.Failed, action: upgrade.RollBack, reason: upgrade.Failed},
		"one that was begun is ended": {rows: []v1alpha1.RevisionStatus{last, row(2, "sha256:new", "csi@3.7.3", revision.Progressing)}, current: 2,
			inForce: newer.Name, outcome: revision.Progressing, action: upgrade.Proceed},
		"another one runs": {rows: []v1alpha1.RevisionStatus{last}, current: 1, edit: func(g *gatherer) { g.installed[matrix.CSI] = mustVersion("3.3.1") },
			inForce: row(2, "sha256:last", "csi@3.3.1", "").Name, outcome: revision.Superseded, unsealed: true, action: upgrade.Wait, reason: upgrade.WindowClosed},
		"it was killed after it had begun": {rows: []v1alpha1.RevisionStatus{last}, current: 1, edit: csiRuns("3.7.3"),
			inForce: newer.Name, outcome: revision.Progressing, action: upgrade.Proceed},
		"newer than what is on its way runs": {rows: []v1alpha1.RevisionStatus{row(1, "sha256:last", "csi@3.5.1", revision.Progressing)}, current: 1, edit: csiRuns("3.7.3"),
			inForce: newer.Name, outcome: revision.Progressing, action: upgrade.Proceed},
		"newer than what is on its way runs, and no bundle has it": {rows: []v1alpha1.RevisionStatus{row(1, "sha256:last", "csi@3.5.1", revision.Progressing)}, current: 1, edit: csiRuns("3.6.0"),
			inForce: row(2, "sha256:last", "csi@3.6.0", "").Name, outcome: revision.Superseded, unsealed: true, action: upgrade.Wait, reason: upgrade.WindowClosed},
		"newer than what failed runs": {rows: []v1alpha1.RevisionStatus{row(1, "sha256:new", "csi@3.3.1", revision.Healthy), row(2, "sha256:last", "csi@3.5.1", revision.Failed)}, current: 2, edit: csiRuns("3.7.3"),
			inForce: row(3, "sha256:new", "csi@3.7.3", "").Name, outcome: revision.Progressing, action: upgrade.Proceed},
		"it is being gone back from": {rows: []v1alpha1.RevisionStatus{row(1, "sha256:last", "csi@3.5.1", revision.Progressing), newer}, current: 1, edit: csiRuns("3.7.3"),
			inForce: last.Name, outcome: revision.Progressing, action: upgrade.Hold, reason: upgrade.Failed},
		"newer than what is being gone back from runs": {rows: []v1alpha1.RevisionStatus{row(1, "sha256:last", "csi@3.5.1", revision.Progressing), row(2, "sha256:new", "csi@3.6.0", revision.RolledBack)}, current: 1, edit: csiRuns("3.7.3"),
			inForce: row(3, "sha256:new", "csi@3.7.3", "").Name, outcome: revision.Progressing, action: upgrade.Proceed},
		"it is being gone back from, and there is no way": {rows: []v1alpha1.RevisionStatus{row(1, "sha256:last", "csi@3.5.1", revision.Progressing), newer}, current: 1, edit: func(g *gatherer) {
			csiRuns("3.7.3")(g)
			for i := range g.bundle.matrix.Releases {
				if r := &g.bundle.matrix.Releases[i]; r.ReleaseID.String() == "csi@3.7.3" {
					r.OneWay = "it migrates volumes"
				}
			}
		}, inForce: newer.Name, outcome: revision.Progressing, action: upgrade.Proceed},
		"it failed, and the VDOConfig was mended since": {rows: []v1alpha1.RevisionStatus{last, newer}, current: 1, edit: func(g *gatherer) {
			g.config.Generation, g.config.Status.ObservedGeneration = 3, 2
			g.config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{}
		}, inForce: last.Name, outcome: revision.Healthy, action: upgrade.Wait, reason: upgrade.WindowClosed},
		"no number is as high": {rows: []v1alpha1.RevisionStatus{{Name: "r9223372036854775807-x", Bundle: last.Bundle, Releases: last.Releases, Outcome: last.Outcome}}, current: 1,
			inForce: last.Name, outcome: revision.Superseded, action: upgrade.Wait, reason: upgrade.WindowClosed},
		"no revision is known": {inForce: row(1, "sha256:last", "csi@3.5.1", "").Name, outcome: revision.Superseded, action: upgrade.Wait, reason: upgrade.WindowClosed},
		"its text was cut": {rows: []v1alpha1.RevisionStatus{{Name: last.Name, Bundle: last.Bundle[:20], Releases: last.Releases, Outcome: last.Outcome}}, current: 1,
			inForce: row(2, "sha256:last", "csi@3.5.1", "").Name, outcome: revision.Superseded, action: upgrade.Wait, reason: upgrade.WindowClosed},
	} {
		t.Run(name, func(t *testing.T) {
			g := lostBoth(t, nobody{"sha256:last": true, "sha256:new": true}, c.rows...)
			if c.current > 0 {
				g.config.Status.Revision = c.rows[c.current-1].Name
			}
			if c.edit != nil {
				c.edit(g)
			}
			h := g.historyOf(t.Context())
			cur, ok := h.InForce()
			require.Equal(t, c.inForce != "", ok)
			if ok {
				require.Equal(t, c.inForce, cur.Name())
				require.Equal(t, c.outcome, cur.Outcome)
				require.Equal(t, !c.unsealed, cur.Sealed(g.hash))
				require.NotEmpty(t, cur.Reason, "it is told")
				require.Equal(t, cur.Outcome == revision.Progressing && !cur.Returned, cur.Gate != nil, "what was amiss before is not held against it")
			}
			all := decision{from: g.bundle}
			for _, r := range g.bundle.contents.Lock.Releases {
				all.releases = append(all.releases, matrix.ReleaseID{Driver: r.Driver, Version: r.Version})
			}
			candidate, err := revisionOf(all)
			require.NoError(t, err)
			got := upgrade.Decide(upgrade.Facts{Now: g.at0(), History: h, Candidate: &candidate, Running: g.installed, Attempt: g.attempt(), Policy: upgrade.Policy{Windows: never(t)}})
			require.Equal(t, c.action, got.Action, got.Message)
			require.Equal(t, c.reason, got.Reason)
		})
	}
}

// csiRuns has another version run.
func csiRuns(version string) func(*gatherer) {
	return func(g *gatherer) { g.installed = map[matrix.Driver]matrix.Version{matrix.CSI: mustVersion(version)} }
}

// lostBoth is a gatherer where both records are lost, with what the status says.
func lostBoth(t *testing.T, trust nobody, rows ...v1alpha1.RevisionStatus) *gatherer {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	site := &v1alpha1.DriverBundle{}
	site.Namespace, site.Name = "ns", "site"
	g := &gatherer{site: *withCSI(t)}
	g.Reconciler = &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(site).Build(), Trust: trust,
		Store: shelf{"sha256:last": g.last, "sha256:new": g.bundle}}
	g.name.Namespace, g.config.Namespace, g.hash, g.inventory, g.observed = "ns", "ns", []byte("key"), inventory.Inventory{}, &assess.Observed{}
	g.config.Status = v1alpha1.VDOConfigStatus{Bundle: "mirror.site/vdo@sha256:last", Revisions: rows}
	return g
}

// What is recalled is remembered where nothing can be taken over either, since the bundle of what
// is in force cannot be read: else a wish could never be told from one that was acted on, and
// nothing be told.
func TestWhatIsRecalledIsRememberedWhereNothingCanBeTakenOver(t *testing.T) {
	last, failed := row(1, "sha256:last", "csi@3.5.1", revision.Healthy), row(2, "sha256:new", "csi@3.7.3", revision.RolledBack)
	g := lostBoth(t, nobody{"sha256:new": true}, last, failed)
	g.Store = shelf{"sha256:new": g.bundle}
	g.config.Status.Revision = last.Name
	g.config.Annotations = map[string]string{v1alpha1.AnnotationRetry: failed.Name}
	look := func() upgrade.Verdict {
		g.revisions.history = g.historyOf(t.Context())
		candidate, err := revisionOf(decision{from: g.bundle, releases: []matrix.ReleaseID{{Driver: matrix.CSI, Version: mustVersion("3.7.3")}}})
		require.NoError(t, err)
		v := upgrade.Decide(upgrade.Facts{Now: g.at0(), History: g.revisions.history, Candidate: &candidate, Running: g.installed, Attempt: g.attempt()})
		g.inventory = g.remember(g.inventory, rendering{Rendered: &render.Rendered{}})
		require.Zero(t, g.inventory.Len())
		return v
	}
	require.True(t, g.historyLost())
	require.Equal(t, upgrade.Failed, look().Reason)
	require.False(t, g.historyLost(), "it is remembered")
	require.Equal(t, upgrade.Failed, look().Reason)
	g.config.Annotations[v1alpha1.AnnotationRetry] = failed.Name + " once more"
	v := look()
	require.Equal(t, upgrade.Proceed, v.Action, v.Message)
	require.True(t, v.Begins)
}

// Nothing is remembered of who has installed nothing.
func TestNothingIsRememberedBeforeAnythingIsInstalled(t *testing.T) {
	g := lostBoth(t, nil)
	g.config.Status, g.installed = v1alpha1.VDOConfigStatus{}, nil
	require.Equal(t, inventory.Inventory{}, g.remember(inventory.Inventory{}, rendering{Rendered: &render.Rendered{}}))
}

// While nothing is written, as under suspend, faults and conditions name what was recalled.
func TestWhatIsRecalledIsToldWhileNothingIsWritten(t *testing.T) {
	last, failed := row(1, "sha256:last", "csi@3.5.1", revision.Healthy), row(2, "sha256:new", "csi@3.7.3", revision.RolledBack)
	g := lostBoth(t, nobody{"sha256:last": true, "sha256:new": true}, last, failed)
	g.config.Status.Revision, g.config.Spec.Suspend = last.Name, true
	g.revisions.history = g.historyOf(t.Context())
	offered := revision.Revision{Bundle: failed.Bundle, Releases: []string{failed.Releases}}
	g.revisions.offered, g.revisions.verdict = &offered, upgrade.Verdict{Action: upgrade.Hold, Reason: upgrade.Failed, Message: "it failed"}
	p := result{config: g.config, now: g.now, site: g.site}
	err := p.upgradeFault()
	require.ErrorContains(t, err, "revision "+failed.Name)
	require.Contains(t, fault.HintOf(err), "revision "+last.Name+" stays in force")
	all := p.upgradedCondition()
	require.Equal(t, reasonRolledBack, all[0].Reason)
	require.Contains(t, all[0].Message, failed.Name)
}

// What was recalled when its bundle could not be read is sealed once it can: else it could never
// be gone back to.
func TestWhatCouldNotBeReadIsSealedOnceItCan(t *testing.T) {
	rows := []v1alpha1.RevisionStatus{row(1, "sha256:last", "csi@3.5.1", revision.Healthy), row(2, "sha256:new", "csi@3.7.3", revision.Progressing)}
	trust := nobody{"sha256:last": true, "sha256:new": true}
	g := lostBoth(t, trust, rows...)
	g.Store = shelf{"sha256:new": g.bundle}
	g.config.Status.Bundle, g.config.Status.Revision = rows[1].Bundle, rows[1].Name
	h := g.historyOf(t.Context())
	require.False(t, h.Records[0].Sealed(g.hash))
	require.True(t, h.Records[1].Sealed(g.hash))

	look := func() revision.History {
		before := h.Records[0]
		g.inventory = withCSI(t).inventory.WithMemory(inventory.Memory{Bundle: rows[1].Bundle, Revisions: h})
		now := g.historyOf(t.Context())
		require.Equal(t, before, h.Records[0], "what was read is not changed")
		return now
	}
	require.False(t, look().Records[0].Sealed(g.hash), "it cannot be read yet")
	g.Store = shelf{"sha256:new": g.bundle, "sha256:last": g.last}
	delete(trust, "sha256:last")
	require.False(t, look().Records[0].Sealed(g.hash), "it is not trusted now")
	trust["sha256:last"] = true
	h = look()
	require.True(t, h.Records[0].Sealed(g.hash))
	require.NotContains(t, h.Records[0].Contents, revision.Unknown)
	require.Equal(t, rows[0].Name, h.Fail("it crashes", g.at0()).Targets()[0].Name())
}

// csiApart has the storage driver run from the last bundle in the second revision, whose bundle,
// the accepted one, was built anew.
func csiApart(g *gatherer) {
	anew(g)
	made, _ := g.last.made(matrix.ReleaseID{Driver: matrix.CSI, Version: mustVersion("3.5.1")}) //nolint:errcheck // it is there
	_, was, _ := strings.Cut(made, "/")
	g.config.Status.Revisions[1].Apart = map[string]string{"csi": was}
}

// A driver that is apart stays so without the records: it comes from what it runs from, though
// that be the accepted bundle again; where that cannot be read it is left as it is.
func TestADriverThatIsApartStaysSoWithoutTheRecords(t *testing.T) {
	rows := []v1alpha1.RevisionStatus{row(1, "sha256:last", "csi@3.5.1", revision.Healthy), row(2, "sha256:new", "csi@3.5.1", revision.Healthy)}
	for name, c := range map[string]struct {
		edit func(g *gatherer)
		from string // "" where it is left as it is
	}{
		"it can be read":    {func(*gatherer) {}, "mirror.site/vdo@sha256:last"},
		"it cannot be read": {func(g *gatherer) { g.Store = shelf{"sha256:new": g.bundle} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := lostBoth(t, nobody{"sha256:last": true, "sha256:new": true}, slices.Clone(rows)...)
			csiApart(g)
			g.config.Status.Bundle, g.config.Status.Revision = rows[1].Bundle, rows[1].Name
			c.edit(g)
			g.revisions.history = g.historyOf(t.Context())
			cur, _ := g.revisions.history.InForce()
			require.Equal(t, g.config.Status.Revisions[1].Apart, cur.Parts())
			require.NoError(t, g.gatherOrigins(t.Context()))
			d := g.resolve()
			if c.from == "" {
				require.ErrorContains(t, g.faults[matrix.CSI], "runs from another bundle than all else")
				require.Empty(t, d.releases)
				require.NotEmpty(t, d.held[matrix.CSI])
				return
			}
			require.NoError(t, g.faults[matrix.CSI])
			require.Equal(t, c.from, d.bundleOf(matrix.CSI).reference())

			g.bundle, g.last = g.last, g.bundle
			o, err := g.originOf(t.Context(), matrix.ReleaseID{Driver: matrix.CSI, Version: mustVersion("3.5.1")}, cur.Contents["csi"])
			require.NoError(t, err, "the accepted bundle has it again")
			require.Same(t, g.bundle, o)
			_, err = g.originOf(t.Context(), matrix.ReleaseID{Driver: matrix.CSI, Version: mustVersion("3.5.1")}, "another")
			require.ErrorContains(t, err, "no revision that is remembered has it")
		})
	}
}

// anew has the accepted bundle be of the release that runs, built anew.
func anew(g *gatherer) {
	alike(g)
	g.bundle.contents.Lock.Releases[0].Images = map[string]string{"driver": "another"}
}

// alike has it have the same of that release.
func alike(g *gatherer) {
	g.bundle.contents = &bundle.Contents{Lock: &bundle.Lock{Releases: []bundle.Release{g.last.contents.Lock.Releases[0]}}}
}

// never is a window that is not open.
func never(t *testing.T) []upgrade.Window {
	t.Helper()
	w, err := upgrade.ParseWindow(v1alpha1.UpgradeWindow{Schedule: "0 0 29 2 *", Duration: metav1.Duration{Duration: time.Minute}})
	require.NoError(t, err)
	return []upgrade.Window{w}
}
