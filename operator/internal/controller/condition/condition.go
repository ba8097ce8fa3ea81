// Package condition is the one way in which the operator sets status conditions.
//
// Every kind has the three types of kstatus, which this package keeps consistent:
//
//	                       Ready    Reconciling  Stalled
//	spec is in effect      True     absent       absent     [Ready]
//	work is under way      Unknown  True         absent     [Progressing]
//	waiting for an end     False    True         absent     [Waiting]
//	a fault that can pass  kept     True         absent     [FaultAfterGrace], for two minutes
//	... and does not       False    True         absent     [Fault]
//	only a person can help False    absent       True       [Fault]
//	suspended              kept     absent       absent     [Suspended]
//	... with changes       Unknown  absent       absent     [Suspended]
//
// Beside them Suspended is True while spec.suspend is set, and absent else: kstatus has no
// such state, and reads a resource that is suspended as current where its spec is in effect,
// and as in progress where changes are held back; it never reads it as failed for that.
//
// A fault's reason and text become the condition's reason and message, so that a
// condition reads as a command-line tool's error does. Other types, of parts, are set
// beside these. A controller says all of it in one [Report], which a pure function makes.
//
// The functions on conditions are pure: they change the slice given, and the
// transition time only where the status changed. [Writer] writes the outcome of a
// pass to the API server in one patch, where it differs, and
// tells of it in an event, where Ready says something new. [Requeue] says when to
// look again.
package condition

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// Reasons of conditions that hold no fault.
const (
	ReasonSucceeded   = "Succeeded"   // Ready is True
	ReasonProgressing = "Progressing" // Ready is Unknown and Reconciling is True
	ReasonSuspended   = "Suspended"   // spec.suspend is set
	ReasonDryRun      = "DryRun"      // spec.dryRun is set
)

// maxMessage is the longest message of a condition: a quarter of what the API server
// takes, since all of a resource has to fit into what etcd does.
const maxMessage = 8 << 10

// Set sets one condition. It is for types beside Ready, Reconciling and Stalled;
// those are set together by [Ready], [Progressing], [Fault] and [Suspended]. What is no
// UTF-8 in a message is replaced: the API server keeps it as such, and each pass would
// differ from what is kept, with a patch and an event.
func Set(conds *[]metav1.Condition, generation int64, c metav1.Condition) {
	c.ObservedGeneration = generation
	c.Message = Cut(strings.ToValidUTF8(c.Message, "\uFFFD"), maxMessage)
	meta.SetStatusCondition(conds, c)
}

// Remove takes conditions away.
func Remove(conds *[]metav1.Condition, types ...string) {
	for _, t := range types {
		meta.RemoveStatusCondition(conds, t)
	}
}

// Ready says that the spec is in effect.
func Ready(conds *[]metav1.Condition, generation int64, message string) {
	Set(conds, generation, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue,
		Reason: ReasonSucceeded, Message: message})
	Remove(conds, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled)
}

// Progressing says that work towards the spec is under way: a roll-out that is
// waited for, a step of several. An empty reason is "Progressing".
func Progressing(conds *[]metav1.Condition, generation int64, reason, message string) {
	if reason == "" {
		reason = ReasonProgressing
	}
	Set(conds, generation, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown,
		Reason: reason, Message: message})
	Set(conds, generation, metav1.Condition{
		Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue,
		Reason: reason, Message: message})
	Remove(conds, v1alpha1.ConditionStalled)
}

// Fault says that the spec is not in effect, and why: Reconciling where the fault
// can pass by itself (see [Passing]), Stalled where only a person can help.
func Fault(conds *[]metav1.Condition, generation int64, err error) {
	ready := False(v1alpha1.ConditionReady, err)
	Set(conds, generation, ready)
	other, gone := v1alpha1.ConditionStalled, v1alpha1.ConditionReconciling
	if Passing(err) {
		other, gone = gone, other
	}
	ready.Type, ready.Status = other, metav1.ConditionTrue
	Set(conds, generation, ready)
	Remove(conds, gone)
}

// Waiting says that the spec is not in effect because something in the cluster has to
// end first, which is watched for: a refusal that lifts itself.
func Waiting(conds *[]metav1.Condition, generation int64, err error) {
	c := False(v1alpha1.ConditionReady, err)
	Set(conds, generation, c)
	c.Type, c.Status = v1alpha1.ConditionReconciling, metav1.ConditionTrue
	Set(conds, generation, c)
	Remove(conds, v1alpha1.ConditionStalled)
}

// Suspended says that nothing is being done because spec.suspend is set. Where it is known
// what is held back, the spec is not in effect, and Ready is Unknown. Else what Ready says
// stays, for the spec that it was observed of; where there is none yet it is Unknown.
func Suspended(conds *[]metav1.Condition, generation int64, reason, heldBack string) {
	if heldBack == "" && meta.FindStatusCondition(*conds, v1alpha1.ConditionReady) == nil {
		heldBack = "nothing was looked at yet: spec.suspend is set"
	}
	if heldBack != "" {
		Set(conds, generation, metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: reason, Message: heldBack})
	}
	Remove(conds, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled)
}

// False returns the condition that a fault makes, without generation and time.
func False(typ string, err error) metav1.Condition {
	return metav1.Condition{
		Type: typ, Status: metav1.ConditionFalse,
		Reason: string(fault.ReasonOf(err)), Message: fault.Text(err)}
}

// Passing says whether a fault can pass without a person. Of several joined
// faults every one has to.
func Passing(err error) bool {
	if err == nil {
		return false
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the outermost level holds the independent faults
		for _, e := range joined.Unwrap() {
			if !Passing(e) {
				return false
			}
		}
		return true
	}
	return passes(fault.ReasonOf(err)) || Outdated(err)
}

// Outdated says whether a fault is only that something changed since it was read, as a write that the
// API server refuses for that: it passes with another pass. A Conflict that is another one, such as an
// object that somebody else has, a person has to hear of.
func Outdated(err error) bool {
	return fault.ReasonOf(err) == fault.Conflict && (apierrors.IsConflict(err) || errors.Is(err, fault.ErrOutdated))
}

// passes tells the reasons apart. Internal passes because errors that nobody has
// classified, such as those of the API server, mostly do.
func passes(r fault.Reason) bool {
	switch r {
	case fault.Unreachable, fault.Throttled, fault.Internal, fault.Interrupted, fault.Storage:
		return true
	default:
		return false
	}
}

// Since returns when a status condition came to its present state: the zero time
// where the type is absent.
func Since(conds []metav1.Condition, typ string) time.Time {
	if c := meta.FindStatusCondition(conds, typ); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// Cut cuts s to limit bytes at a character's border, saying so.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const mark = " … (cut)"
	n := limit - len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.TrimRight(s[:n], " \n") + mark
}
