package vdoconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

func stepOf(action plan.Action, driver matrix.Driver, kind, name string) plan.Step {
	return plan.Step{Action: action, Driver: driver, Cause: plan.Release, Reason: "why", ID: inventory.ID{Key: inventory.Key{Kind: kind, Namespace: "ns", Name: name}, Version: "v1"}}
}

func TestAPlanIsShownObjectByObject(t *testing.T) {
	done := stepOf(plan.Create, matrix.CPI, "ServiceAccount", "done")
	pruned := stepOf(plan.Prune, matrix.CPI, "Secret", "pruned")
	d := only(matrix.CSI, "3.7.3")
	d.from = holding(t, "sha256:new", "csi@3.7.3")
	got := d.shown(&plan.Plan{Steps: []plan.Step{
		done, pruned, stepOf(plan.Unchanged, matrix.CPI, "Role", "same"), stepOf(plan.Keep, matrix.CSI, "StorageClass", "kept"),
		stepOf(plan.Change, matrix.CSI, "Deployment", "b"), stepOf(plan.Create, matrix.CSI, "Deployment", "a"),
		stepOf(plan.Wait, matrix.CPI, "DaemonSet", "z"), stepOf(plan.Prune, matrix.CSI, "ConfigMap", "old"),
	}}, []plan.Step{done, pruned}, maxPlanSteps)
	require.Equal(t, &v1alpha1.PlanStatus{
		Bundle: "mirror.site/vdo@sha256:new", Releases: []string{"csi@3.7.3"},
		Actions: []v1alpha1.PlanCount{{Action: "change", Count: 1}, {Action: "create", Count: 1}, {Action: "keep", Count: 1}, {Action: "prune", Count: 1}, {Action: "unchanged", Count: 2}, {Action: "wait", Count: 1}},
		Steps: []v1alpha1.PlanStep{
			{Action: "wait", Driver: "cpi", Kind: "DaemonSet", Namespace: "ns", Name: "z", Reason: "why"},
			{Action: "prune", Driver: "csi", Kind: "ConfigMap", Namespace: "ns", Name: "old", Reason: "why"},
			{Action: "create", Driver: "csi", Kind: "Deployment", Namespace: "ns", Name: "a", Cause: "release", Reason: "why"},
			{Action: "change", Driver: "csi", Kind: "Deployment", Namespace: "ns", Name: "b", Cause: "release", Reason: "why"},
		},
	}, got)
}

// What is not verified is not planned from, and what is decided with nothing in the way needs
// no second plan.
func TestWhatIsForeseen(t *testing.T) {
	p := siteOf(t, "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.7.3", "")
	p.decision = resolved(p)
	require.False(t, p.isGated())
	for _, gate := range []func(q *pass){
		func(q *pass) { q.facts.starts = because(fault.Expired) },
		func(q *pass) {
			waits := decide.Verdict{Action: decide.Gated, Reason: decide.NotApproved}
			q.upgrades.verdicts = map[revision.Group]decide.Verdict{matrix.CSI: waits}
		},
	} {
		q := *p
		gate(&q)
		require.True(t, q.isGated())
	}
	p.facts.vcenters[vcStorage] = vcenter{gated: because(fault.Unreachable)}
	require.True(t, p.isGated())
	p.planCandidate(t.Context())
	require.Nil(t, p.outcome.foreseen, "its bundle is not verified")
	free := p.withoutGates()
	require.Empty(t, free.groupGates())
	require.NotEmpty(t, p.groupGates(), "the site stays as it is")
	require.Equal(t, []string{"cpi@1.33.1", "snapshot-controller@8.2.0", "csi@3.7.3"}, chosen(free.resolve()))
}

func TestAPlanThatCouldNotBeMadeStays(t *testing.T) {
	before := &v1alpha1.PlanStatus{Bundle: "b"}
	p := siteOf(t, "", "")
	p.outcome.applied = because(fault.Unreachable)
	require.Equal(t, before, p.planStatus(before))
	p.outcome.applied = nil
	require.Nil(t, p.planStatus(before))
}

