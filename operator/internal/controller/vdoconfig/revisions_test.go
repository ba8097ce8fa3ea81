package vdoconfig

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

// shelf has bundles by digest.
type shelf map[string]*opened

func (s shelf) Contents(_ context.Context, b *v1alpha1.DriverBundle) (*bundle.Contents, error) {
	o, ok := s[b.Status.Digest]
	if !ok {
		return nil, because(fault.Unreachable)
	}
	c := *o.contents
	if c.Matrix == nil {
		c.Matrix = matrix.Default()
	}
	return &c, nil
}

// withRevision is a site where a revision of csi@3.5.1 is in force, whose bundle is the last one.
func withRevision(t *testing.T) (*pass, revision.Record) {
	t.Helper()
	g := withCSI(t)
	rev := revision.Revision{Bundle: "mirror.site/vdo@sha256:last", Source: "site", Releases: []string{"csi@3.5.1"}}
	g.upgrades.history = healthy(rev, g.at0())
	cur, _ := g.upgrades.history[matrix.CSI].InForce()
	return g, cur
}

// remembers has the inventory have histories.
func (p *pass) remembers(all revision.Histories) {
	memory := p.facts.inventory.Memory()
	memory.Revisions = all
	p.facts.inventory = p.facts.inventory.WithMemory(memory)
	p.inventory = p.facts.inventory
}

// begun are histories in which a revision of several groups was begun.
func begun(rev revision.Revision, b revision.Beginning) revision.Histories {
	var all revision.Histories
	for _, group := range revision.Groups {
		if part, ok := rev.Of(group); ok {
			all = all.With(group, revision.History{}.Start(part, b))
		}
	}
	return all
}

// healthy are histories in which it is healthy.
func healthy(rev revision.Revision, now time.Time) revision.Histories {
	all := begun(rev, revision.Beginning{Now: now})
	for group, h := range all {
		all[group] = h.Succeed(now)
	}
	return all
}

// inForce are the current releases of all groups, in order of installation.
func inForce(all revision.Histories) (releases []string) {
	for _, cur := range all.InForce() {
		releases = append(releases, cur.Releases...)
	}
	return releases
}

// A release that suits by the matrix of its own bundle may have been withdrawn since, by the
// one of the bundle that was accepted after it.
func TestWhatWasWithdrawnSinceIsNotGoneBackTo(t *testing.T) {
	g, cur := withRevision(t)
	own := holding(t, "sha256:last", "csi@3.5.1")
	require.Empty(t, g.unsuited(own, cur))
	for i, r := range g.bundle.matrix.Releases {
		if r.Driver == matrix.CSI && r.Version.String() == "3.5.1" {
			g.bundle.matrix.Releases[i].State, g.bundle.matrix.Releases[i].Reason = matrix.Withdrawn, "it loses volumes"
		}
	}
	require.Empty(t, g.unsuited(own, cur), "what nobody verified withdraws nothing")
	g.bundle.verified = true
	require.Contains(t, g.unsuited(own, cur), "it loses volumes")
	g.bundle.matrix.Releases = nil
	require.Empty(t, g.unsuited(own, cur), "it says nothing of it")
}

