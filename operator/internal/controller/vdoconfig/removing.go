package vdoconfig

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
)

// reasonRemoving is of a driver that is being taken down.
const reasonRemoving = "Removing"

// removing is how many objects are left of each driver that is being taken down: with the
// VDOConfig, or because it is not asked for any more. What stays for good does not count,
// nor does the namespace, which is left to the end.
func (p *result) removing() map[matrix.Driver]int {
	left := map[matrix.Driver]int{}
	all := p.outcome.removal
	if all == nil {
		all = p.outcome.plan
	}
	if all == nil {
		return left
	}
	for _, s := range all.Removals() {
		if s.Action == plan.Prune && s.Kind != "Namespace" && withoutOperator[s.Key] != s.Reason && (p.outcome.removal != nil || !p.keeps(s.Driver)) {
			left[s.Driver]++
		}
	}
	return left
}

// keeps tells whether a driver is decided for, or judged: what goes of it then is only
// something that it needs no more.
func (p *result) keeps(d matrix.Driver) bool {
	if p.decision.version(d) != "" {
		return true
	}
	if p.outcome.report == nil {
		return false
	}
	_, judged := p.outcome.report.Drivers[d]
	return judged
}

func removingText(left int) string {
	return fmt.Sprintf("is being removed: %d of its objects are left", left)
}

// removedDrivers is what is left to say of drivers while a VDOConfig is being deleted. One
// that is left on the cluster keeps what was said of it last.
func (p *result) removedDrivers(was []v1alpha1.DriverStatus) []v1alpha1.DriverStatus {
	left := p.removing()
	var all []v1alpha1.DriverStatus
	for _, d := range inOrder {
		i := slices.IndexFunc(was, func(s v1alpha1.DriverStatus) bool { return s.Driver == string(d) })
		switch {
		case left[d] > 0:
			row := v1alpha1.DriverStatus{Driver: string(d), Version: p.inventory.Complete(d), Message: removingText(left[d])}
			all = append(all, row)
		case i >= 0 && p.leaves(d):
			all = append(all, was[i])
		}
	}
	return all
}

// leaves tells whether a removal leaves a driver's workloads where they are.
func (p *result) leaves(d matrix.Driver) bool {
	return slices.ContainsFunc(p.outcome.removal.Removals(), func(s plan.Step) bool {
		return s.Driver == d && isWorkload(s.Key) && (s.Action == plan.Forget || s.Action == plan.Keep)
	})
}

// removingCondition is that of a driver that is being taken down, nil of another one.
func (p *result) removingCondition(d matrix.Driver, typ string) []metav1.Condition {
	left := p.removing()[d]
	switch {
	case left > 0:
		return []metav1.Condition{{Type: typ, Status: metav1.ConditionFalse, Reason: reasonRemoving, Message: string(d) + " " + removingText(left)}}
	case p.outcome.removal != nil && !p.leaves(d):
		return []metav1.Condition{condition.Absent(typ)}
	}
	return nil
}