// Under Warn an object stays as another manager left it, also after the pause of its contest.
func TestAContestEndsWithItsPauseUnderWarn(t *testing.T) {
	now := time.Now()
	for until, reason := range map[time.Duration]string{time.Minute: reasonContested, -time.Minute: reasonDrift} {
		config := &v1alpha1.VDOConfig{}
		config.Spec.Drift = &v1alpha1.DriftPolicy{Mode: v1alpha1.DriftWarn}
		config.Status.Drift = []v1alpha1.DriftStatus{{
			Kind: "Deployment", Namespace: "ns", Name: "a", Repairs: 5, Until: &metav1.Time{Time: now.Add(until)},
		}}
		a := &applier{pass: (&Reconciler{Now: func() time.Time { return now }}).newPass(config)}
		step := stepOf(plan.Change, matrix.CSI, "Deployment", "a")
		step.Cause = plan.Drift
		a.outcome.plan = &plan.Plan{Steps: []plan.Step{step}}
		a.noteDrift()
		require.Equal(t, reason, a.driftedCondition().Reason)
		config.Spec.Drift = nil
		require.Equal(t, until > 0, a.tolerated(step), "otherwise it is repaired after the pause")
	}
}

// However large the cluster, whatever is amiss in it, and however much everything has to say, the
// API server takes the status: it takes 1.5 MB, and JSON writes some letters with six.
func TestTheStatusIsBoundedWhateverHappens(t *testing.T) {
	testBound(t, strings.Repeat("many words ", 2_000), 300<<10)
	testBound(t, strings.Repeat("<&>", 7_000), 1400<<10)
}

func testBound(t *testing.T, long string, limit int) {
	const nodes = 300                // more are counted
	name := strings.Repeat("x", 250) // of a node, a resource, a repository
	p := siteOf(t, "", "")
	p.config.Spec.Suspend = true
	said := long[:maxText]
	found := assess.Finding{Node: name, Subject: said, Reason: fault.Incomplete, Message: said, Remedy: said}
	findings := slices.Repeat([]assess.Finding{found}, nodes)
	health := map[matrix.Driver]assess.Health{}
	p.outcome.report = &assess.Report{Drivers: health, Nodes: findings, NodesAll: nodes}
	p.outcome.plan = &plan.Plan{}
	p.decision = decision{reasons: map[matrix.Driver][]string{}, withdrawn: map[matrix.Driver]string{}}
	for _, d := range inOrder {
		health[d] = assess.Health{Findings: findings[:20]}
		p.decision.releases = append(p.decision.releases, matrix.ReleaseID{Driver: d, Version: mustVersion("1.0.0")})
		p.decision.withdrawn[d] = long
		for range 1000 {
			p.decision.reasons[d] = append(p.decision.reasons[d], long)
			p.decision.warnings = append(p.decision.warnings, matrix.Warning{Text: long})
			p.outcome.plan.Steps = append(p.outcome.plan.Steps, plan.Step{Action: plan.Change, ID: inventory.ID{Key: inventory.Key{Kind: "X", Name: long[:60]}}, Reason: long})
		}
	}
	var checked []preflight.Result
	for i := range 64 {
		checked = append(checked, preflight.Result{ID: preflight.ID(fmt.Sprintf("check-%d", i)), Action: preflight.BlockInstall, On: fmt.Sprintf("%s%d", name, i),
			Objects: slices.Repeat([]string{long}, preflight.MaxObjects), Count: nodes, Found: long, Why: long, Remedy: long})
	}
	p.facts.checks.ran, p.facts.checks.status = true, preflight.Status(checked)
	for i := range maxDrift {
		e := v1alpha1.DriftStatus{Driver: "csi", Kind: "ValidatingWebhookConfiguration", Namespace: name, Name: name,
			Fields: long[:maxDriftFields], Manager: long[:maxDriftFields]}
		p.outcome.drift = append(p.outcome.drift, e)
		e.Name, e.Repairs, e.Until = fmt.Sprintf("%s%03d", name[:60], i), 5, &metav1.Time{Time: p.now}
		p.outcome.drift = append(p.outcome.drift, e)
	}
	p.outcome.drift = listed(p.outcome.drift)
	history := revision.Histories{}
	for i := range 3 * 24 {
		rev := revision.Revision{Bundle: fmt.Sprintf("%s@sha256:%064d", name, i), Releases: []string{"snapshot-controller@8.2.0", "csi@3.7.3"}}
		group := revision.Groups[i%3]
		begun := history[group].Start(rev, revision.Beginning{Now: p.now})
		history[group] = begun.Fail(long, revision.Attempt{}, p.now).Bounded(3)
	}
	p.inventory = inventory.Of(inventory.Entry{}).WithMemory(inventory.Memory{Revisions: history})
	p.outcome.resolved, p.outcome.applied = errors.New(long), &fault.Error{Reason: fault.Corrupt, Hint: long, Err: errors.New(long)}
	p.Record(p.config)
	p.config.Status.HandledReconcileAt = name
	p.config.Status.Candidate = &v1alpha1.CandidateStatus{Name: "a", Message: long[:maxText]}
	p.config.Status.Rollout = &v1alpha1.RolloutStatus{Message: long[:maxText]}
	for i := range maxOthers {
		other := fmt.Sprintf("%s%03d", name, i)
		p.config.Status.Rollout.Others = append(p.config.Status.Rollout.Others, v1alpha1.CanaryNode{Name: other, Reason: "Joined"})
	}
	size, err := json.Marshal(p.config.Status)
	require.NoError(t, err)
	require.Less(t, len(size), limit)
	require.Contains(t, p.config.Status.NodesReady, fmt.Sprintf("/%d", nodes))
	steps := p.config.Status.Plan
	require.Len(t, steps.Steps, maxPlanSteps)
	require.Equal(t, len(p.outcome.plan.Steps)-maxPlanSteps, steps.Omitted)
	require.Len(t, p.config.Status.Drift, maxDrift, "what is left alone is known from there")
}