// What is gone back to is named as it was when it was in force, whatever the layout of the
// mirror that is used since; where it is the same mirror, as that is said to be now.
func TestImagesOfAnEarlierRevisionAreNamedAsTheyWere(t *testing.T) {
	for name, c := range map[string]struct {
		reference, bundle string
		want              v1alpha1.ImageNames
	}{
		"another mirror":     {"new.site/vdo:2", "mirror.site/vdo@sha256:old", v1alpha1.ImageNamesPaths},
		"the same mirror":    {"mirror.site/vdo:2", "mirror.site/vdo@sha256:old", v1alpha1.ImageNamesUpstream},
		"what runs":          {"new.site/vdo:2", "mirror.site/vdo@sha256:last", v1alpha1.ImageNamesRepository},
		"nobody knows it":    {"new.site/vdo:2", "mirror.site/vdo@sha256:none", ""},
		"not to be made out": {"://", "mirror.site/vdo@sha256:old", v1alpha1.ImageNamesPaths},
	} {
		g, _ := withRevision(t)
		b := &v1alpha1.DriverBundle{Spec: v1alpha1.DriverBundleSpec{Reference: c.reference, ImageNames: v1alpha1.ImageNamesUpstream}}
		b.Namespace, b.Name = "ns", "site"
		g.Client = clientOf(b)
		of := func(digest string) revision.Revision {
			return revision.Revision{Bundle: "mirror.site/vdo@sha256:" + digest}
		}
		at := revision.Beginning{Now: g.at0()}
		h := revision.History{}.Start(of("old"), at).WithImageNames(v1alpha1.ImageNamesPaths).
			Start(of("last"), at).WithImageNames(v1alpha1.ImageNamesRepository)
		for _, source := range []string{"site", "gone"} {
			g.bundle.source = b
			h.Records[0].Source, h.Records[1].Source = source, source
			g.remembers(revision.Histories{matrix.CSI: h})
			got, err := g.sourceOf(t.Context(), c.bundle)
			require.NoError(t, err, name)
			require.Equal(t, c.want, got.Spec.ImageNames, "%s, %s", name, source)
		}
	}
}

// nobody trusts no bundle, but for some.
type nobody map[string]bool // by digest

func (n nobody) Trusted(_ context.Context, b *v1alpha1.DriverBundle) error {
	if n[b.Status.Digest] {
		return nil
	}
	return because(fault.Untrusted)
}

// What is rolled out and is not trusted any more is gone back from; where there is nothing to go back to,
// nothing more of it is applied.
func TestARevisionThatIsRevokedWhileItIsRolledOutGoesNoFurther(t *testing.T) {
	for name, c := range map[string]struct {
		trusted nobody
		before  bool // another one was healthy before
		oneWay  string
		goes    decide.Action
		unfit   bool // the one before
	}{
		"it is trusted":                     {nobody{"sha256:last": true, "sha256:new": true}, true, "", decide.Stay, false},
		"it is revoked":                     {nobody{"sha256:last": true}, true, "", decide.RollBack, false},
		"the one before no longer fits":     {nobody{"sha256:last": true}, true, "", decide.Stay, true},
		"it cannot be gone back from":       {nobody{"sha256:last": true}, true, "it moves volumes", decide.Stay, false},
		"the one before is revoked as well": {nobody{}, true, "", decide.Stay, false},
		"there is none before":              {nobody{}, false, "", decide.Stay, false},
	} {
		g, was := withRevision(t)
		for i := range g.bundle.matrix.Releases {
			if r := &g.bundle.matrix.Releases[i]; r.ReleaseID.String() == "csi@3.7.3" {
				r.OneWay = c.oneWay
			}
		}
		if !c.before {
			g.upgrades.history = nil
		}
		rev := revision.Revision{Bundle: "mirror.site/vdo@sha256:new", Source: "site", Releases: []string{"csi@3.7.3"}}
		h := g.upgrades.history[matrix.CSI].Start(rev, revision.Beginning{Now: g.at0()})
		g.remembers(revision.Histories{matrix.CSI: h})
		if g.Trust = c.trusted; c.unfit {
			g.site.VCenters[0].Version = mustVersion("6.7.0")
		}
		g.gateBundle(because(fault.Untrusted))
		g.decideAll(t.Context())
		v := g.upgrades.verdicts[matrix.CSI]
		require.Equal(t, c.goes, v.Action, "%s: %s", name, v.Message)
		after := g.begun(rendering{Rendered: &render.Rendered{}, decision: g.resolve()})[matrix.CSI]
		cur, _ := after.InForce()
		of, _ := after.Find(rev)
		if c.goes == decide.RollBack {
			require.Equal(t, was.Name(), cur.Name(), name)
			require.Equal(t, revision.RolledBack, of.Outcome, name)
			require.NotEmpty(t, of.Reason, name)
			require.Equal(t, was.Bundle, g.resolve().bundleOf(matrix.CSI).reference(), "whatever the accepted one is")
			require.Empty(t, g.resolve().untrusted(), name)
			continue
		}
		require.Equal(t, rev.Name(), cur.Name(), name)
		require.Equal(t, c.trusted["sha256:new"], g.resolve().untrusted()[matrix.CSI] == "",
			"%s: what was begun is ended", name)
	}
}

