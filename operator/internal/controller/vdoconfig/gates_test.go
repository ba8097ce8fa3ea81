package vdoconfig

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/rollout"
)

// decideAll decides without checks of the bundle's images.
func (p *pass) decideAll(ctx context.Context) {
	p.desired = p.chooseReleases()
	p.decideUpgrades(ctx)
}

// resolved is what comes of a site as it is.
func resolved(s *pass) decision {
	s.desired = s.chooseReleases()
	return s.resolve()
}

// split is nil of no words.
func split(s string) []string { return append([]string(nil), strings.Fields(s)...) }

func chosen(d decision) []string {
	var all []string
	for _, id := range d.releases {
		all = append(all, id.String())
	}
	return all
}

func mustVersion(s string) matrix.Version {
	v, err := matrix.ParseVersion(s)
	if err != nil {
		panic(err)
	}
	return v
}

// releaseIDs are those of a text, "" for none.
func releaseIDs(text string) (all []matrix.ReleaseID) {
	for _, each := range strings.Fields(text) {
		id, err := matrix.ParseReleaseID(each)
		if err != nil {
			panic(err)
		}
		all = append(all, id)
	}
	return all
}

func only(driver matrix.Driver, version string) decision {
	return decision{releases: []matrix.ReleaseID{{Driver: driver, Version: mustVersion(version)}}}
}

const (
	pair133 = "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.5.1"
	both    = pair133 + " csi@3.7.3"
)

func TestAWithdrawnReleaseThatRunsIsFlagged(t *testing.T) {
	require.NotEmpty(t, resolved(siteOf(t, both, "csi@2.5.0")).withdrawn[matrix.CSI])
	require.Empty(t, resolved(siteOf(t, both, "csi@3.5.1")).withdrawn)
}

// Only what is a revision's own doing, or keeps it from being judged, counts.
func TestWhatCountsOfARevision(t *testing.T) {
	refused := because(fault.Refused)
	for name, c := range map[string]struct {
		edit                  func(p *pass)
		complete, clockPaused bool
	}{
		"nothing":                           {func(*pass) {}, true, false},
		"a class differs":                   {func(p *pass) { p.outcome.applied = refused }, true, false},
		"nothing fits what is asked for":    {func(p *pass) { p.outcome.resolved = refused }, true, false},
		"the API server refuses it":         {func(p *pass) { p.outcome.failed = joined(nil, matrix.CSI, refused) }, false, false},
		"it does not answer":                {func(p *pass) { p.outcome.failed = joined(nil, matrix.CSI, because(fault.Unreachable)) }, false, true},
		"it refuses another driver":         {func(p *pass) { p.outcome.failed = joined(nil, matrix.CPI, refused) }, true, false},
		"the cluster cannot be seen":        {func(p *pass) { p.outcome.broken = because(fault.Unreachable) }, false, true},
		"the driver may not be read":        {func(p *pass) { p.facts.faults = joined(nil, matrix.CSI, because(fault.Forbidden)) }, true, true},
		"another driver may not be read":    {func(p *pass) { p.facts.faults = joined(nil, matrix.CPI, because(fault.Forbidden)) }, true, false},
		"the bundle has expired":            {func(p *pass) { p.facts.starts = refused }, true, false},
		"the mirror lets nobody in":         {func(p *pass) { p.facts.gated = refused }, true, true},
		"the bundle is being verified":      {func(p *pass) { p.facts.waiting = "it is being verified" }, true, true},
		"nodes take the mirror set up":      {func(p *pass) { p.facts.sets.rolls = true }, true, true},
		"nothing that can be read has it":   {func(p *pass) { p.upgrades.current = map[matrix.Driver]current{matrix.CSI: {}} }, false, true},
		"something is waited for":           {func(p *pass) { p.outcome.next.waits = "a node" }, false, false},
		"something was changed just before": {func(p *pass) { p.outcome.did = []plan.Step{{Driver: matrix.CSI}} }, false, false},
		"another manager keeps its image":   {func(p *pass) { p.contests("image") }, false, true},
		"another keeps what it needs":       {func(p *pass) { p.contests("resources") }, true, false},
		"another group was changed":         {func(p *pass) { p.outcome.did = []plan.Step{{Driver: matrix.CPI}} }, true, false},
		"no node is served": {func(p *pass) {
			p.outcome.report.Drivers[matrix.CSI] = assess.Health{Version: "3.5.1", Complete: true, Unserved: true}
		}, true, false},
	} {
		p := withCSI(t)
		p.observed = &assess.Observed{}
		health := assess.Health{Version: "3.5.1", Complete: true}
		p.outcome.report = &assess.Report{Drivers: map[matrix.Driver]assess.Health{matrix.CSI: health}}
		c.edit(p)
		look := p.lookAt(revision.Record{Revision: revision.Revision{Releases: []string{"csi@3.5.1"}}})
		require.Equal(t, c.complete, look.Complete, name)
		require.Equal(t, c.clockPaused, look.ClockPaused, name)
		unserved := p.outcome.report.Drivers[matrix.CSI].Unserved
		require.Equal(t, unserved, slices.Contains(look.Findings, "csi/Unserved"), name)
		require.Equal(t, p.outcome.failed[matrix.CSI] != nil, look.Why != "", "%s: %s", name, look.Why)
	}
}

