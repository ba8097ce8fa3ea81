package condition_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
)

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

// Suspended is beside what else there is to say, and goes with spec.suspend.
func TestSuspendedIsAConditionOfItsOwn(t *testing.T) {
	suspended := func(conds []metav1.Condition) bool {
		return meta.IsStatusConditionTrue(conds, v1alpha1.ConditionSuspended)
	}
	var conds []metav1.Condition
	condition.Report{Phase: condition.Phase{State: condition.StateReady, Message: "ok"}, Suspended: true}.Set(&conds, 3, at(0))
	require.Equal(t, "True/-/-", shape(conds))
	require.True(t, suspended(conds))
	condition.Report{Phase: condition.Phase{State: condition.StateSuspended}, Suspended: true}.Set(&conds, 4, at(1))
	require.Equal(t, "True/-/-", shape(conds), "nobody has looked: what it said stays")
	condition.Report{Phase: condition.Phase{State: condition.StateSuspended, Message: "3 changes"}, Suspended: true}.Set(&conds, 5, at(2))
	require.Equal(t, "Unknown/-/-", shape(conds), "the spec is not in effect")
	condition.Report{Phase: condition.Phase{State: condition.StateReady}}.Set(&conds, 6, at(3))
	require.Nil(t, meta.FindStatusCondition(conds, v1alpha1.ConditionSuspended))
}