// Where groups come from several bundles, each is asked what cannot be gone back from, and
// whether it is trusted while it is rolled out.
func TestEachBundleThatIsInstalledFromIsAsked(t *testing.T) {
	const mark = "    version: 3.7.3\n    oneWay: it moves volumes\n"
	g, _ := withRevision(t)
	last := holding(t, "sha256:last", "csi@3.7.3")
	last.contents.Matrix = []byte(strings.Replace(string(matrix.Default()), "    version: 3.7.3\n", mark, 1))
	g.Store, g.Trust = shelf{"sha256:last": last}, nobody{"sha256:new": true}
	g.bundle = holding(t, "sha256:new", "cpi@1.33.1")
	cloud := revision.Revision{Bundle: g.bundle.reference(), Releases: []string{"cpi@1.33.1"}}
	storage := revision.Revision{Bundle: last.reference(), Releases: []string{"csi@3.7.3"}}
	b := revision.Beginning{Now: g.at0()}
	g.upgrades.history = revision.Histories{
		matrix.CPI: revision.History{}.Start(cloud, b), matrix.CSI: revision.History{}.Start(storage, b)}
	g.upgrades.current = g.currentOfRecords(t.Context(), g.upgrades.history.InForce()...)
	require.Equal(t, last.reference(), g.upgrades.current[matrix.CSI].from.reference())

	g.Store = shelf{} // each bundle is opened once a pass
	marks := g.oneWay(t.Context())
	require.Len(t, marks, 1)
	require.Equal(t, "csi@3.7.3", marks[0].ReleaseID.String())
	g.revoke(t.Context())
	require.Empty(t, g.upgrades.untrusted[matrix.CPI], "its own bundle is trusted")
	require.NotEmpty(t, g.upgrades.untrusted[matrix.CSI])
	require.NotEmpty(t, g.upgrades.current[matrix.CSI].revoked)
	require.Empty(t, g.upgrades.current[matrix.CPI].revoked)
}

func TestAStaleBundleStartsNothing(t *testing.T) {
	for _, fresh := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionTrue} {
		stale := fresh == metav1.ConditionFalse
		g := withCSI(t)
		g.Cluster = &cluster.Cluster{Reader: g.Client}
		b := g.bundle.source.DeepCopy()
		b.Spec.Trust = &v1alpha1.TrustPolicy{}
		b.Status.VerifiedPolicy = must.Have(g.Cluster.PolicyVersion(t.Context(), b))(t)
		b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionVerified, Status: metav1.ConditionTrue},
			{Type: v1alpha1.ConditionFresh, Status: fresh, Reason: string(fault.Expired)}}
		require.True(t, must.Have(g.openAccepted(t.Context(), b))(t).verified)
		require.Equal(t, []bool{stale, stale}, []bool{g.bundleGated, fault.ReasonOf(g.starts) == fault.Expired})
	}
}

func TestTheChosenNodesGoOnWithABundleThatHasExpired(t *testing.T) {
	for _, revoked := range []string{"", "a key is revoked"} {
		g, _ := withRevision(t)
		g.config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{Canary: &v1alpha1.Canary{}}
		g.starts, g.bundleGated = because(fault.Expired), true
		starts := revision.Beginning{Now: g.at0(), Canary: true}
		h := g.upgrades.history[matrix.CSI].Start(revision.Revision{Bundle: "b"}, starts)
		g.remembers(revision.Histories{matrix.CSI: h})
		a := &applier{pass: g}
		a.rendering.decision = only(matrix.CSI, "3.7.3")
		a.rendering.decision.current = map[matrix.Driver]current{matrix.CSI: {revoked: revoked}}
		require.NoError(t, a.canaryStage(t.Context()))
		require.Equal(t, revoked == "", a.outcome.next.waits != "", a.outcome.next.waits)
	}
}

