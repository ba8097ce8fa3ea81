package condition_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }

// step is one pass: a fault, or nil where all was well.
type step struct {
	at         int // seconds
	generation int64
	err        error
	want       string // shape after it
}

func TestAPassingFaultHasTwoMinutesBeforeReadyIsFalse(t *testing.T) {
	away, slow, refused := faultOf(fault.Unreachable), faultOf(fault.Throttled), faultOf(fault.Unauthorized)
	for name, steps := range map[string][]step{
		"passes in time":                   {{0, 1, nil, "True/-/-"}, {10, 1, away, "True/True/-"}, {60, 1, away, "True/True/-"}, {100, 1, nil, "True/-/-"}},
		"lasts":                            {{0, 1, nil, "True/-/-"}, {10, 1, away, "True/True/-"}, {129, 1, away, "True/True/-"}, {130, 1, away, "False/True/-"}, {200, 1, away, "False/True/-"}},
		"changes its reason, not its time": {{0, 1, nil, "True/-/-"}, {10, 1, away, "True/True/-"}, {100, 1, slow, "True/True/-"}, {130, 1, away, "False/True/-"}},
		"comes again and has its own time": {{0, 1, nil, "True/-/-"}, {10, 1, away, "True/True/-"}, {100, 1, nil, "True/-/-"}, {110, 1, away, "True/True/-"}, {229, 1, away, "True/True/-"}, {230, 1, away, "False/True/-"}},
		"does not pass":                    {{0, 1, nil, "True/-/-"}, {10, 1, refused, "False/-/True"}},
		"an object is another's":           {{0, 1, nil, "True/-/-"}, {10, 1, faultOf(fault.Conflict), "False/-/True"}},
		"stops passing":                    {{0, 1, nil, "True/-/-"}, {10, 1, away, "True/True/-"}, {20, 1, refused, "False/-/True"}},
		"one of several does not pass":     {{0, 1, nil, "True/-/-"}, {10, 1, errors.Join(away, refused), "False/-/True"}},
		"of another generation":            {{0, 1, nil, "True/-/-"}, {10, 2, away, "False/True/-"}},
		"the spec changes in it":           {{0, 1, nil, "True/-/-"}, {10, 1, away, "True/True/-"}, {20, 2, away, "False/True/-"}},
		"never was ready":                  {{10, 1, away, "False/True/-"}, {20, 1, away, "False/True/-"}},
		"was at fault before":              {{0, 1, refused, "False/-/True"}, {10, 1, away, "False/True/-"}},
		"a clock that went back":           {{100, 1, nil, "True/-/-"}, {110, 1, away, "True/True/-"}, {0, 1, away, "True/True/-"}, {230, 1, away, "False/True/-"}},
	} {
		t.Run(name, func(t *testing.T) {
			var conds []metav1.Condition
			for _, s := range steps {
				if s.err == nil {
					condition.Ready(&conds, s.generation, "all is well")
				} else {
					condition.FaultAfterGrace(&conds, s.generation, s.err, at(s.at))
				}
				require.Equal(t, s.want, shape(conds), "at %d s", s.at)
			}
		})
	}
}

// While the grace runs Ready says what it said, and Reconciling what is at fault.
func TestInTheGraceReconcilingTells(t *testing.T) {
	var conds []metav1.Condition
	condition.Ready(&conds, 3, "all is well")
	before := *meta.FindStatusCondition(conds, v1alpha1.ConditionReady)
	condition.FaultAfterGrace(&conds, 3, faultOf(fault.Unreachable), at(0))
	require.Equal(t, before, *meta.FindStatusCondition(conds, v1alpha1.ConditionReady))
	c := meta.FindStatusCondition(conds, v1alpha1.ConditionReconciling)
	require.Equal(t, "Unreachable", c.Reason)
	require.Equal(t, "connect to vc.site: why (do this)", c.Message)
	require.EqualValues(t, 3, c.ObservedGeneration)
	require.True(t, c.LastTransitionTime.Time.Equal(at(0)))
}

func TestThePassAfterTheGraceIsInTime(t *testing.T) {
	var conds []metav1.Condition
	require.Zero(t, condition.UntilGraceEnds(conds, at(0)))
	condition.Ready(&conds, 1, "all is well")
	require.Zero(t, condition.UntilGraceEnds(conds, at(0)))
	condition.FaultAfterGrace(&conds, 1, faultOf(fault.Unreachable), at(0))
	require.Equal(t, 2*time.Minute, condition.UntilGraceEnds(conds, at(0)))
	require.Equal(t, 20*time.Second, condition.UntilGraceEnds(conds, at(100)))
	require.Zero(t, condition.UntilGraceEnds(conds, at(500)))
	condition.FaultAfterGrace(&conds, 1, faultOf(fault.Unreachable), at(120))
	require.Zero(t, condition.UntilGraceEnds(conds, at(120)), "Ready is False")
}
