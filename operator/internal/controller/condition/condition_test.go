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

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
)

// shape is "Ready/Reconciling/Stalled", absent types as "-".
func shape(conds []metav1.Condition) string {
	var parts []string
	for _, t := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if c := meta.FindStatusCondition(conds, t); c != nil {
			parts = append(parts, string(c.Status))
		} else {
			parts = append(parts, "-")
		}
	}
	return strings.Join(parts, "/")
}

func faultOf(r fault.Reason) error {
	return &fault.Error{Reason: r, Op: "connect to", Subject: "vc.site", Hint: "do this", Err: errors.New("why")}
}

// Whatever the resource's conditions were before, the three types of kstatus never contradict
// each other after.
func TestTheKstatusTypesStayConsistent(t *testing.T) {
	steps := map[string]struct {
		do   func(*[]metav1.Condition)
		want string
	}{
		"ready":       {func(c *[]metav1.Condition) { condition.Ready(c, 1, "ok") }, "True/-/-"},
		"progressing": {func(c *[]metav1.Condition) { condition.Progressing(c, 1, "rolling out") }, "Unknown/True/-"},
		"waiting":     {func(c *[]metav1.Condition) { condition.Waiting(c, 1, faultOf(fault.Refused)) }, "False/True/-"},
		"passing":     {func(c *[]metav1.Condition) { condition.Fault(c, 1, faultOf(fault.Unreachable)) }, "False/True/-"},
		"stalled":     {func(c *[]metav1.Condition) { condition.Fault(c, 1, faultOf(fault.Unauthorized)) }, "False/-/True"},
	}
	for first, a := range steps {
		for second, b := range steps {
			t.Run(first+" then "+second, func(t *testing.T) {
				var conds []metav1.Condition
				a.do(&conds)
				b.do(&conds)
				require.Equal(t, b.want, shape(conds))
			})
		}
	}
}

func TestAFaultReadsAsTheCommandLinePrintsIt(t *testing.T) {
	var conds []metav1.Condition
	condition.Fault(&conds, 7, faultOf(fault.Unauthorized))
	for _, typ := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionStalled} {
		c := meta.FindStatusCondition(conds, typ)
		require.Equal(t, "Unauthorized", c.Reason)
		require.Equal(t, "connect to vc.site: why (do this)", c.Message)
		require.EqualValues(t, 7, c.ObservedGeneration)
	}
}

func TestTheTransitionTimeMovesOnlyWithTheStatus(t *testing.T) {
	long := metav1.NewTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	var conds []metav1.Condition
	condition.Fault(&conds, 1, faultOf(fault.Unreachable))
	for i := range conds {
		conds[i].LastTransitionTime = long
	}
	condition.Fault(&conds, 2, faultOf(fault.Throttled))
	require.True(t, condition.Since(conds, v1alpha1.ConditionReady).Equal(long.Time))
	require.True(t, condition.Since(conds, v1alpha1.ConditionReconciling).Equal(long.Time))

	condition.Ready(&conds, 2, "ok")
	require.True(t, condition.Since(conds, v1alpha1.ConditionReady).After(long.Time))
	require.True(t, condition.Since(conds, v1alpha1.ConditionReconciling).IsZero())
}

func TestSuspendedKeepsWhatReadySaid(t *testing.T) {
	var conds []metav1.Condition
	condition.Suspended(&conds, 1, condition.ReasonSuspended, "")
	require.Equal(t, "Unknown/-/-", shape(conds))

	condition.Fault(&conds, 1, faultOf(fault.Forbidden))
	condition.Suspended(&conds, 2, condition.ReasonSuspended, "")
	require.Equal(t, "False/-/-", shape(conds))
	ready := meta.FindStatusCondition(conds, v1alpha1.ConditionReady)
	require.Equal(t, "Forbidden", ready.Reason)
	require.EqualValues(t, 1, ready.ObservedGeneration, "it was observed of generation 1")
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

func TestALongMessageIsCutAtACharacter(t *testing.T) {
	var conds []metav1.Condition
	condition.Fault(&conds, 1, errors.New(strings.Repeat("é", 40<<10)))
	m := conds[0].Message
	require.LessOrEqual(t, len(m), 32<<10)
	require.True(t, utf8.ValidString(m))
	require.True(t, strings.HasSuffix(m, "(cut)"))
}

func TestTheWaitGrowsWithTheTimeOfReconciling(t *testing.T) {
	var conds []metav1.Condition
	condition.Fault(&conds, 1, faultOf(fault.Unreachable))
	since := condition.Since(conds, v1alpha1.ConditionReconciling)
	wait := func(after time.Duration) time.Duration {
		return condition.Wait(conds, 10*time.Minute, since.Add(after))
	}
	require.Equal(t, 5*time.Second, wait(0))
	require.Equal(t, 5*time.Second, wait(-time.Hour), "a clock that went back")
	require.Equal(t, 40*time.Second, wait(40*time.Second))
	require.Equal(t, 10*time.Minute, wait(3*time.Hour))

	condition.Fault(&conds, 1, faultOf(fault.Forbidden))
	require.Equal(t, 10*time.Minute, wait(0))
	condition.Ready(&conds, 1, "ok")
	require.Equal(t, 10*time.Minute, wait(0))
}

func TestTheIntervalIsSpread(t *testing.T) {
	var conds []metav1.Condition
	condition.Ready(&conds, 1, "ok")
	seen := map[time.Duration]bool{}
	for range 100 {
		d := condition.Requeue(conds, 10*time.Minute, time.Now()).RequeueAfter
		require.GreaterOrEqual(t, d, 9*time.Minute)
		require.LessOrEqual(t, d, 11*time.Minute)
		seen[d] = true
	}
	require.Greater(t, len(seen), 1)
}