// An id that the driver makes while its ConfigMap is gone does not take the place of the one that its volumes have.
func TestAnotherClusterIDThatTheDriverMadeIsRefused(t *testing.T) {
	for requested, gates := range map[string]bool{"": true, "one": true, "two": false} {
		g := withCSI(t)
		g.facts.inventory = g.facts.inventory.WithMemory(inventory.Memory{ClusterID: "one", ClusterUID: "here"})
		g.cluster.UID, g.cluster.GeneratedClusterID, g.cluster.ConfiguredClusterID = "here", "two", "one"
		g.config.Spec.StorageProvider.ClusterID = requested
		g.spec = g.config.Spec
		require.NoError(t, g.identify(t.Context()))
		require.Equal(t, gates, fault.ReasonOf(g.faults[matrix.CSI]) == fault.Conflict)
		kept := g.remember(g.facts.inventory, rendering{Rendered: &render.Rendered{}}).Memory().ClusterID
		require.Equal(t, map[bool]string{true: "one", false: "two"}[gates], kept)
	}
}

func TestSettingsAreRememberedAsTheyWereApplied(t *testing.T) {
	debug := func(d string) v1alpha1.DriverPolicy {
		return v1alpha1.DriverPolicy{Driver: d, LogLevel: v1alpha1.LogDebug}
	}
	was := inventory.Memory{
		StorageProvider: &v1alpha1.StorageProvider{ClusterID: "was"}, Drivers: []v1alpha1.DriverPolicy{debug("csi")},
	}
	g := withCSI(t)
	g.facts.inventory = g.facts.inventory.WithMemory(was)
	g.spec.Drivers = []v1alpha1.DriverPolicy{debug("cpi")}
	why := map[matrix.Driver]error{matrix.CSI: because(fault.Conflict)}
	for name, r := range map[string]rendering{
		"refused": {refused: why}, "blocked": {blocked: why},
		"held": {decision: decision{gated: map[matrix.Driver]string{matrix.CSI: "why"}}},
	} {
		r.Rendered, r.spec = &render.Rendered{}, g.spec
		now := g.remember(g.facts.inventory, r).Memory()
		require.Equal(t, was.StorageProvider, now.StorageProvider, name)
		require.Equal(t, []v1alpha1.DriverPolicy{debug("cpi"), debug("csi")}, now.Drivers, name)
	}
	require.Equal(t, []v1alpha1.DriverPolicy{debug("cpi"), debug("csi")}, g.asRemembered(g.spec, matrix.CSI).Drivers)
	require.Equal(t, g.spec.Drivers, g.asRemembered(g.spec, matrix.CPI).Drivers, "it does not run")
}

func TestVolumesWhoseClusterIDNobodyKnowsHoldTheDriver(t *testing.T) {
	restored := func(uid, requested string) func(*pass) {
		return func(g *pass) {
			g.facts.inventory = withCSI(t).inventory.WithMemory(inventory.Memory{ClusterID: "one", ClusterUID: uid})
			g.cluster.UID, g.cluster.ConfiguredClusterID, g.config.Spec.StorageProvider.ClusterID = "here", "one", requested
		}
	}
	wasSet := func(g *pass) {
		restored("another", "one")(g)
		was := g.facts.inventory.Memory()
		was.StorageProvider = g.config.Spec.StorageProvider.DeepCopy()
		g.facts.inventory = g.facts.inventory.WithMemory(was)
	}
	for name, c := range map[string]struct {
		edit  func(g *pass)
		gates bool
	}{
		"nothing says it":                {func(*pass) {}, true},
		"there are no volumes":           {func(g *pass) { g.Cluster = &fakeCluster{} }, false},
		"the driver is not asked for":    {func(g *pass) { g.spec.StorageProvider = nil }, false},
		"the spec says it":               {func(g *pass) { g.spec.StorageProvider.ClusterID = "one" }, false},
		"the driver's configuration":     {func(g *pass) { g.cluster.ConfiguredClusterID = "one" }, false},
		"it is installed":                {func(g *pass) { g.facts.inventory = withCSI(t).inventory }, false},
		"it was generated":               {func(g *pass) { g.cluster.GeneratedClusterID = "one" }, false},
		"its configuration is forbidden": {func(g *pass) { g.fault(matrix.CSI, because(fault.Forbidden)) }, false},
		"another cluster's":              {restored("another", ""), true},
		"another cluster's, not it":      {restored("another", "two"), true},
		"another cluster's, confirmed":   {restored("another", "one"), false},
		"another cluster's, generated":   {func(g *pass) { restored("another", "")(g); g.cluster.GeneratedClusterID = "one" }, true},
		"another cluster's, set there":   {wasSet, true},
		"another cluster's, taken out":   {func(g *pass) { wasSet(g); g.config.Spec.StorageProvider.ClusterID = "" }, true},
		"another cluster's, for nobody":  {func(g *pass) { restored("another", "one")(g); g.spec.StorageProvider = nil }, false},
		"this cluster's":                 {restored("here", ""), false},
		"a cluster's that was not noted": {restored("", ""), false},
		"this one's UID is forbidden":    {func(g *pass) { restored("here", "")(g); g.cluster.UID = "" }, false},
	} {
		g := withCSI(t)
		g.facts.inventory = inventory.Inventory{}
		g.Cluster, g.spec.StorageProvider = &fakeCluster{volumes: 2}, &v1alpha1.StorageProvider{}
		c.edit(g)
		before := g.faults[matrix.CSI]
		require.NoError(t, g.identify(t.Context()), name)
		require.Equal(t, c.gates, g.faults[matrix.CSI] != nil && before == nil, name)
		hint := fault.HintOf(g.faults[matrix.CSI])
		require.Equal(t, g.wasSet("one"), strings.Contains(hint, "replaces the other one, delete ConfigMap"), hint)
		anew := `both run, set spec.storageProvider.clusterID: "here" and delete`
		require.Equal(t, g.foreignClusterID() != "", strings.Contains(hint, anew), hint)
		if was := g.facts.inventory.Memory(); was.ClusterID != "" {
			noted := g.remember(g.facts.inventory, rendering{Rendered: &render.Rendered{}}).Memory().ClusterUID
			require.Equal(t, !c.gates, noted == "here", "%s: it is noted whose the id is once that is known", name)
		}
	}
}

