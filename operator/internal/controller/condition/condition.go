// Package condition is the one way in which the operator sets status conditions.
//
// Every kind has the three types of kstatus, which this package keeps consistent:
//
//	                       Ready    Reconciling  Stalled
//	spec is in effect      True     absent       absent     [StateReady]
//	work is under way      Unknown  True         absent     [StateProgressing]
//	waiting for an end     False    True         absent     [StateWaiting]
//	a fault that can pass  kept     True         absent     [StateFault], for two minutes
//	... and does not       False    True         absent     [StateFault]
//	only a person can help False    absent       True       [StateFault]
//	suspended              kept     absent       absent     [StateSuspended]
//	... with changes       Unknown  absent       absent     [StateSuspended]
//
// Beside them Suspended is True while spec.suspend is set, and absent else: kstatus has no
// such state, and reads a resource that is suspended as current where its spec is in effect,
// and as in progress where changes are gated; it never reads it as failed for that.
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
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

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
// those are set together by [Report.Set] and [SetReady]. What is no
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

// SetReady sets Ready, and of Reconciling and Stalled the one that is to say the same, "" for neither.
func SetReady(conds *[]metav1.Condition, generation int64, c metav1.Condition, beside string) {
	c.Type = v1alpha1.ConditionReady
	Set(conds, generation, c)
	Remove(conds, slices.DeleteFunc([]string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled},
		func(typ string) bool { return typ == beside })...)
	if beside != "" {
		c.Type, c.Status = beside, metav1.ConditionTrue
		Set(conds, generation, c)
	}
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
		return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !Passing(e) })
	}
	return slices.Contains(passes, fault.ReasonOf(err)) || Outdated(err)
}

// Outdated says whether a fault is only that something changed since it was read, as a write that the
// API server refuses for that: it passes with another pass. A Conflict that is another one, such as an
// object that someone else has, a person has to hear of.
func Outdated(err error) bool {
	return fault.ReasonOf(err) == fault.Conflict && (apierrors.IsConflict(err) || errors.Is(err, fault.ErrOutdated))
}

// passes are the reasons that can. Internal passes because errors that no one has
// classified, such as those of the API server, mostly do.
var passes = []fault.Reason{fault.Unreachable, fault.Throttled, fault.Internal, fault.Interrupted, fault.Storage}

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

// Grace is how long a fault that can pass leaves Ready as it was.
const Grace = 2 * time.Minute

func graced(conds []metav1.Condition, generation int64, err error, now time.Time) bool {
	ready := meta.FindStatusCondition(conds, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != generation || !Passing(err) {
		return false
	}
	since := Since(conds, v1alpha1.ConditionReconciling)
	return since.IsZero() || now.Sub(since) < Grace
}

// UntilGraceEnds is how long it is until Ready becomes False if nothing changes, and 0
// where no grace runs: the pass after it must not be later.
func UntilGraceEnds(conds []metav1.Condition, now time.Time) time.Duration {
	since := Since(conds, v1alpha1.ConditionReconciling)
	if since.IsZero() || !meta.IsStatusConditionTrue(conds, v1alpha1.ConditionReady) {
		return 0
	}
	return max(since.Add(Grace).Sub(now), 0)
}

// minBackoff is the shortest wait after a fault that can pass.
const minBackoff = 5 * time.Second

// jitter is the share of an interval by which it may be longer, so that resources made
// together do not ask together for ever.
const jitter = 0.1

// Requeue returns when to look again after a pass that set conds: after the interval where it is Ready or Stalled, and
// while it is Reconciling with a wait that grows with the time that this has lasted, at most the interval. The
// condition knows that time: a restart forgets nothing. A fault that is in the status was told, and is no error of the
// pass.
func Requeue(conds []metav1.Condition, interval time.Duration, now time.Time) reconcile.Result {
	return reconcile.Result{RequeueAfter: wait.Jitter(Wait(conds, interval, now), jitter)}
}

// Wait is the time that [Requeue] waits, before jitter.
func Wait(conds []metav1.Condition, interval time.Duration, now time.Time) time.Duration {
	since := Since(conds, v1alpha1.ConditionReconciling)
	if since.IsZero() {
		return interval
	}
	return min(max(now.Sub(since), minBackoff), interval)
}