// contests has another manager keep a field of a container of the storage driver.
func (p *pass) contests(field string) {
	of := func(value string) *unstructured.Unstructured {
		c := []any{map[string]any{"image": "its", field: value}}
		pods := map[string]any{"spec": map[string]any{"containers": c}}
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": pods}}}
	}
	s := stepOf(plan.Change, matrix.CSI, "DaemonSet", "a")
	s.Cause = plan.Drift
	until := &metav1.Time{Time: p.now.Add(time.Minute)}
	p.config.Status.Drift = []v1alpha1.DriftStatus{{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name, Until: until}}
	a := &applier{pass: p}
	a.live, a.dry = plan.Live{s.Key: of("theirs")}, map[inventory.Key]plan.Outcome{s.Key: {Object: of("ours")}}
	a.outcome.plan = &plan.Plan{Steps: []plan.Step{s}}
	a.noteDrift()
}

// A group fails for its own drivers, whatever holds another one, be it a vCenter or a check. What falls over while
// its own driver is held, or may for the sake of the cloud provider that is held, is not the rollout's doing.
func TestARevisionFailsForItsOwnDriversAlone(t *testing.T) {
	away := vcenter{gated: because(fault.Unreachable)}
	type drivers = []matrix.Driver
	cpi, csi := drivers{matrix.CPI}, drivers{matrix.CSI}
	gated := func(d matrix.Driver) func(p *pass) {
		return func(p *pass) { p.upgrades.current = map[matrix.Driver]current{d: {}} } // nothing that can be read has it
	}
	vc := func(name string, is vcenter) func(p *pass) { return func(p *pass) { p.facts.vcenters[name] = is } }
	waits := func(p *pass) {
		p.facts.vcenters[vcCloud] = away
		p.outcome.report.Drivers[matrix.CPI] = assess.Health{Version: "1.33.1", Complete: true, Findings: []assess.Finding{{Message: "waits for the cloud provider", Waiting: true}}}
	}
	gate := func(of ...matrix.Driver) func(p *pass) { return func(p *pass) { p.wait("it", of...) } }
	all := revision.Revision{Releases: []string{"cpi@1.33.1", "csi@3.5.1"}}
	for name, c := range map[string]struct {
		edit  func(p *pass)
		falls drivers
		fails drivers
		goes  drivers // on, and is not healthy
	}{
		"another driver's vCenter is away":                              {vc(vcStorage, away), cpi, cpi, nil},
		"another driver's vCenter is away, and it falls over too":       {vc(vcStorage, away), drivers{matrix.CPI, matrix.CSI}, cpi, csi},
		"the cloud provider's vCenter is away, and storage falls over":  {vc(vcCloud, away), csi, csi, nil},
		"storage falls over where the cloud provider may be why":        {waits, csi, nil, csi},
		"another driver waits":                                          {gated(matrix.CSI), cpi, cpi, csi},
		"the cloud provider waits and falls over, and storage after it": {gated(matrix.CPI), drivers{matrix.CPI, matrix.CSI}, nil, drivers{matrix.CPI, matrix.CSI}},
		"storage has a stage that waits":                                {gate(matrix.CSI), nil, csi, nil},
		"the cloud provider has":                                        {gate(matrix.CPI), nil, cpi, csi},
		"all wait":                                                      {gate(), nil, drivers{matrix.CPI, matrix.CSI}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := siteOf(t, "", "cpi@1.33.1 csi@3.5.1")
			p.observed = &assess.Observed{}
			p.outcome.report = &assess.Report{Drivers: map[matrix.Driver]assess.Health{
				matrix.CPI: {Version: "1.33.1", Complete: true}, matrix.CSI: {Version: "3.5.1", Complete: true}}}
			for _, d := range c.falls {
				p.outcome.report.Drivers[d] = assess.Health{Version: all.Version(d).String(), Complete: true,
					Findings: []assess.Finding{{Subject: "pods", Reason: fault.Unreachable, Message: "fall over"}}}
			}
			c.edit(p)
			h := begun(all, revision.Beginning{Now: p.facts.at0()})
			for range 20 {
				p.facts.now = p.facts.now.Add(time.Minute)
				h, _ = p.afterLook(h)
			}
			for _, group := range []matrix.Driver{matrix.CPI, matrix.CSI} {
				cur, _ := h[group].InForce()
				want := revision.Healthy
				if slices.Contains(c.fails, group) {
					want = revision.Failed
				} else if slices.Contains(c.goes, group) {
					want = revision.Progressing
				}
				require.Equal(t, want, cur.Outcome, "%s: %s", group, cur.Reason)
				named := strings.Contains(cur.Reason, string(group)+": ")
				require.Equal(t, want == revision.Failed && slices.Contains(c.falls, group), named, cur.Reason)
			}
		})
	}
}