// Copies stay of what an inventory has before anything is written, and of what only a status has.
func TestWhatIsInForceOrMayBeGoneBackToIsRetained(t *testing.T) {
	at := func(n int) string { return fmt.Sprintf("mirror/vdo@sha256:%064d", n) }
	status := func(bundle string, r v1alpha1.RevisionStatus) v1alpha1.VDOConfigStatus {
		r.Bundle = at(5)
		return v1alpha1.VDOConfigStatus{Bundle: bundle, Revisions: []v1alpha1.RevisionStatus{r}}
	}
	begun := revision.History{}.Start(revision.Revision{Bundle: at(1)}, revision.Beginning{Now: time.Now()})
	corrupt, away := &fault.Error{Reason: fault.Corrupt}, &fault.Error{Reason: fault.Unreachable}
	for name, c := range map[string]struct {
		kept   revision.Histories
		err    error
		status v1alpha1.VDOConfigStatus
		want   []string
	}{
		"begun, and not in the status": {kept: revision.Histories{revision.Groups[0]: begun}, want: []string{at(1)}},
		"no inventory":                 {status: status(at(4), v1alpha1.RevisionStatus{Outcome: "Healthy"}), want: []string{at(4), at(5)}},
		"current, and failed":          {status: status("", v1alpha1.RevisionStatus{Current: true, Outcome: "Failed"}), want: []string{at(5)}},
		"failed":                       {status: status("", v1alpha1.RevisionStatus{Outcome: "Failed"})},
		"a corrupt inventory":          {err: corrupt, status: status(at(4), v1alpha1.RevisionStatus{}), want: []string{at(4)}},
		"an inventory out of reach":    {err: away},
	} {
		config := &v1alpha1.VDOConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "vdo", Name: "site"}, Status: c.status}
		other := &v1alpha1.VDOConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "site"}}
		other.Status.Bundle = at(9)
		reader := clientOf(config, other)
		got, err := Retained(t.Context(), reader, "vdo", func(context.Context, types.NamespacedName) (cluster.Loaded, error) {
			memory := inventory.Memory{Revisions: c.kept}
			return cluster.Loaded{Inventory: inventory.Of(inventory.Entry{}).WithMemory(memory)}, c.err
		})
		if c.err == away {
			require.ErrorIs(t, err, away, "nothing is forgotten then")
			continue
		}
		require.NoError(t, err, name)
		require.ElementsMatch(t, c.want, slices.DeleteFunc(got, func(s string) bool { return s == "" }), name)
	}
}

