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

// The rows.
const (
	StateReady       State = "Ready"
	StateProgressing State = "Progressing"
	StateWaiting     State = "Waiting"
	StateFault       State = "Fault"
	StateSuspended   State = "Suspended"
)

// Phase is what a pass came to.
type Phase struct {
	State   State
	Message string // of Ready and Progressing; of Suspended what is held back, or ""
	Err     error  // of Waiting and Fault
	// AtOnce is set of a Fault that has no grace: more is not as it shall be.
	AtOnce bool
}

// Report is all that a pass has to say in conditions. A controller makes it by one pure
// function of what the pass found out; [Report.Set] sets it.
type Report struct {
	Phase Phase
	// Suspended is set where spec.suspend is, whatever the phase: health may be assessed all
	// the same.
	Suspended bool
	// DryRun is likewise of spec.dryRun.
	DryRun bool
	// Parts are of types beside those of the phase. One without a status is taken away; a
	// type that is not listed stays as it is. The zero part is of none.
	Parts []metav1.Condition
}

// Set sets the conditions, parts first; now is the pass's time, from which the grace of a
// fault is counted.
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

// fault says that the spec is not in effect: Stalled where only a person can help. One that begins takes Ready from
// no one, such as a mirror that does not answer for a moment: where Ready is True, speaks of this generation, and the
// fault can pass, Ready stays, and Reconciling says what is at fault, for [Grace] from when it became True. Nothing has
// to be remembered, and a restart changes nothing.
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

// suspend says that nothing is being done by the user's wish. Where it is known what is gated, the spec is not in
// effect, and Ready is Unknown. Else what Ready says stays, for the spec that it was observed of; where there is none
// yet it is Unknown.
func suspend(conds *[]metav1.Condition, generation int64, reason, gated string) {
	if gated == "" && meta.FindStatusCondition(*conds, v1alpha1.ConditionReady) == nil {
		gated = "nothing was looked at yet: spec.suspend is set"
	}
	if gated != "" {
		Set(conds, generation, metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: reason, Message: gated})
	}
	Remove(conds, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled)
}

// Stopped is the reason of conditions where nothing is written by the user's wish.
func Stopped(dryRun bool) string {
	if dryRun {
		return ReasonDryRun
	}
	return ReasonSuspended
}

// Judged is a part that was looked at: True with the message given, or False with the
// fault's reason and text where err is not nil.
func Judged(typ string, err error, message string) metav1.Condition {
	if err != nil {
		return False(typ, err)
	}
	return metav1.Condition{Type: typ, Status: metav1.ConditionTrue, Reason: ReasonSucceeded, Message: message}
}

// Pending is a part that is not known yet, because work is under way.
func Pending(typ, message string) metav1.Condition {
	return metav1.Condition{Type: typ, Status: metav1.ConditionUnknown, Reason: ReasonProgressing, Message: message}
}

// Unseen is a part that cannot be judged, and why; what, a sentence without its end, comes
// before the fault's text.
func Unseen(typ, what string, err error) metav1.Condition {
	return metav1.Condition{Type: typ, Status: metav1.ConditionUnknown, Reason: string(fault.ReasonOf(err)), Message: what + ": " + fault.Text(err)}
}

// Absent is a part that there is nothing to say of.
func Absent(typ string) metav1.Condition { return metav1.Condition{Type: typ} }
