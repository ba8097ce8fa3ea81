package vdoconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drift"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
)

const (
	maxDrift       = 50  // listed objects; contested ones past the limit are repaired again
	maxDriftFields = 256 // bytes of an object's fields

	reasonDrift     = "DriftFound"
	reasonContested = "DriftContested"
)

// tolerated reports whether a step is drift that the status shows and the operator does not repair.
func (p *result) tolerated(s plan.Step) bool {
	if s.Cause != plan.Drift || !s.Writes() {
		return false
	}
	if d := p.config.Spec.Drift; d != nil && d.Mode == v1alpha1.DriftWarn {
		return s.Action != plan.Create || !p.outcome.plan.Changing[s.Driver]
	}
	entry, known := drift.Find(p.config.Status.Drift, s.Key)
	return known && s.Action != plan.Create && drift.Paused(entry, p.now)
}

// noteDrift makes status.drift: differences without a repair, and objects that were repaired so often that the operator
// pauses.
func (a *applier) noteDrift() {
	for _, s := range a.outcome.plan.Steps {
		was, known := drift.Find(a.config.Status.Drift, s.Key)
		switch {
		case s.Cause == plan.Drift && s.Writes() && has(a.outcome.did, s.Key):
			if s.Action == plan.Create {
				break // a deleted object has no contested field, and its driver does not work without it
			}
			if entry, contested := drift.Repaired(a.driftOf(s, was), a.repairs.Repaired(s.Key, a.now), a.now); contested {
				a.outcome.drift = append(a.outcome.drift, entry)
			}
		case a.tolerated(s):
			e := a.driftOf(s, was)
			if !drift.Paused(was, a.now) { // the mode is Warn: after its pause it is not contested
				e.Repairs, e.Until = 0, nil
			}
			a.outcome.drift = append(a.outcome.drift, e)
		case known && drift.Paused(was, a.now):
			a.outcome.drift = append(a.outcome.drift, was) // as requested, until another change
		}
	}
	a.outcome.drift, a.outcome.driftAll = listed(a.outcome.drift), len(a.outcome.drift)
}

// listed returns the entries for the status. Contested objects come first: the next pass reads them there.
func listed(all []v1alpha1.DriftStatus) []v1alpha1.DriftStatus {
	location := func(e v1alpha1.DriftStatus) int {
		if e.Until != nil {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(x, y v1alpha1.DriftStatus) int {
		return cmp.Or(location(x)-location(y), drift.KeyOf(x).Compare(drift.KeyOf(y)))
	})
	return all[:min(len(all), maxDrift)]
}

func (a *applier) driftOf(s plan.Step, was v1alpha1.DriftStatus) v1alpha1.DriftStatus {
	e := v1alpha1.DriftStatus{
		Driver: string(s.Driver), Kind: s.Kind, Namespace: s.Namespace, Name: s.Name,
		Manager: was.Manager, Repairs: was.Repairs, Until: was.Until,
	}
	live, dry := a.live[s.Key], a.dry[s.Key].Object
	if live == nil || dry == nil {
		return e
	}
	fields := plan.Diff(live, dry)
	e.Fields = condition.Cut(strings.Join(plan.Fields(fields), ", "), maxDriftFields)
	if drift.Paused(was, a.now) && drift.Runs(s.Kind, fields) {
		a.outcome.contested = append(a.outcome.contested, s.Driver)
	}
	if by := drift.Changer(live, cluster.FieldManager, fields); by != "" {
		e.Manager = condition.Cut(by, maxDriftFields)
	}
	return e
}

func driftText(e v1alpha1.DriftStatus) string {
	text := drift.KeyOf(e).String() + " was deleted"
	if e.Fields != "" {
		text = drift.KeyOf(e).String() + " differs in " + e.Fields
	}
	if e.Manager != "" {
		text += " (last set by " + e.Manager + ")"
	}
	return text
}

func contestText(e v1alpha1.DriftStatus) string {
	who := "another manager"
	if e.Manager != "" {
		who = "field manager " + e.Manager
	}
	what := "changes it"
	if e.Fields != "" {
		what = "sets " + e.Fields
	}
	return fmt.Sprintf("%s was repaired %d times in a row, and %s %s again each time: it is not repaired until %s; have that tool leave it, or name the field in spec.drift.ignore where that permits it",
		drift.KeyOf(e), e.Repairs, who, what, e.Until.UTC().Format("15:04:05 MST"))
}

// driftedCondition is True while an unrepaired difference exists, and absent otherwise.
func (p *result) driftedCondition() metav1.Condition {
	const typ = v1alpha1.ConditionDrifted
	if p.outcome.plan == nil {
		return metav1.Condition{} // not observed: it stays
	}
	if len(p.outcome.drift) == 0 {
		return condition.Absent(typ)
	}
	reason := reasonDrift
	var texts []string
	for _, e := range p.outcome.drift {
		if e.Until != nil {
			reason = reasonContested
			texts = append(texts, contestText(e))
			continue
		}
		texts = append(texts, driftText(e))
	}
	texts = append(texts, make([]string, max(0, p.outcome.driftAll-len(texts)))...) // counted only
	return metav1.Condition{Type: typ, Status: metav1.ConditionTrue, Reason: reason, Message: few(texts)}
}
