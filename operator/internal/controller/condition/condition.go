// Package condition is the only code of the operator that sets status conditions.
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
// The type Suspended is also True while spec.suspend is set, and absent otherwise. kstatus has no such state. It reads
// a suspended resource as current if its spec is in effect, and as in progress if changes are gated, but never as
// failed.
//
// A fault's reason and text become the condition's reason and message, so a condition reads like an error of a
// command-line tool. Other types, for parts, are set beside these. A controller passes all of them in one [Report],
// which a pure function computes.
//
// The functions on conditions are pure. They change the given slice, and the transition time only with the status.
// [Writer] writes the outcome of a pass to the API server in one patch, if it differs. It emits an event if Ready
// changes. [Requeue] returns when to reconcile again.
package condition

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// Reasons of conditions without a fault.
const (
	ReasonSucceeded   = "Succeeded"   // Ready is True
	ReasonProgressing = "Progressing" // Ready is Unknown and Reconciling is True
	ReasonSuspended   = "Suspended"   // spec.suspend is set
	ReasonDryRun      = "DryRun"      // spec.dryRun is set
)

// maxMessage is the longest message of a condition, in bytes: a quarter of the API server's limit, since the whole
// resource must fit into etcd.
const maxMessage = 8 << 10

// Set sets one condition of a type other than Ready, Reconciling and Stalled; [Report.Set] and [SetReady] set those
// together. It replaces invalid UTF-8 in a message, as the API server does: otherwise each pass would patch the
// status and emit an event.
func Set(conds *[]metav1.Condition, generation int64, c metav1.Condition) {
	c.ObservedGeneration = generation
	c.Message = Cut(strings.ToValidUTF8(c.Message, "\uFFFD"), maxMessage)
	meta.SetStatusCondition(conds, c)
}

// Remove removes conditions.
func Remove(conds *[]metav1.Condition, types ...string) {
	for _, t := range types {
		meta.RemoveStatusCondition(conds, t)
	}
}

// SetReady sets Ready, and beside: either Reconciling or Stalled with the same text, or "" for neither.
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

// False returns the condition of a fault, without generation and time. It says once what several drivers have.
func False(typ string, err error) metav1.Condition {
	return metav1.Condition{
		Type: typ, Status: metav1.ConditionFalse,
		Reason: reason(err), Message: fault.Text(fault.Distinct(err))}
}

// reason returns the reason of the gravest fault. It ignores joined ones that pass, unless all do.
func reason(err error) string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && !Passing(err) { //nolint:errorlint // see Passing
		err = errors.Join(slices.DeleteFunc(slices.Clone(joined.Unwrap()), Passing)...)
	}
	return string(cmp.Or(fault.Gravest(err), fault.Internal))
}

// Passing reports whether a fault can pass without a person. All of several joined faults must.
func Passing(err error) bool {
	if err == nil {
		return false
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the outermost level holds the independent faults
		return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !Passing(e) })
	}
	return slices.Contains(passes, fault.ReasonOf(err)) || Outdated(err)
}

// Outdated reports whether a fault is only a conflict with a change since the last read, so that another pass helps.
// Other Conflicts, such as a foreign object, need a person.
func Outdated(err error) bool {
	return fault.ReasonOf(err) == fault.Conflict && (apierrors.IsConflict(err) || errors.Is(err, fault.ErrOutdated))
}

// passes are the reasons that can pass. Internal can, since most unclassified errors do, such as those of the API
// server.
var passes = []fault.Reason{fault.Unreachable, fault.Throttled, fault.Internal, fault.Interrupted, fault.Storage}