// routed is the way of a site on Kubernetes 1.33 and vCenter 8.0.3, with the pair for it, to what is assumed, one line
// for each thing that is done or lacks.
func routed(t *testing.T, bundle string, a Assume) []string {
	s := siteOf(t, bundle, pair133)
	upgrades, err := a.upgrades(&s.facts)
	require.NoError(t, err)
	q, err := s.ofMatrix()
	require.NoError(t, err)
	newest := matrix.ReleaseID{Driver: matrix.CSI, Version: mustVersion("3.7.3")}
	path, _ := q.Path([]decide.OneWay{{ReleaseID: newest, Why: "it moves volumes"}}, upgrades)
	var out []string
	for _, h := range path {
		if h.To != "" {
			out = append(out, h.To)
		}
		for _, why := range h.Lacks {
			out = append(out, "lacks "+why)
		}
		for _, m := range h.Moves {
			line := fmt.Sprintf("%s %s->%s", m.Driver, m.From, m.To)
			if m.OneWay != "" {
				line += " one way"
			}
			out = append(out, line)
		}
	}
	return out
}

func TestRoute(t *testing.T) {
	minor := matrix.Minor{Major: 1, Minor: 34}
	nine := map[string]matrix.Version{"": mustVersion("9.0.0")}
	for name, c := range map[string]struct {
		bundle string
		assume Assume
		want   []string // each the beginning of a line
	}{
		"a newer release":                     {both, Assume{}, []string{"csi 3.5.1->3.7.3 one way"}},
		"storage first, then the cloud after": {both + " cpi@1.34.0", Assume{Kubernetes: minor}, []string{"csi 3.5.1->3.7.3", "Kubernetes 1.34", "cpi 1.33.1->1.34.0"}},
		"the bundle lacks the cloud provider": {both, Assume{Kubernetes: minor}, []string{"csi 3.5.1->3.7.3", "Kubernetes 1.34", "lacks the bundle has no drivers for it: cpi@1.34."}},
		"vCenters come first":                 {both + " cpi@1.34.0", Assume{Kubernetes: minor, VCenters: nine}, []string{"csi 3.5.1->3.7.3", "vCenter vc 9.0.0", "Kubernetes 1.34", "cpi 1.33.1->1.34.0"}},
		"minor after minor":                   {both + " cpi@1.34.0", Assume{Kubernetes: minor.Next()}, []string{"csi 3.5.1->3.7.3", "Kubernetes 1.34", "cpi 1.33.1->1.34.0", "Kubernetes 1.35", "lacks "}},
	} {
		t.Run(name, func(t *testing.T) {
			requireBegin(t, c.want, routed(t, c.bundle, c.assume))
		})
	}
}