func TestARevisionThatHasJustFailedIsNotSaidToBeInForce(t *testing.T) {
	p := withCSI(t)
	h := revision.History{}.Start(revision.Revision{Releases: []string{"csi@3.7.3"}}, revision.Beginning{})
	p.config = &v1alpha1.VDOConfig{}
	p.upgrades.history = revision.Histories{matrix.CSI: h}
	h = h.Fail("it crashes", revision.Attempt{}, p.now)
	p.inventory = p.inventory.WithMemory(inventory.Memory{Revisions: revision.Histories{matrix.CSI: h}})
	c := p.upgradedCondition()
	require.Equal(t, []string{"False", "Failed"}, []string{string(c.Status), c.Reason})
	require.Contains(t, c.Message, "failed: it crashes; the operator rolls it back next")
	require.Equal(t, reconciler.Soon, p.Next(p.config).AtMost, "the next pass decides what follows")
	require.ErrorContains(t, p.phase(&p.config.Status).Err, "failed: it crashes")

	// The earlier rollback of another group does not change the reason.
	cpi := revision.History{Current: 1}.With(revision.Record{Number: 1, Outcome: revision.Healthy, Returned: true,
		Revision: revision.Revision{Releases: []string{"cpi@1.33.1"}}})
	p.inventory = p.inventory.WithMemory(inventory.Memory{Revisions: p.history().With(matrix.CPI, cpi)})
	require.Equal(t, "Failed", p.upgradedCondition().Reason)
	p.upgrades.history = revision.Histories{matrix.CSI: h}
	p.upgrades.verdicts = map[revision.Group]decide.Verdict{
		matrix.CSI: {Action: decide.RollBack, Message: "x is put back"},
	}
	require.Equal(t, notReadyInterval, p.Next(p.config).AtMost)
	require.ErrorContains(t, p.phase(&p.config.Status).Err, "x is put back")
}

