package condition

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// State is one row of the package's table.
type State string

// All states.
const (
	StateReady       State = "Ready"
	StateProgressing State = "Progressing"
	StateWaiting     State = "Waiting"
	StateFault       State = "Fault"
	StateSuspended   State = "Suspended"
)

// Phase is the result of a pass.
type Phase struct {
	State   State
	Message string // of Ready and Progressing; of Suspended the gated changes, or ""
	Err     error  // of Waiting and Fault
	// AtOnce is set for a Fault without grace, since more than the fault is wrong or unknown.
	AtOnce bool
}

// Report has all conditions of a pass. A controller computes it by one pure function; [Report.Set] sets it.
type Report struct {
	Phase Phase
	// Suspended is set if spec.suspend is, in any phase: health may still be assessed.
	Suspended bool
	// DryRun is set if spec.dryRun is, in any phase.
	DryRun bool
	// Parts are of types other than those of the phase. Set removes one without a status, keeps types that are not
	// listed, and ignores the zero part.
	Parts []metav1.Condition
}

// Set sets the conditions, parts first; now is the pass's time, for the grace of a fault.
func (r Report) Set(conds *[]metav1.Condition, generation int64, now time.Time) {
	for _, c := range r.Parts {
		if c.Status == "" {
			Remove(conds, c.Type)
			continue
		}
		Set(conds, generation, c)
	}
	switch p := r.Phase; p.State {
	case StateReady:
		SetReady(conds, generation, Judged("", nil, p.Message), "")
	case StateProgressing:
		SetReady(conds, generation, Pending("", p.Message), v1alpha1.ConditionReconciling)
	case StateWaiting:
		SetReady(conds, generation, False("", p.Err), v1alpha1.ConditionReconciling)
	case StateFault:
		p.fault(conds, generation, now)
	case StateSuspended:
		suspend(conds, generation, Stopped(r.DryRun), p.Message)
	}
	if !r.Suspended && !r.DryRun {
		Remove(conds, v1alpha1.ConditionSuspended)
		return
	}
	message := "spec.suspend is set: nothing is changed"
	if r.DryRun {
		message = "spec.dryRun is set: everything is read and tried, and nothing is written but this status"
	}
	Set(conds, generation, metav1.Condition{Type: v1alpha1.ConditionSuspended, Status: metav1.ConditionTrue, Reason: Stopped(r.DryRun), Message: message})
}

// fault sets Ready to False, with Stalled if only a person can help. A passing fault first leaves a Ready that is True
// for this generation, for [Grace]; Reconciling tells the fault, and when it began. So a restart changes nothing.
func (p Phase) fault(conds *[]metav1.Condition, generation int64, now time.Time) {
	c, beside := False("", p.Err), v1alpha1.ConditionStalled
	if Passing(p.Err) {
		beside = v1alpha1.ConditionReconciling
	}
	if p.AtOnce || !graced(*conds, generation, p.Err, now) {
		SetReady(conds, generation, c, beside)
		return
	}
	c.Type, c.Status = beside, metav1.ConditionTrue
	if Since(*conds, beside).IsZero() {
		c.LastTransitionTime = metav1.NewTime(now)
	}
	Set(conds, generation, c)
	Remove(conds, v1alpha1.ConditionStalled)
}

// suspend keeps Ready for the spec that it was observed of. Ready becomes Unknown if changes are known to be gated,
// or if it does not exist yet.
func suspend(conds *[]metav1.Condition, generation int64, reason, gated string) {
	if gated == "" && meta.FindStatusCondition(*conds, v1alpha1.ConditionReady) == nil {
		gated = "nothing was checked yet: spec.suspend is set"
	}
	if gated != "" {
		Set(conds, generation, metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: reason, Message: gated})
	}
	Remove(conds, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled)
}

// Stopped returns the reason of conditions while the user's spec forbids writes.
func Stopped(dryRun bool) string {
	if dryRun {
		return ReasonDryRun
	}
	return ReasonSuspended
}

// Judged returns the condition of an observed part: True with message, or False with the fault err.
func Judged(typ string, err error, message string) metav1.Condition {
	if err != nil {
		return False(typ, err)
	}
	return metav1.Condition{Type: typ, Status: metav1.ConditionTrue, Reason: ReasonSucceeded, Message: message}
}

// Pending returns the condition of a part that is unknown while work is under way.
func Pending(typ, message string) metav1.Condition {
	return metav1.Condition{Type: typ, Status: metav1.ConditionUnknown, Reason: ReasonProgressing, Message: message}
}

// Unseen returns the condition of a part that cannot be judged because of err; what is a sentence without a period
// that precedes its text.
func Unseen(typ, what string, err error) metav1.Condition {
	return metav1.Condition{Type: typ, Status: metav1.ConditionUnknown, Reason: reason(err), Message: what + ": " + fault.Text(err)}
}

// Absent returns a part without a condition.
func Absent(typ string) metav1.Condition { return metav1.Condition{Type: typ} }