func TestWhatIsAssumedIsLaterThanWhatIsThere(t *testing.T) {
	s := &facts{}
	s.site.Kubernetes, s.site.VCenters = mustVersion("1.33.4"), []matrix.VCenter{{Name: "vc", Version: mustVersion("8.0.3")}}
	for hint, a := range map[string]Assume{
		"of 1.33 already":                     {Kubernetes: matrix.Minor{Major: 1, Minor: 32}},
		"the cluster is of 1.33":              {Kubernetes: matrix.Minor{Major: 1, Minor: 99}},
		"vCenter vc is of 8.0.3 already":      {VCenters: map[string]matrix.Version{"": mustVersion("7.0.3")}},
		"no vCenter that drivers use has tha": {VCenters: map[string]matrix.Version{"vd": mustVersion("9.0.0")}},
	} {
		_, err := a.upgrades(s)
		require.ErrorContains(t, err, hint)
		require.Regexp(t, `--(k8s|vsphere)\b`, fault.HintOf(err))
	}
	all, err := Assume{Kubernetes: matrix.Minor{Major: 1, Minor: 33}, VCenters: map[string]matrix.Version{"vc": mustVersion("8.0.3")}}.upgrades(s)
	require.NoError(t, err)
	require.Empty(t, all, "it is there already")
	s.site.VCenters = nil
	_, err = Assume{VCenters: map[string]matrix.Version{"": mustVersion("9.0.0")}}.upgrades(s)
	require.ErrorContains(t, err, "the version is known")
}

func TestWhatTheBundleLacksIsFetchedByCommands(t *testing.T) {
	end := matrix.Facts{Kubernetes: mustVersion("1.34.0"), VCenters: []matrix.VCenter{{Version: mustVersion("9.0.0")}}}
	s, b := siteOf(t, pair133, ""), holding(t, "sha256:new", "csi@3.7.3")
	s.bundle = b
	require.Equal(t, []string{
		"vdo-bundle lock --drivers cpi,snapshot-controller,csi --k8s 1.33-1.34 --vsphere 9.0.0 -o lock.yaml",
		"vdo-bundle pull --lock lock.yaml --sign-key KEY -o drivers.tar",
		"vdo-bundle push drivers.tar mirror.site/vdo:TAG",
	}, s.fetching(end, false))
	b.verified, b.contents.MatrixSignature, b.source.Status.Tag = true, []byte("theirs"), "stable"
	b.contents.Lock.Releases = append(b.contents.Lock.Releases,
		bundle.Release{Driver: bundle.Operator, Images: map[string]string{"vdo-operator": "up.example/vdo:v1"}},
		bundle.Release{Driver: bundle.JumpHost, Images: map[string]string{"vdo-jumphost": "up.example/jump:v1"}})
	commands := s.fetching(end, false)
	require.Contains(t, commands[0], " 9.0.0 --matrix MATRIX --operator up.example/vdo:v1 --jump-host up.example/jump:v1 --services sip -o")
	require.Contains(t, commands[1], " --matrix MATRIX ", "the same as the lock")
	require.Contains(t, commands[2], "mirror.site/vdo:stable --key KEY.pub", "the site verified what runs")
	b.contents.MatrixSignature = nil
	require.Contains(t, s.fetching(end, true)[0], " --matrix MATRIX ", "the present one lists none")
}