// The status names what waits, which groups for what, and who consented to what is current.
func TestWhatIsSaidOfAnUpgradeThatWaits(t *testing.T) {
	p, _ := withRevision(t)
	h := p.upgrades.history[matrix.CSI]
	cur, _ := h.InForce()
	cur.Approval = &revision.Approval{By: "alice", Seen: p.at0()}
	p.upgrades.history = p.upgrades.history.With(matrix.CSI, h.With(cur))
	p.remembers(p.upgrades.history)
	p.upgrades.candidate = &revision.Revision{Releases: split(pair133)}
	opens := p.at0().Add(time.Hour)
	window := decide.Verdict{Action: decide.Wait, Reason: decide.WindowClosed, Message: "at noon", Until: opens}
	approval := decide.Verdict{Action: decide.Wait, Reason: decide.NotApproved, Message: "approve it"}
	hourly := &v1alpha1.VDOConfig{Spec: v1alpha1.VDOConfigSpec{Interval: metav1.Duration{Duration: time.Hour}}}
	hourly.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	for _, c := range []struct {
		cpi, csi decide.Verdict
		reason   string
		gates    int
	}{
		{window, approval, "NotApproved", 2}, {decide.Verdict{}, approval, "NotApproved", 1},
		{window, decide.Verdict{}, "WindowClosed", 1}, {decide.Verdict{}, decide.Verdict{}, "", 0},
	} {
		p.upgrades.verdicts = map[revision.Group]decide.Verdict{matrix.CPI: c.cpi, matrix.CSI: c.csi}
		require.Equal(t, c.cpi.Action == decide.Wait, p.Next(hourly).AtMost == time.Hour, "exactly when a window opens")
		st := &p.config.Status
		p.recordRevisions(st)
		upgraded := p.upgradedCondition()
		if c.gates == 0 {
			require.Nil(t, st.Candidate)
			require.Equal(t, metav1.ConditionTrue, upgraded.Status)
			require.Equal(t, "current revisions: "+cur.Name()+" (csi@3.5.1)", upgraded.Message)
			continue
		}
		require.Equal(t, p.upgrades.candidate.Name(), st.Candidate.Name)
		require.Equal(t, []string{c.reason, c.reason}, []string{st.Candidate.Reason, upgraded.Reason})
		require.Equal(t, c.reason == "WindowClosed", st.Candidate.NotBefore != nil)
		require.Len(t, st.Candidate.Gates, c.gates)
		require.NoError(t, p.upgradeFault())
	}
	p.upgrades.candidate = &revision.Revision{Releases: []string{"cpi@1.33.1", "csi@3.7.3"}}
	p.config.Spec.CloudProvider = pairRequested().CloudProvider // not installed
	away := vcenter{waiting: "vCenter east is away"}
	p.vcenters = map[string]vcenter{vcCloud: away, vcStorage: away}
	p.recordRevisions(&p.config.Status)
	waits := p.config.Status.Candidate
	require.NotNil(t, waits, "an upgrade that its vCenter blocks")
	require.Equal(t, []any{p.upgrades.candidate.Name(), "Blocked", "install drivers: vCenter east is away", 1},
		[]any{waits.Name, waits.Reason, waits.Message, len(waits.Gates)})
	p.upgrades.verdicts = map[revision.Group]decide.Verdict{
		matrix.CSI: {Action: decide.Gated, Reason: decide.DowngradeRefused, Message: "older"},
	}
	remedy := p.upgradedCondition().Message
	require.Contains(t, remedy, "--allow-downgrade")
	require.NotContains(t, remedy, "failed", "nothing has")
	row := p.config.Status.Revisions[0]
	require.Equal(t, []any{"csi", true, "alice", "Healthy"}, []any{row.Group, row.Current, row.ApprovedBy, row.Outcome})
	require.Equal(t, cur.Approval.Seen, row.ApprovedAt.UTC())
}

func TestANodeWithUnfinishedWorkNeedsNoRemedy(t *testing.T) {
	f := assess.Finding{Node: "a", Message: "without providerID", Remedy: "start its kubelet again"}
	waits := f
	waits.Waiting = true
	all := nodes(&assess.Report{Nodes: []assess.Finding{f, waits}})
	require.Equal(t, []string{"without providerID: start its kubelet again", "without providerID"},
		[]string{all[0].Message, all[1].Message})
}

// A driver whose image tells no version runs all the same: its replacement is an upgrade.
func TestADriverOfUnknownVersionRuns(t *testing.T) {
	s := withCSI(t)
	s.observed = awayNode(1, 1)
	s.observed.DaemonSets[0].Labels = nil
	version, runs := s.upgradeFacts().Running[matrix.CPI]
	require.True(t, runs && version.IsZero())
	require.Equal(t, "3.5.1", s.upgradeFacts().Running[matrix.CSI].String())
	delete(s.site.Installed, matrix.CSI)
	require.Empty(t, s.needsCloud())
}

func TestOtherNodesFollowUnderTheGatesOfAStart(t *testing.T) {
	s := withCSI(t)
	s.checks.gates = preflight.Gate([]preflight.Result{blocking(matrix.CPI, true)})
	require.Empty(t, s.followGated())
	s.checks.gates = preflight.Gate([]preflight.Result{blocking(matrix.CSI, false)})
	require.Contains(t, s.followGated(), "vm-disk-uuid")
	s.checks.gates, s.kubernetes.mixed = nil, "API servers of two minors"
	require.Contains(t, s.followGated(), "two minors")

	// Without the policy that an upgrade started with, nodes follow at once, under the same gates.
	h := begun(revision.Revision{Releases: split(pair133)}, revision.Beginning{Now: s.at0(), Canary: true})
	s.remembers(h)
	s.outcome.plan, s.outcome.report = &plan.Plan{}, &assess.Report{}
	for _, mixed := range []string{"API servers of two minors", ""} {
		s.facts.kubernetes.mixed = mixed
		judged := rollout.Judge(h[matrix.CSI], rollout.Facts{Now: s.at0(), Canary: s.canaryLook()})
		cur, _ := judged.InForce()
		require.Equal(t, mixed == "", cur.Canary.Passed)
		text := s.canaryWait(cur)
		require.Contains(t, text, "the other nodes to follow with revision "+cur.Name())
		require.Contains(t, text, cmp.Or(mixed, "they are next"))
	}
}
