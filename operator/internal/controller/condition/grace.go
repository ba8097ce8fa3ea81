package condition

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// Grace is how long a fault that can pass leaves Ready as it was.
const Grace = 2 * time.Minute

// FaultAfterGrace is [Fault] for faults that begin: a mirror or a vCenter that does not
// answer for a moment takes Ready from nobody. Where Ready is True, speaks of this
// generation, and the fault can pass, Ready stays as it is, and Reconciling says what is
// at fault, which kstatus reads as work under way. It does so for [Grace] from when
// Reconciling became True, so that nothing has to be remembered and a restart changes
// nothing; then, or where one of these does not hold, it is [Fault].
func FaultAfterGrace(conds *[]metav1.Condition, generation int64, err error, now time.Time) {
	if !graced(*conds, generation, err, now) {
		Fault(conds, generation, err)
		return
	}
	c := False(v1alpha1.ConditionReconciling, err)
	c.Status = metav1.ConditionTrue
	if Since(*conds, v1alpha1.ConditionReconciling).IsZero() {
		c.LastTransitionTime = metav1.NewTime(now)
	}
	Set(conds, generation, c)
	Remove(conds, v1alpha1.ConditionStalled)
}

// graced tells whether Ready stays as it is.
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
