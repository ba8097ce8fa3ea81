package vdoconfig

import (
	"reflect"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// customized are the settings of pods that drivers were rendered with; of those that had to
// be left as they are the ones before.
func (r rendering) customized(was inventory.Memory) ([]v1alpha1.DriverPolicy, []v1alpha1.Patch) {
	byDriver := func(d v1alpha1.DriverPolicy) string { return d.Driver }
	byTarget := func(p v1alpha1.Patch) string { return p.Target.Driver }
	return renderedOf(r, podSettings(r.spec.Drivers), was.Drivers, byDriver), renderedOf(r, r.spec.Patches, was.Patches, byTarget)
}

// renderedOf takes what is now of the drivers that were rendered, and what was before of the others.
func renderedOf[T any](r rendering, now, before []T, driver func(T) string) []T {
	var all []T
	for _, v := range now {
		if !r.leftAsItIs(driver(v)) {
			all = append(all, v)
		}
	}
	for _, v := range before {
		if r.leftAsItIs(driver(v)) {
			all = append(all, v)
		}
	}
	return all
}

func (r rendering) leftAsItIs(driver string) bool {
	_, held := r.decision.held[matrix.Driver(driver)]
	return held || r.malformed[matrix.Driver(driver)] != nil
}

// podSettings leaves out how drivers are chosen, which is always as the spec has it.
func podSettings(policies []v1alpha1.DriverPolicy) []v1alpha1.DriverPolicy {
	var all []v1alpha1.DriverPolicy
	for _, d := range policies {
		d.Policy, d.Version = "", ""
		if !reflect.DeepEqual(d, v1alpha1.DriverPolicy{Driver: d.Driver}) {
			all = append(all, *d.DeepCopy())
		}
	}
	return all
}
