package vdoconfig

import (
	"errors"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// lost tells whether the status has the storage driver, nobody asks for it, and the inventory,
// which would say what became of it and how it was last asked for, is lost.
func (s *site) lost() bool {
	if s.inventory.Len() > 0 || slices.Contains(s.wanted(), matrix.CSI) {
		return false
	}
	for _, d := range s.config.Status.Drivers {
		if d.Driver == string(matrix.CSI) && d.Version != "" {
			return true
		}
	}
	return false
}

// lostFault is why nothing is done while volumes use such a driver: in an inventory that is made
// anew it would be nobody's, and what it needs would be removed from under it.
func lostFault(volumes error) error {
	return fault.Join(&fault.Error{
		Reason: fault.NotFound, Op: "take over", Subject: string(matrix.CSI), Err: errors.New("it serves volumes, nobody asks for it, and how it was asked for is lost with the inventory"),
		Hint: "put spec.storageProvider back as it was, so that it is taken over; after that it may be taken out again",
	}, volumes)
}
