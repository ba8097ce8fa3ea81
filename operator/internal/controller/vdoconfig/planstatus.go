package vdoconfig

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// status.plan is what is still to be done after a pass: its plan without what it did. Where
// something is held back (a bundle that is not fresh, a vCenter that is away, an upgrade that
// waits for a person) it is what would be done without the hold: see pass.foresee. It names
// fields and never their values, so there is nothing secret in it.
const (
	maxPlanSteps  = 200
	maxPlanBytes  = 16 << 10 // of all steps, as they are stored
	maxPlanReason = 256
	maxPlanHeld   = 1 << 10
)

// shown is a plan as the status has it.
type shown struct {
	decision decision
	plan     *plan.Plan
	done     []plan.Step // by this pass
	held     string      // why the rest is not done now
}

// status is the plan for a person, as far as a status has room: pure.
func (s shown) status() *v1alpha1.PlanStatus { return s.within(maxPlanSteps, maxPlanBytes) }

func (s shown) within(steps, bytes int) *v1alpha1.PlanStatus {
	st := &v1alpha1.PlanStatus{Held: condition.Cut(s.held, maxPlanHeld)}
	if from := s.decision.sources(); len(from) == 1 {
		st.Bundle = from[0].reference()
	} else if s.decision.from != nil {
		st.Bundle = s.decision.from.reference()
	}
	for _, id := range s.decision.releases {
		st.Releases = append(st.Releases, id.String())
	}
	if s.plan == nil {
		return st
	}
	counts := map[plan.Action]int{}
	var todo []plan.Step
	for _, step := range s.plan.Steps {
		if has(s.done, step.Key) {
			if step.Action != plan.Prune {
				counts[plan.Unchanged]++
			}
			continue
		}
		counts[step.Action]++
		if step.Writes() || step.Action == plan.Wait || step.Action == plan.Conflict {
			todo = append(todo, step)
		}
	}
	for action, n := range counts {
		st.Actions = append(st.Actions, v1alpha1.PlanCount{Action: string(action), Count: n})
	}
	slices.SortFunc(st.Actions, func(a, b v1alpha1.PlanCount) int { return cmp.Compare(a.Action, b.Action) })
	st.Steps, st.Omitted = planSteps(todo, steps, bytes)
	return st
}

func has(steps []plan.Step, key inventory.Key) bool {
	return slices.ContainsFunc(steps, func(s plan.Step) bool { return s.Key == key })
}

// planSteps lists as many steps as there is room for, and counts the others.
func planSteps(todo []plan.Step, steps, room int) (listed []v1alpha1.PlanStep, omitted int) {
	slices.SortStableFunc(todo, func(a, b plan.Step) int {
		return cmp.Or(slices.Index(inOrder, a.Driver)-slices.Index(inOrder, b.Driver), a.Compare(b.Key))
	})
	for i, s := range todo {
		step := v1alpha1.PlanStep{
			Action: string(s.Action), Driver: string(s.Driver), Kind: s.Kind, Namespace: s.Namespace, Name: s.Name,
			Cause: string(s.Cause), Reason: condition.Cut(s.Reason, maxPlanReason),
		}
		if !s.Writes() || s.Action == plan.Prune {
			step.Cause = ""
		}
		room -= size(step)
		if i == steps || room < 0 {
			return listed, len(todo) - i
		}
		listed = append(listed, step)
	}
	return listed, 0
}

func size(s v1alpha1.PlanStep) int {
	data, err := json.Marshal(s)
	if err != nil {
		return maxPlanBytes // never: it is made of texts
	}
	return len(data) + 1
}

// planStatus is what is still to be done, or what was known before where this pass could not plan.
func (p *result) planStatus(before *v1alpha1.PlanStatus) *v1alpha1.PlanStatus {
	switch {
	case p.outcome.foreseen != nil:
		return p.outcome.foreseen.status()
	case p.outcome.plan != nil:
		return shown{decision: p.decision, plan: p.outcome.plan, done: p.outcome.did, held: p.whyHeld()}.status()
	case p.outcome.applied != nil:
		return before
	}
	return nil
}

func (p *result) whyHeld() string {
	switch {
	case p.outcome.plan.Writes() == 0:
		return ""
	case stopped(&p.config.Spec):
		return stoppedBy(&p.config.Spec)
	case p.outcome.gate != "":
		return "waiting for " + p.outcome.gate
	}
	return ""
}

// stopped tells whether nothing is written to the cluster by the user's wish.
func stopped(spec *v1alpha1.VDOConfigSpec) bool { return spec.Suspend || spec.DryRun }

func stoppedBy(spec *v1alpha1.VDOConfigSpec) string {
	if spec.DryRun {
		return "spec.dryRun is set"
	}
	return "spec.suspend is set"
}

// foresee plans what would be done if nothing were held back, for status.plan. Only a bundle whose bytes satisfy the
// trust policy of now is planned from: what nobody trusts is not given to the API server, be it to try it.
func (p *pass) foresee(ctx context.Context) {
	why := p.heldBack()
	if why == "" || p.site.frozen != "" || !p.site.bundle.verified {
		return
	}
	q := *p
	q.site = p.site.released()
	q.decision = q.site.resolve()
	p.outcome.foreseen = &shown{decision: q.decision, held: why}
	if err := q.imagine(ctx, p.outcome.foreseen); err != nil {
		p.outcome.foreseen.held += "; it cannot be planned: " + fault.Text(err)
	}
}

func (p *pass) imagine(ctx context.Context, s *shown) error {
	if p.decision.refused != nil {
		return p.decision.refused
	}
	rendered, err := p.site.render(p.decision)
	if err := joinAll(rendered.refused, err); err != nil {
		return err
	}
	tried, err := p.dryRun(ctx, rendered)
	if err != nil {
		return err
	}
	made := p.site.plan(tried)
	s.plan = &made
	return nil
}

// heldBack is why a release or its content may not change now, "" where all may.
func (p *pass) heldBack() string {
	held := []error{p.site.hold()}
	for _, d := range revision.Groups {
		held = append(held, p.site.holds()[d])
	}
	if err := fault.Join(held...); err != nil {
		return fault.Text(err)
	}
	v, _ := p.site.revisions.first()
	return v.Message
}

func (s *site) released() site {
	free := *s
	free.ungated, free.bundleHeld, free.revisions, free.checks = true, false, revisions{}, checks{}
	if s.checks.kept[matrix.CPI] {
		free.spec.CloudProvider = s.config.Spec.CloudProvider
	}
	if s.checks.kept[matrix.CSI] {
		free.spec.StorageProvider = s.config.Spec.StorageProvider
	}
	free.notes = slices.Clone(s.notes)
	return free
}
