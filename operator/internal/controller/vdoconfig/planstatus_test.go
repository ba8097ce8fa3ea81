package vdoconfig

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
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
	got := shown{decision: d, done: []plan.Step{done, pruned}, plan: &plan.Plan{Steps: []plan.Step{
		done, pruned, stepOf(plan.Unchanged, matrix.CPI, "Role", "same"), stepOf(plan.Keep, matrix.CSI, "StorageClass", "kept"),
		stepOf(plan.Change, matrix.CSI, "Deployment", "b"), stepOf(plan.Create, matrix.CSI, "Deployment", "a"),
		stepOf(plan.Wait, matrix.CPI, "DaemonSet", "z"), stepOf(plan.Prune, matrix.CSI, "ConfigMap", "old"),
	}}}.within(maxPlanSteps)
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
	s := withBoth(t, "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.7.3", "")
	s.desired = s.chooseReleases()
	p := &pass{result: result{decided: *s}}
	p.decision = s.resolve()
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
	p := &result{decided: requesting(&v1alpha1.VDOConfig{})}
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
		a := &applier{pass: &pass{result: result{decided: requesting(config)}}}
		a.now = now
		step := stepOf(plan.Change, matrix.CSI, "Deployment", "a")
		step.Cause = plan.Drift
		a.outcome.plan = &plan.Plan{Steps: []plan.Step{step}}
		a.noteDrift()
		require.Equal(t, reason, a.driftedCondition().Reason)
	}
}
