package condition_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }

func faultOf(r fault.Reason) error {
	return &fault.Error{Reason: r, Op: "connect to", Subject: "vc.site", Hint: "do this", Err: errors.New("why")}
}

// set sets what a phase says.
func set(conds *[]metav1.Condition, generation int64, p condition.Phase) {
	condition.Report{Phase: p, Suspended: p.State == condition.StateSuspended}.Set(conds, generation, began)
}

func ready(message string) condition.Phase {
	return condition.Phase{State: condition.StateReady, Message: message}
}

func failed(err error) condition.Phase {
	return condition.Phase{State: condition.StateFault, Err: err, AtOnce: true}
}

// shape is "Ready/Reconciling/Stalled", absent types as "-".
func shape(conds []metav1.Condition) string {
	var parts []string
	for _, t := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		status := "-"
		if c := meta.FindStatusCondition(conds, t); c != nil {
			status = string(c.Status)
		}
		parts = append(parts, status)
	}
	return strings.Join(parts, "/")
}

// Whatever the resource's conditions were before, the three types of kstatus never contradict
// each other after.
func TestTheKstatusTypesStayConsistent(t *testing.T) {
	steps := map[string]condition.Phase{
		"True/-/-":       ready("ok"),
		"Unknown/True/-": {State: condition.StateProgressing, Message: "rolling out"},
		"False/True/-":   {State: condition.StateWaiting, Err: faultOf(fault.Refused)},
		"False/-/True":   failed(faultOf(fault.Unauthorized)),
	}
	for _, first := range steps {
		for want, second := range steps {
			var conds []metav1.Condition
			set(&conds, 1, first)
			set(&conds, 1, second)
			require.Equal(t, want, shape(conds), "%s then %s", first.State, second.State)
		}
	}
}

// Suspended is beside what else there is to say, and goes with spec.suspend.
func TestSuspendedKeepsWhatReadySaid(t *testing.T) {
	var conds []metav1.Condition
	for i, s := range []struct {
		phase condition.Phase
		want  string
	}{
		{condition.Phase{State: condition.StateSuspended}, "Unknown/-/-"},
		{failed(faultOf(fault.Forbidden)), "False/-/True"},
		{condition.Phase{State: condition.StateSuspended}, "False/-/-"}, // no one has looked
		{condition.Phase{State: condition.StateSuspended, Message: "3 changes"}, "Unknown/-/-"},
	} {
		set(&conds, int64(i), s.phase)
		require.Equal(t, s.want, shape(conds), i)
		require.Equal(t, s.phase.State == condition.StateSuspended, meta.IsStatusConditionTrue(conds, v1alpha1.ConditionSuspended), i)
		if i == 2 {
			require.EqualValues(t, 1, meta.FindStatusCondition(conds, v1alpha1.ConditionReady).ObservedGeneration, "that it was observed of")
		}
	}
	condition.Report{Phase: ready("ok"), DryRun: true}.Set(&conds, 5, began)
	require.Equal(t, "True/-/-", shape(conds))
	require.Equal(t, condition.ReasonDryRun, meta.FindStatusCondition(conds, v1alpha1.ConditionSuspended).Reason)
}

func TestTheGravestOfSeveralFaultsIsTheReason(t *testing.T) {
	away := fault.Errorf(fault.Unreachable, "check", "a", "", "no")
	all := fault.Join(away, fault.Errorf(fault.Conflict, "use", "b", "", "no"))
	require.Equal(t, string(fault.Conflict), condition.False("Ready", all).Reason)
	require.Equal(t, fault.Text(away), condition.False("Ready", fault.Join(away, away)).Message, "of two drivers")
	require.Equal(t, string(fault.Conflict), condition.Unseen("Ready", "", all).Reason)
	all = fault.Join(faultOf(fault.Internal), faultOf(fault.Refused))
	require.Equal(t, string(fault.Refused), condition.False("Ready", all).Reason, "the other passes")
	require.Equal(t, string(fault.Internal), condition.False("Ready", errors.New("no")).Reason)
}

func TestOfSeveralFaultsEveryOneHasToPass(t *testing.T) {
	passing, stalling := faultOf(fault.Unreachable), faultOf(fault.InvalidInput)
	require.False(t, condition.Passing(nil))
	require.True(t, condition.Passing(errors.New("of the API server")))
	require.True(t, condition.Passing(fmt.Errorf("wrapped: %w", passing)))
	require.False(t, condition.Passing(fmt.Errorf("wrapped: %w", stalling)))
	outdated := &fault.Error{Reason: fault.Conflict, Err: fault.ErrOutdated}
	require.True(t, condition.Passing(errors.Join(passing, outdated)), "another pass decides on what there is")
	require.False(t, condition.Passing(errors.Join(passing, stalling)))
	for _, r := range []fault.Reason{fault.NotFound, fault.CertificateInvalid, fault.AccountLocked, fault.Corrupt,
		fault.Incomplete, fault.Untrusted, fault.Expired, fault.Superseded, fault.Incompatible, fault.Refused, fault.Conflict} {
		require.False(t, condition.Passing(faultOf(r)), r)
	}
}