// An approved downgrade or retry names who approved it, under Automatic too. An automatic rollback names nobody.
func TestTheEventOfAStartNamesWhoApproved(t *testing.T) {
	g, cur := withRevision(t)
	next := revision.Revision{Bundle: "b", Releases: []string{"csi@3.7.3"}}
	given := &v1alpha1.UpgradeApproval{Revision: next.Name(), By: "jane"}
	g.config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{Approval: given}
	h := g.upgrades.history[matrix.CSI].Consented(next.Name(), next, next)
	require.Nil(t, g.approval(h, cur.Revision), "it is of another revision")
	cur.Approval = &revision.Approval{By: "admin"}
	started := h.With(cur).Start(next, revision.Beginning{Now: g.at0(), Approval: g.approval(h, next)})
	recorder := events.NewFakeRecorder(9)
	g.Recorder = recorder
	tried, _ := started.InForce()
	g.emitRevision(revision.Record{}, false, tried)
	require.Contains(t, <-recorder.Events, "approved by jane")
	back, _ := started.RollBack(cur.Name(), g.at0()).InForce()
	g.emitRevision(revision.Record{}, false, back)
	require.NotContains(t, <-recorder.Events, "approved by")

	open, passed := cur, cur
	open.Canary, passed.Canary = &revision.Canary{}, &revision.Canary{Passed: true}
	g.emitRevision(open, true, passed)
	require.Empty(t, recorder.Events, "without a policy there are no canary nodes that were healthy")
}

// A storage driver that was removed during its rollout was never healthy and has no revision, so that its next
// installation is none of an upgrade. Its namespace is kept.
func TestARemovedDriverHasNoRevision(t *testing.T) {
	g, _ := withRevision(t)
	bad := revision.Revision{Bundle: "mirror.site/vdo@sha256:new", Source: "site", Releases: []string{"csi@3.7.3"}}
	all := revision.Histories{matrix.CSI: g.upgrades.history[matrix.CSI].Start(bad, revision.Beginning{Now: g.at0()})}
	kept := inventory.Of(inventory.Entry{ID: core("Namespace", "", render.CSINamespace), UID: "u", Driver: matrix.CSI, Release: "csi@3.5.1"})
	g.facts.inventory = kept.WithMemory(inventory.Memory{Revisions: all})
	g.inventory, g.site.Installed = g.facts.inventory, map[matrix.Driver]matrix.Version{}
	g.bundle, g.outcome.report, g.config.Spec.StorageProvider = holding(t, "sha256:new", "csi@3.7.3 snapshot-controller@8.2.0"), &assess.Report{}, nil
	for range 5 {
		g.now = g.now.Add(time.Minute)
		g.decideAll(t.Context())
		all, _ = g.afterLook(all)
	}
	cur, _ := all[matrix.CSI].Named(bad.Name())
	require.Zero(t, cur.Healthy, cur.Outcome)
	require.Empty(t, inForce(g.begun(rendering{Rendered: &render.Rendered{}, decision: g.resolve()})))
}

// Drivers that share a namespace share its pull secret: a conflict of one leaves the others' pods with it.
func TestThePullSecretOfABlockedDriverServesOthers(t *testing.T) {
	login := stepOf(plan.Create, matrix.CPI, "Secret", render.PullSecret)
	login.Object, login.Stage = &unstructured.Unstructured{Object: map[string]any{}}, render.StageConfig
	pods := stepOf(plan.Create, matrix.SnapshotController, "Deployment", "snapshot-controller")
	pods.Group, pods.Object = "apps", login.Object
	for _, other := range []error{nil, because(fault.Conflict)} {
		p := (&Reconciler{Cluster: &fakeCluster{}, Now: time.Now}).newPass(&v1alpha1.VDOConfig{})
		p.outcome.plan = &plan.Plan{Steps: []plan.Step{login, pods}}
		a := &applier{pass: p, failed: map[matrix.Driver]error{}}
		a.blocked = joined(a.blocked, matrix.CPI, because(fault.Conflict))
		if other != nil {
			a.blocked = joined(a.blocked, matrix.SnapshotController, other)
		}
		require.NoError(t, a.stage(t.Context(), render.Stage{Name: render.StageConfig}))
		e, has := p.inventory.Get(login.Key)
		require.Equal(t, other == nil, has)
		require.False(t, p.inventory.Has(matrix.CPI), e)
	}
}

