package vdoctl

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// checks shows what the operator's checks of cluster and vCenters found last: what blocks,
// what warns, and how it is put right. Findings do not say whether everything is ready: what
// is held back for their sake waits, and is shown there.
func (o *statusOptions) checks(l *lines, s statusReport) {
	p := s.Preflight
	if p == nil {
		return
	}
	l.printf("\n%s  %s%s", o.paint(bold, "checks"), command.Plural(p.Passed, "passed", "passed"), o.lookedAt(p, s.RolledOut))
	for i := range p.Results {
		r := &p.Results[i]
		l.printf("  %s %s%s: %s", o.checkWord(r.Action), r.ID, of(r), strings.ReplaceAll(r.Found, "\n", "; "))
		if i == len(p.Results)-1 || p.Results[i+1].Remedy != r.Remedy {
			l.prose(indent+"do ", indent+"   ", r.Remedy)
		}
	}
	if p.Omitted > 0 {
		l.printf("  and %d more: `vdoctl check`", p.Omitted)
	}
}

// lookedAt says when the checks were made, and where that was before what runs now was there,
// so that what they found may be over. How long ago it was is left out of --watch, which shows a
// screen where it changes.
func (o *statusOptions) lookedAt(p *v1alpha1.PreflightStatus, now *v1alpha1.RevisionStatus) string {
	if p.CheckedAt == nil {
		return ", of what the bundle holds alone: cluster and vCenters were not looked at"
	}
	text := ", at " + when(*p.CheckedAt)
	if ago := o.now().Sub(p.CheckedAt.Time); !o.watch && ago > 0 {
		text += " (" + duration.HumanDuration(ago) + " ago)"
	}
	if now != nil && p.CheckedAt.Before(&now.Since) {
		text += ", before the roll-out of " + now.Name + " ended at " + when(now.Since) + "; to look now: vdoctl check"
	}
	return text
}

// checkWord is what a finding does.
func (o *statusOptions) checkWord(action string) string {
	var a preflight.Action
	switch err := a.UnmarshalText([]byte(action)); {
	case err != nil: // Disabled
		return "off  "
	case a >= preflight.BlockUpgrade:
		return o.paint(red, "block")
	case a == preflight.Warn:
		return o.paint(yellow, "warn ")
	}
	return "pass "
}

// of is where a finding is, on which objects.
func of(r *v1alpha1.PreflightResult) string {
	text := ""
	if r.VCenter != "" {
		text = " in " + r.VCenter
	}
	if len(r.Objects) == 0 {
		return text
	}
	text += " on " + r.Objects[0]
	if more := r.Count - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// waits notes each condition that is not well. Ready sums up the others, and is named only
// where none of them says more.
func (r *statusReport) waits(object string, generation, observed int64, conditions []metav1.Condition) {
	if observed < generation || len(conditions) == 0 {
		r.Waiting = append(r.Waiting, waiting{object, "NotObserved", "the operator has not seen it as it is now; if that stays so: `kubectl -n " + operatorNamespace + " get deployment vdo-operator`"})
		return
	}
	var ready *metav1.Condition
	found := false
	for i := range conditions {
		c := &conditions[i]
		says := waiting{object, c.Reason, c.Type + ": " + c.Message}
		switch well := wellStatus(c.Type); c.Type {
		case v1alpha1.ConditionReady:
			ready = c
		case v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled:
		case v1alpha1.ConditionUpgradeable:
			if c.Status != well {
				r.Ahead = append(r.Ahead, says)
			}
		case v1alpha1.ConditionUpgraded:
			switch {
			case c.Status == well:
			case meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady) && bidesItsTime(c):
				r.Ahead = append(r.Ahead, says)
			default:
				r.Waiting, found = append(r.Waiting, says), true
			}
		default:
			if c.Status != well {
				r.Waiting = append(r.Waiting, says)
				found = true
			}
		}
	}
	if !found && ready != nil && ready.Status != metav1.ConditionTrue {
		r.Waiting = append(r.Waiting, waiting{object, ready.Reason, ready.Message})
	}
}

// wellStatus is the status that a condition has while all is well.
func wellStatus(condition string) metav1.ConditionStatus {
	switch condition {
	case v1alpha1.ConditionSuspended, v1alpha1.ConditionDrifted:
		return metav1.ConditionFalse
	}
	return metav1.ConditionTrue
}

// bidesItsTime tells whether an upgrade is not in force since nobody has approved it yet, its window
// is closed or a node or vCenter is being changed: that may be so for weeks, and what runs is as it
// should be. One that failed, or is refused, is no such.
func bidesItsTime(upgraded *metav1.Condition) bool {
	return slices.Contains([]string{"NotApproved", "WindowClosed", "Interlocked"}, upgraded.Reason)
}
