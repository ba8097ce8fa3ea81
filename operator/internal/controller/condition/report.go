package condition

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// State is one row of the package's table.
type State string

// The states that a resource can be in after a pass.
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
	Message string // of Ready and Progressing
	Err     error  // of Waiting and Fault
}

// Report is all that a pass has to say in conditions. A controller makes it by one pure
// function of what the pass found out; [Report.Set] sets it.
type Report struct {
	Phase Phase
	// Parts are of types beside those of the phase. One without a status is taken away; a
	// type that is not listed stays as it is.
	Parts []metav1.Condition
}

// Set sets the conditions, parts first.
func (r Report) Set(conds *[]metav1.Condition, generation int64) {
	for _, c := range r.Parts {
		if c.Status == "" {
			Remove(conds, c.Type)
			continue
		}
		Set(conds, generation, c)
	}
	switch p := r.Phase; p.State {
	case StateReady:
		Ready(conds, generation, p.Message)
	case StateProgressing:
		Progressing(conds, generation, "", p.Message)
	case StateWaiting:
		Waiting(conds, generation, p.Err)
	case StateFault:
		Fault(conds, generation, p.Err)
	case StateSuspended:
		Suspended(conds, generation)
	}
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