func TestTheWaitGrowsWithTheTimeOfReconciling(t *testing.T) {
	var conds []metav1.Condition
	set(&conds, 1, failed(faultOf(fault.Unreachable)))
	since := condition.Since(conds, v1alpha1.ConditionReconciling)
	wait := func(after time.Duration) time.Duration {
		return condition.Wait(conds, 10*time.Minute, since.Add(after))
	}
	require.Equal(t, 5*time.Second, wait(0))
	require.Equal(t, 10*time.Minute, wait(-time.Hour), "a clock that went back")
	require.Equal(t, 40*time.Second, wait(40*time.Second))
	require.Equal(t, 10*time.Minute, wait(3*time.Hour))
	for _, p := range []condition.Phase{failed(faultOf(fault.Forbidden)), ready("ok")} {
		set(&conds, 1, p)
		require.Equal(t, 10*time.Minute, wait(0))
	}
	seen := map[time.Duration]bool{}
	for range 100 {
		d := condition.Requeue(conds, 10*time.Minute, time.Now()).RequeueAfter
		require.InDelta(t, 10*time.Minute+30*time.Second, d, float64(30*time.Second))
		seen[d] = true
	}
	require.Greater(t, len(seen), 1, "the interval is spread")
}

// step is one pass: a fault, or nil where all was well.
type step struct {
	at         int // seconds
	generation int64
	err        error
	want       string // shape after it
}

func TestAPassingFaultHasTwoMinutesBeforeReadyIsFalse(t *testing.T) {
	away, slow, refused := faultOf(fault.Unreachable), faultOf(fault.Throttled), faultOf(fault.Unauthorized)
	well := step{0, 1, nil, "True/-/-"}
	for name, steps := range map[string][]step{
		"lasts":                            {well, {10, 1, away, "True/True/-"}, {129, 1, away, "True/True/-"}, {130, 1, away, "False/True/-"}, {200, 1, away, "False/True/-"}},
		"changes its reason, not its time": {well, {10, 1, away, "True/True/-"}, {100, 1, slow, "True/True/-"}, {130, 1, away, "False/True/-"}},
		"comes again and has its own time": {well, {10, 1, away, "True/True/-"}, {100, 1, nil, "True/-/-"}, {110, 1, away, "True/True/-"}, {229, 1, away, "True/True/-"}, {230, 1, away, "False/True/-"}},
		"stops passing":                    {well, {10, 1, away, "True/True/-"}, {20, 1, refused, "False/-/True"}},
		"the spec changes in it":           {well, {10, 1, away, "True/True/-"}, {20, 2, away, "False/True/-"}},
		"never was ready":                  {{10, 1, away, "False/True/-"}, {20, 1, away, "False/True/-"}},
		"a clock that was far ahead":       {{100, 1, nil, "True/-/-"}, {9999, 1, away, "True/True/-"}, {110, 1, away, "False/True/-"}},
		"a clock that went back":           {{100, 1, nil, "True/-/-"}, {110, 1, away, "True/True/-"}, {0, 1, away, "True/True/-"}, {230, 1, away, "False/True/-"}},
	} {
		t.Run(name, func(t *testing.T) {
			var conds []metav1.Condition
			for _, s := range steps {
				phase := condition.Phase{State: condition.StateFault, Err: s.err}
				if s.err == nil {
					phase = ready("all is well")
				}
				condition.Report{Phase: phase}.Set(&conds, s.generation, at(s.at))
				require.Equal(t, s.want, shape(conds), "at %d s", s.at)
			}
		})
	}
}

// While the grace runs Ready says what it said, and Reconciling what is at fault; the pass after it is in time.
func TestInTheGraceReconcilingTells(t *testing.T) {
	var conds []metav1.Condition
	require.Zero(t, condition.UntilGraceEnds(conds, began))
	set(&conds, 3, ready("all is well"))
	require.Zero(t, condition.UntilGraceEnds(conds, began))
	before := *meta.FindStatusCondition(conds, v1alpha1.ConditionReady)
	fails := condition.Report{Phase: condition.Phase{State: condition.StateFault, Err: faultOf(fault.Unreachable)}}
	fails.Set(&conds, 3, began)
	require.Equal(t, before, *meta.FindStatusCondition(conds, v1alpha1.ConditionReady))
	require.Equal(t, metav1.Condition{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: "Unreachable",
		Message: "connect to vc.site: why (do this)", ObservedGeneration: 3, LastTransitionTime: metav1.NewTime(began)},
		*meta.FindStatusCondition(conds, v1alpha1.ConditionReconciling))
	for seconds, left := range map[int]time.Duration{0: 2 * time.Minute, 100: 20 * time.Second, 500: 0} {
		require.Equal(t, left, condition.UntilGraceEnds(conds, at(seconds)))
	}
	fails.Set(&conds, 3, at(120))
	require.Zero(t, condition.UntilGraceEnds(conds, at(120)), "Ready is False")
}