func TestAPreviewExplainsEachGateOnce(t *testing.T) {
	const refused = "no signature is accepted"
	p, out := siteOf(t, both, ""), &Preview{}
	p.upgrades.verdicts = map[revision.Group]decide.Verdict{
		matrix.CPI: {Action: decide.Wait, Reason: decide.Interlocked, Message: refused},
		matrix.CSI: {Action: decide.Gated, Reason: decide.DowngradeRefused, Message: "csi@3.7.3 runs"}}
	p.gated = fault.Errorf(fault.Untrusted, "install from", "DriverBundle site", "", refused)
	p.bundle.source.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Message: refused}}
	p.explain(out)
	require.NotContains(t, strings.Join(out.Warnings, ""), refused)
	require.Equal(t, []Gated{{Reason: "Untrusted", Message: "install from DriverBundle site: " + refused},
		{Reason: "DowngradeRefused", Message: "csi@3.7.3 runs", Do: "vdoctl upgrade approve REVISION --allow-downgrade, " +
			"unless a release cannot be gone back from; `vdoctl upgrade list` names REVISION once the DriverBundle has " +
			"this bundle"}}, out.Gated)
}

// The next minor of Kubernetes, and the next update and major version of each vCenter; the rest is as of a route.
func TestWhatTheNextUpgradesNeed(t *testing.T) {
	const serves = " is installed and serves "
	const unlisted = "csi@9.9.9 is installed, and the matrix does not list it"
	for name, c := range map[string]struct {
		bundle, installed string
		edit              func(*pass)
		lacks             []string // the beginning of each
	}{
		"the bundle and what is installed serve": {both + " cpi@1.34.0", "cpi@1.33.1 csi@3.7.3", nil, nil},
		"neither serves the minor": {both, "cpi@1.33.1 csi@3.5.1", nil, []string{
			"Kubernetes 1.34: csi@3.5.1" + serves + "Kubernetes", "Kubernetes 1.34: the bundle has no drivers for it: cpi@1.34."}},
		"what is installed does not serve the next vCenters": {both + " cpi@1.34.0", "csi@2.7.3", nil, []string{
			"Kubernetes 1.34: csi@2.7.3" + serves + "Kubernetes",
			"vCenter vc 8.0.4: csi@2.7.3" + serves + "vSphere", "vCenter vc 9.0.0: csi@2.7.3" + serves + "vSphere"}},
		"what is installed is not listed": {both + " cpi@1.34.0", "csi@9.9.9", nil, []string{
			"Kubernetes 1.34: " + unlisted, "vCenter vc 8.0.4: " + unlisted, "vCenter vc 9.0.0: " + unlisted}},
		"a pin is in the way": {both + " cpi@1.34.0", "", func(s *pass) {
			s.config.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "cpi", Version: "1.33.1"}}
		}, []string{"Kubernetes 1.34: the bundle has no drivers for it: a release without the pins"}},
		"the matrix lacks a driver": {both + " cpi@1.35.0", "", func(s *pass) {
			s.site.Kubernetes = mustVersion("1.35.0")
		}, []string{"Kubernetes 1.36: the matrix lists no csi for it: fetch a bundle with "}},
	} {
		t.Run(name, func(t *testing.T) {
			s := siteOf(t, c.bundle, c.installed)
			if c.edit != nil {
				c.edit(s)
			}
			requireBegin(t, c.lacks, resolved(s).outlook.Lacks)
		})
	}
}

// requireBegin requires as many lines, each with its beginning.
func requireBegin(t *testing.T, want, got []string) {
	require.Len(t, got, len(want), "%s", strings.Join(got, "\n"))
	for i, begins := range want {
		require.True(t, strings.HasPrefix(got[i], begins), "%q does not begin with %q", got[i], begins)
	}
}
