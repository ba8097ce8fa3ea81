package vdoconfig

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
)

// changes are the drivers that anything but a repair would be done with.
func (out *Preview) changes() map[matrix.Driver]bool {
	all := map[matrix.Driver]bool{}
	for _, h := range out.Route {
		for _, m := range h.Moves {
			all[m.Driver] = true
		}
	}
	if out.Plan == nil {
		return all
	}
	for i := range out.Plan.Steps {
		if s := &out.Plan.Steps[i]; s.Cause != string(plan.Drift) {
			all[matrix.Driver(s.Driver)] = true
		}
	}
	return all
}

// explain adds why what the route says would not be done: what holds all drivers, those
// drivers that would change, be it by then, and the upgrade that begins the route.
func (p *pass) explain(out *Preview, byThen map[matrix.Driver]error) {
	s := &p.site
	out.Held = append(heldBy("", s.hold()), out.Held...)
	changes, holds := out.changes(), s.holds()
	for _, d := range inOrder {
		out.Held = append(out.Held, heldBy(string(d), s.faults[d])...)
		if !changes[d] {
			continue
		}
		for _, h := range append(heldBy(string(d), holds[d]), heldBy(string(d), byThen[d])...) {
			if !slices.Contains(out.Held, h) {
				out.Held = append(out.Held, h)
			}
		}
	}
	p.explainBundle(out, len(changes) > 0)
	p.explainUnknown(out, len(changes) > 0)
	out.Held = append(out.Held, p.explainGates()...)
	if stopped(&p.config.Spec) {
		out.Held = append(out.Held, Held{Reason: "Stopped", Message: stoppedBy(&p.config.Spec) + ": the operator changes nothing", Do: "set it to false"})
	}
	if len(changes) == 0 {
		p.explainNotReady(out)
	}
	if st := s.checks.status; st != nil {
		for i := range st.Results {
			if blocks(st.Results[i].Action) {
				out.Checks = append(out.Checks, st.Results[i])
			}
		}
	}
	out.Warnings = slices.Compact(slices.Sorted(slices.Values(out.Warnings)))
}

// explainGates says why drivers do not change to what is offered, once for those that wait for the same.
func (p *pass) explainGates() []Held {
	v := p.site.revisions.verdict
	if v.Holds() && len(v.Gates) == 0 {
		return []Held{{Reason: string(v.Reason), Message: v.Message, Do: upgrade.ToDo(v.Reason, p.named())}}
	}
	var all []Held
	for _, g := range v.Gates {
		h := Held{Reason: string(g.Reason), Message: g.Message, Do: upgrade.ToDo(g.Reason, p.named())}
		if !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	return all
}

// explainBundle tells of a DriverBundle that is not Ready though what it accepted may be
// installed: where the mirror does not answer, nodes would have no images from it either, and where
// nothing would be done, the bundle that is asked for is what is held back.
func (p *pass) explainBundle(out *Preview, changes bool) {
	b := p.site.bundle.source
	ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse || p.site.hold() != nil {
		return
	}
	text := "DriverBundle " + b.Name + " is not Ready: " + ready.Message
	if reason := fault.Reason(ready.Reason); changes && (reason == fault.Unreachable || reason == fault.Unauthorized) {
		out.Held = append(out.Held, Held{Reason: ready.Reason, Message: text + "; the nodes need its images from there", Do: "see that the mirror answers before anything is changed"})
		return
	}
	if !changes && !fault.Reason(ready.Reason).Passing() { // else the mirror is away, and says nothing of what is asked for
		out.Held = append(out.Held, Held{Reason: ready.Reason, Message: text})
		return
	}
	out.Warnings = append(out.Warnings, text+"; this is planned from the bundle that it accepted before")
}

// explainNotReady adds what keeps what is asked for from being there, where nothing would be done:
// the vCenters that hold it back or, where nothing else says it, why the VDOConfig is not Ready,
// which says nothing of another bundle or of an upgrade that is assumed.
func (p *pass) explainNotReady(out *Preview) {
	_, held := p.site.vcentersHeld()
	out.Held = append(out.Held, heldBy("", held)...)
	ready := meta.FindStatusCondition(p.config.Status.Conditions, v1alpha1.ConditionReady)
	said := len(out.Held) > 0 || len(out.Route) > 1 || p.site.another(p.site.bundle)
	if said || ready == nil || ready.Status != metav1.ConditionFalse || ready.ObservedGeneration != p.config.Generation {
		return
	}
	out.Held = append(out.Held, Held{Reason: ready.Reason, Message: "VDOConfig " + p.config.Name + " is not Ready: " + ready.Message, Do: "see `vdoctl status`"})
}

// explainUnknown says which gates nobody can know from here.
func (p *pass) explainUnknown(out *Preview, changes bool) {
	if c := &p.site.checks; changes && c.made && c.pending {
		out.Warnings = append(out.Warnings, "what the checks of cluster and vCenters keep back is not known: the operator has not made them for what is asked for now; vdoctl check makes them")
	}
	if slices.ContainsFunc(out.Route[1:], func(h Hop) bool { return len(h.Moves) > 0 }) {
		out.Warnings = append(out.Warnings, "gates after an upgrade (checks, approval, windows, other changes) are known only then")
	}
}

// named is the name to consent to the offered upgrade by. There is none for an upgrade that is only
// previewed: consent is to what waits.
func (p *pass) named() string {
	if c := p.config.Status.Candidate; c != nil && p.site.revisions.offered != nil && c.Name == p.site.revisions.offered.Name() {
		return c.Name
	}
	return "REVISION, which `vdoctl upgrade list` names once the bundle is the DriverBundle's"
}

func blocks(action string) bool {
	var a preflight.Action
	return a.UnmarshalText([]byte(action)) == nil && a >= preflight.BlockUpgrade
}

// heldBy are the faults of an error.
func heldBy(driver string, err error) []Held {
	if several, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // only what was joined last is told apart
		var all []Held
		for _, e := range several.Unwrap() {
			all = append(all, heldBy(driver, e)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []Held{{Reason: string(fault.ReasonOf(err)), Driver: driver, Message: err.Error(), Do: fault.HintOf(err)}}
}