// Since returns when a condition got its current status, the zero time if it is absent.
func Since(conds []metav1.Condition, typ string) time.Time {
	if c := meta.FindStatusCondition(conds, typ); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// Cut truncates s to limit bytes at a character boundary, with a mark.
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

// Grace is how long Ready stays True during a fault that can pass.
const Grace = 2 * time.Minute

func graced(conds []metav1.Condition, generation int64, err error, now time.Time) bool {
	ready := meta.FindStatusCondition(conds, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != generation || !Passing(err) {
		return false
	}
	since := Since(conds, v1alpha1.ConditionReconciling)
	return since.IsZero() || now.Sub(since).Abs() < Grace // the clock may have been ahead
}

// UntilGraceEnds returns how long until Ready becomes False if nothing changes, 0 without a grace. The next pass must
// not be later.
func UntilGraceEnds(conds []metav1.Condition, now time.Time) time.Duration {
	since := Since(conds, v1alpha1.ConditionReconciling)
	if since.IsZero() || !meta.IsStatusConditionTrue(conds, v1alpha1.ConditionReady) {
		return 0
	}
	return max(since.Add(Grace).Sub(now), 0)
}

// minBackoff is the shortest wait after a fault that can pass.
const minBackoff = 5 * time.Second

// jitter is the largest share added to an interval, so that resources created together do not stay in step.
const jitter = 0.1

// Requeue returns when to reconcile after a pass that set conds: after the interval, or earlier while Reconciling. The
// wait grows with the age of the condition, so a restart keeps it. A fault in the status is no error of the pass.
func Requeue(conds []metav1.Condition, interval time.Duration, now time.Time) reconcile.Result {
	return reconcile.Result{RequeueAfter: wait.Jitter(Wait(conds, interval, now), jitter)}
}

// Wait returns the wait of [Requeue], before jitter.
func Wait(conds []metav1.Condition, interval time.Duration, now time.Time) time.Duration {
	since := Since(conds, v1alpha1.ConditionReconciling)
	if since.IsZero() {
		return interval
	}
	return min(max(now.Sub(since).Abs(), minBackoff), interval)
}

// MaxNote is the longest note of an event, as the API server validates it.
const MaxNote = 1 << 10

// Object is a resource with conditions.
type Object interface {
	client.Object
	GetConditions() []metav1.Condition
}

// Recorder records events. The manager's GetEventRecorder returns one.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Writer writes statuses. Its fields are required.
type Writer struct {
	Client   client.StatusClient
	Recorder Recorder
}

// Write patches the status if after differs from before, the object as the pass read it. If Ready differs, it emits
// an event and logs; the message of work in progress does not count. It returns a Conflict fault if the resource has
// changed since: that change starts another pass.
func (w Writer) Write(ctx context.Context, before, after Object) error {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	ready := meta.FindStatusCondition(after.GetConditions(), v1alpha1.ConditionReady).DeepCopy() // the answer overwrites after
	if err := w.Client.Status().Patch(ctx, after, patch); err != nil {
		key := client.ObjectKeyFromObject(after).String()
		f := fault.Errorf(fault.Internal, "write status of", key, "", "patch: %w", err)
		if apierrors.IsConflict(err) {
			f.Reason = fault.Conflict
		}
		return f
	}
	if reported(meta.FindStatusCondition(before.GetConditions(), v1alpha1.ConditionReady), ready) {
		log.FromContext(ctx).Info("status changed", "ready", ready.Status, "reason", ready.Reason, "message", ready.Message)
		kind := corev1.EventTypeNormal
		if ready.Status == metav1.ConditionFalse {
			kind = corev1.EventTypeWarning
		}
		w.Recorder.Eventf(after, nil, kind, ready.Reason, "Reconcile", "%s", Cut(ready.Message, MaxNote))
	}
	return nil
}

// reported reports whether the change of Ready is worth an event. Progress of work is not: it may cover thousands of
// nodes, one by one.
func reported(before, now *metav1.Condition) bool {
	if now == nil {
		return false
	}
	if before == nil || before.Status != now.Status || before.Reason != now.Reason {
		return true
	}
	return now.Reason != ReasonProgressing && before.Message != now.Message
}