func TestWhatHoldsARemoval(t *testing.T) {
	login := core("Secret", "kube-system", render.PullSecret)
	unfit := func(s *pass) {
		s.desired = decision{from: s.bundle, gated: map[matrix.Driver]string{}, refused: because(fault.Incompatible)}
	}
	for name, c := range map[string]struct {
		edit    func(s *pass)
		removes bool
		reason  fault.Reason
	}{
		"the bundle has expired": {func(s *pass) { s.starts = because(fault.Expired) }, true, fault.Expired},
		"it is untrusted":        {func(s *pass) { s.gated = because(fault.Untrusted) }, false, fault.Untrusted},
		"no release fits":        {unfit, true, fault.Incompatible},
		"and it is requested": {func(s *pass) {
			s.config.Spec.StorageProvider = &v1alpha1.StorageProvider{}
			unfit(s)
		}, false, fault.Incompatible},
		"and the object is the login that drivers share": {func(s *pass) {
			s.config.Spec.StorageProvider = &v1alpha1.StorageProvider{}
			unfit(s)
			s.facts.inventory = inventory.Of(inventory.Entry{ID: login, UID: "u", Driver: matrix.CPI})
		}, false, fault.Incompatible},
		"another driver's rendering is refused": {func(s *pass) {
			s.config.Spec.CloudProvider = &v1alpha1.CloudProvider{}
			s.desired = decision{from: s.bundle, gated: map[matrix.Driver]string{}, releases: releaseIDs("cpi@1.33.1")}
		}, true, fault.NotFound},
		"a pin that cannot be read may request it": {func(s *pass) {
			s.config.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "cni", Version: "01.2.3"}}
			s.desired = s.chooseReleases()
		}, false, fault.InvalidInput},
	} {
		s, id := withCSI(t), core("ServiceAccount", "ns", "x")
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetUID("u")
		k := &fakeCluster{live: plan.Live{id.Key: o, login.Key: o}}
		s.Cluster = k
		s.config.Spec.StorageProvider, s.spec.StorageProvider, s.bundleGated = nil, nil, true
		s.facts.inventory = inventory.Of(inventory.Entry{ID: id, UID: "u", Driver: matrix.CSI, Release: "csi@3.5.1"})
		c.edit(s)
		s.inventory = s.facts.inventory
		require.NoError(t, s.install(t.Context()), name)
		require.Equal(t, c.removes, k.deleted, name)
		_, why := s.unresolved()
		require.Equal(t, c.reason, fault.ReasonOf(why), name)
	}
}

func TestWhatIsLeftInstalledIsToldOnce(t *testing.T) {
	for mode, why := range map[v1alpha1.DeleteMode]string{
		v1alpha1.DeleteRefuse: "all pods of the cluster need the network",
		v1alpha1.DeleteRemove: "another manager has created it again",
	} {
		s := withCSI(t)
		recorder := events.NewFakeRecorder(9)
		s.Recorder, s.config.Spec.OnDelete = recorder, mode
		inv, live := s.inventory, plan.Live{}
		for _, kind := range []string{"DaemonSet", "Deployment"} {
			id := stepOf("", matrix.CNI, kind, "antrea").ID
			live[id.Key] = &unstructured.Unstructured{Object: map[string]any{}}
			inv = inv.With(inventory.Entry{ID: id, Driver: matrix.CNI})
		}
		p := plan.Removal(inv, live, nil, s.retentions())
		s.outcome.plan, s.inventory = &p, inv
		require.NoError(t, (&applier{pass: s}).removals(t.Context()))
		require.Len(t, recorder.Events, 1)
		require.Contains(t, <-recorder.Events, "Left DaemonSet ns/antrea, without repairs: "+why)
	}
}

