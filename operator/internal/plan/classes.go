package plan

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// classes are kinds whose objects nothing of a driver needs: what is wrong with one of
// them concerns that one alone, and stops neither repairs nor upgrades.
var classes = map[string][]string{
	"StorageClass":        {"provisioner", "parameters", "reclaimPolicy", "volumeBindingMode", "mountOptions", "allowedTopologies"},
	"VolumeSnapshotClass": {"driver", "parameters", "deletionPolicy"},
}

// frozen says which field of a class would have to change and cannot, or should not: what
// was made by it was made as it was. A class is never deleted to be made again.
func frozen(live, wanted *unstructured.Unstructured) error {
	fields := classes[wanted.GetKind()]
	i := slices.IndexFunc(fields, func(f string) bool { return !sameField(live, wanted, f) })
	if i < 0 {
		return nil
	}
	return &fault.Error{
		Reason: fault.Conflict, Op: "apply", Subject: IDOf(live).Key.String(),
		Hint: "give the class with the new settings another name; or delete this one, if nothing is to use it any more",
		Err:  fmt.Errorf("its %s differs and cannot change", fields[i]),
	}
}

// alone tells whether a step concerns nothing but its object.
func (s Step) alone() bool { return classes[s.Kind] != nil }

// Blocked returns the drivers that have a conflict, other than about a class.
func (p Plan) Blocked() map[matrix.Driver]error {
	all := map[matrix.Driver]error{}
	for _, s := range p.Steps {
		if s.Err != nil && !s.alone() {
			all[s.Driver] = fault.Join(all[s.Driver], s.Err)
		}
	}
	return all
}
