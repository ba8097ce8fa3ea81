package vdoconfig

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// The inventory is a ConfigMap, and what it says of each object, and of revisions, stays good
// under the operator's key when it is put back later: with it an older revision would be in
// force again, and what was installed since would be nobody's. The numbers of revisions only
// grow, and the status, which is written after the inventory and under another right, has
// them too: an inventory that knows fewer is not believed.

// replayed refuses an inventory that is older than the status. One that is lost is none.
func replayed(config *v1alpha1.VDOConfig, inv inventory.Inventory) error {
	known := highestRevision(&config.Status)
	if inv.Len() == 0 || inv.Memory().Revisions.Last >= known {
		return nil
	}
	names := inventory.VDOConfigs
	return &fault.Error{
		Reason: fault.Untrusted, Op: "read", Subject: "ConfigMap " + config.Namespace + "/" + names.ConfigMap(config.Name),
		Err:  fmt.Errorf("it is older than the status: it knows of %d revisions, the status of %d", inv.Memory().Revisions.Last, known),
		Hint: fmt.Sprintf("nothing is changed by it: put back the one that was there, or, where a backup was restored on purpose, delete it and %s, and what is installed is taken over again", names.Copy(config.Name)),
	}
}

// highestRevision is the highest number of a revision that a status names, 0 for none.
func highestRevision(st *v1alpha1.VDOConfigStatus) int {
	highest := revisionNumber(st.Revision)
	for _, r := range st.Revisions {
		highest = max(highest, revisionNumber(r.Name))
	}
	return highest
}

// maxRevisionNumber is above all that are ever given: after it there is room for the next.
const maxRevisionNumber = 1_000_000_000

// revisionNumber is that of a name such as r12-3fa9c1d2, 0 of one that was never given.
func revisionNumber(name string) int {
	digits, _, _ := strings.Cut(strings.TrimPrefix(name, "r"), "-")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || n > maxRevisionNumber {
		return 0
	}
	return n
}

var errOtherInForce = errors.New("the inventory has it in force, and the status another one")