func TestALeftWebhookIsNoInstalledDriver(t *testing.T) {
	for _, c := range []struct{ wanted, ours bool }{{}, {wanted: true}, {ours: true}} {
		p := withCSI(t)
		p.config.Spec.StorageProvider.Webhook = c.wanted
		if c.ours {
			p.inventory = inventory.Of(inventory.Entry{ID: webhookDeployment})
		}
		require.NoError(t, p.observe(t.Context(), p.Cluster.Observe))
		_, counts := installed(p.observed, inventory.Inventory{})[matrix.CSI]
		require.Equal(t, c.wanted || c.ours, counts, c)
	}
}

func TestADriverThatNothingCanRepairIsAFault(t *testing.T) {
	for _, dry := range []bool{false, true} {
		s := withCSI(t)
		lost := s.upgrades.current[matrix.CSI]
		lost.from, lost.err = nil, because(fault.NotFound)
		s.upgrades.current[matrix.CSI], s.gated, s.config.Spec.DryRun = lost, because(fault.Expired), dry
		s.desired = s.chooseReleases()
		require.ErrorContains(t, s.install(t.Context()), "repair csi@3.5.1: why", dry)
	}
}

func TestAForbiddenDeletionIsRepeatedLater(t *testing.T) {
	forbids := &fakeCluster{refusal: because(fault.Forbidden)}
	p := (&Reconciler{Now: time.Now, Cluster: forbids}).newPass(&v1alpha1.VDOConfig{})
	err := p.prune(t.Context(), []plan.Step{stepOf(plan.Prune, matrix.CSI, "ClusterRole", "x")})
	require.Equal(t, fault.Forbidden, fault.ReasonOf(err))
	require.False(t, p.outcome.again)
}

// Drift that spec.drift leaves keeps no canary node from being seen, and what is deleted is not being made.
func TestDriftThatIsLeftIsNoChange(t *testing.T) {
	p := withCSI(t)
	p.config.Spec.Drift = &v1alpha1.DriftPolicy{Mode: v1alpha1.DriftWarn}
	p.config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{Canary: &v1alpha1.Canary{}}
	e := p.inventory.Entries()[0]
	left := plan.Step{Action: plan.Create, ID: e.ID, Driver: matrix.CSI, Release: e.Release, Cause: plan.Drift,
		Object: &unstructured.Unstructured{}}
	changed := stepOf(plan.Change, matrix.CSI, "DaemonSet", "vsphere-csi-node")
	changed.Cause, changed.Stage = plan.Drift, render.StageCSINode
	p.outcome.plan = &plan.Plan{Steps: []plan.Step{left, changed}}
	require.False(t, p.missing()[0].BeingMade)
	require.Equal(t, `no node matches the canary selector ""`, p.canaries().Why)
	p.outcome.plan.Changing = map[matrix.Driver]bool{matrix.CSI: true}
	require.True(t, p.missing()[0].BeingMade, "a changed driver is applied whole")
}

func TestADryRunWarnsOfTheCertificate(t *testing.T) {
	cert, _, err := webhookcert.Ensure(nil, nil, time.Now().Add(-80*24*time.Hour))
	require.NoError(t, err)
	secret := render.WebhookSecretOf(cert)
	live := plan.Live{webhookSecret.Key: secret, webhookRegistration.Key: secret}
	p := (&Reconciler{Now: time.Now, Cluster: &fakeCluster{live: live}}).newPass(
		&v1alpha1.VDOConfig{Spec: v1alpha1.VDOConfigSpec{DryRun: true}})
	require.NoError(t, p.keepCertificate(t.Context(), false))
	require.Equal(t, reasonExpiring, p.certificateCondition().Reason)

	// A removal that cannot begin, since the inventory cannot be read, blocks no renewal.
	cert, _, err = webhookcert.Ensure(nil, nil, p.now)
	require.NoError(t, err)
	secret.Object["data"] = render.WebhookSecretOf(cert).Object["data"]
	damaged := &fakeCluster{live: live, corrupt: because(fault.Corrupt)}
	r := &Reconciler{Now: p.Now, Cluster: damaged, Client: withCSI(t).Client}
	out, err := r.Remove(t.Context(), &v1alpha1.VDOConfig{})
	require.NoError(t, err)
	is, ok := out.(result)
	require.True(t, ok)
	require.Equal(t, metav1.ConditionTrue, is.certificateCondition().Status)
}