func TestPartsAreSetTakenAwayOrLeft(t *testing.T) {
	conds := []metav1.Condition{
		{Type: v1alpha1.ConditionCPI, Status: metav1.ConditionTrue, Reason: "Old"},
		{Type: v1alpha1.ConditionCNI, Status: metav1.ConditionTrue, Reason: "Old"},
	}
	condition.Report{Parts: []metav1.Condition{
		condition.Judged(v1alpha1.ConditionCSI, faultOf(fault.Forbidden), ""),
		condition.Judged(v1alpha1.ConditionResolved, nil, "csi@3.7.3"),
		condition.Pending(v1alpha1.ConditionApplied, "waiting for a node"),
		condition.Unseen(v1alpha1.ConditionVerified, "the policy cannot be read", faultOf(fault.Unreachable)),
		condition.Absent(v1alpha1.ConditionCNI),
	}}.Set(&conds, 7, began)
	got := map[string]string{}
	for _, c := range conds {
		got[c.Type] = string(c.Status) + " " + c.Reason + " " + c.Message
	}
	require.Equal(t, map[string]string{
		v1alpha1.ConditionCPI:      "True Old ",
		v1alpha1.ConditionCSI:      "False Forbidden connect to vc.site: why (do this)",
		v1alpha1.ConditionResolved: "True Succeeded csi@3.7.3",
		v1alpha1.ConditionApplied:  "Unknown Progressing waiting for a node",
		v1alpha1.ConditionVerified: "Unknown Unreachable the policy cannot be read: connect to vc.site: why (do this)",
	}, got)
	require.EqualValues(t, 7, meta.FindStatusCondition(conds, v1alpha1.ConditionCSI).ObservedGeneration)
}

// written is a resource on an API server, with the events that were made of it.
type written struct {
	t *testing.T
	condition.Writer
	events chan string
	now    *v1alpha1.VsphereCloudConfig
}

func world(t *testing.T) *written {
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	obj := &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Name: "vc", Namespace: "ns"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(obj).WithStatusSubresource(obj).Build()
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
	rec := events.NewFakeRecorder(10)
	return &written{t, condition.Writer{Client: c, Recorder: rec}, rec.Events, obj}
}

// write writes what a pass came to; it tells whether anything was written, and the event, "" for none.
func (w *written) write(edit func(*v1alpha1.VsphereCloudConfig)) (changed bool, reported string) {
	after := w.now.DeepCopy()
	edit(after)
	require.NoError(w.t, w.Write(w.t.Context(), w.now, after))
	changed = w.now.ResourceVersion != after.ResourceVersion
	w.now = after
	select {
	case reported = <-w.events:
	default:
	}
	return changed, reported
}

// A status is written where it differs, and told where Ready says something new: that work goes on is not.
func TestAStatusIsWrittenAndToldOnce(t *testing.T) {
	w := world(t)
	for _, s := range []struct {
		phase    condition.Phase
		changed  bool
		reported string
	}{
		{failed(faultOf(fault.Unauthorized)), true, "Warning Unauthorized connect to vc.site: why (do this)"},
		{failed(faultOf(fault.Unauthorized)), false, ""},
		{ready("100 % fine"), true, "Normal Succeeded 100 % fine"},
		{condition.Phase{State: condition.StateProgressing, Message: "1 of 5000 pods"}, true, "Normal Progressing 1 of 5000 pods"},
		{condition.Phase{State: condition.StateProgressing, Message: "2 of 5000 pods"}, true, ""},
		{failed(&fault.Error{Reason: fault.Incomplete, Err: errors.New("1 of 9 nodes (b) is broken")}), true, "Warning Incomplete 1 of 9 nodes (b) is broken"},
		{failed(&fault.Error{Reason: fault.Incomplete, Err: errors.New("1 of 9 nodes (c) is broken")}), true, "Warning Incomplete 1 of 9 nodes (c) is broken"},
		// What is no UTF-8 would be kept by the API server as something else, and be written by each pass.
		{ready("it says \xff\xfe and \xc3"), true, "Normal Succeeded it says \uFFFD and \uFFFD"},
		{ready("it says \xff\xfe and \xc3"), false, ""},
	} {
		changed, reported := w.write(func(v *v1alpha1.VsphereCloudConfig) { set(&v.Status.Conditions, 1, s.phase) })
		require.Equal(t, s.reported, reported)
		require.Equal(t, s.changed, changed, s.phase)
	}
	changed, reported := w.write(func(v *v1alpha1.VsphereCloudConfig) { v.Status.User = "someone" })
	require.True(t, changed)
	require.Empty(t, reported, "Ready tells nothing new")
}

func TestLongMessagesAreCutAtACharacter(t *testing.T) {
	w := world(t)
	_, reported := w.write(func(v *v1alpha1.VsphereCloudConfig) {
		set(&v.Status.Conditions, 1, ready(strings.Repeat("é", 40<<10)))
	})
	note := strings.TrimPrefix(reported, "Normal Succeeded ")
	require.LessOrEqual(t, len(note), condition.MaxNote)
	for _, text := range []string{w.now.Status.Conditions[0].Message, note} {
		require.LessOrEqual(t, len(text), 32<<10)
		require.True(t, utf8.ValidString(text))
		require.True(t, strings.HasSuffix(text, "(cut)"))
	}
}
