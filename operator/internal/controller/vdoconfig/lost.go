package vdoconfig

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
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

// forgotten tells whether a driver that is asked for was installed, and with which settings it
// runs is lost with the records.
func (s *site) forgotten(d matrix.Driver) bool {
	cur, _ := s.inventory.Memory().Revisions.InForce()
	_, there := s.installed[d]
	return there && !s.runs(d) && slices.Contains(s.wanted(), d) && (s.historyLost() || cur.Version(string(d)) != "")
}

// forgottenFault is why such a driver is left as it is: what checks keep back waits, and what
// its configuration would be kept as nobody knows.
func forgottenFault(d matrix.Driver, held error) error {
	reason, why := fault.Incomplete, beingChecked
	if held != nil {
		reason, why = fault.ReasonOf(held), fault.Text(held)
	}
	return &fault.Error{
		Reason: reason, Op: "take over", Subject: string(d), Err: errors.New("the records with the settings that it runs with were deleted, and those that are asked for have to wait: " + why),
		Hint: "until they need not it is left as it is, and not repaired",
	}
}

var errUnproven = errors.New("nothing proves that the operator has written it, and nothing else says how the volumes that there are were served: it is not written over")

// unproven refuses to write over a record that counts as none, since nothing shows that anything
// was installed before, while there are volumes and nothing else has their cluster id, or nobody
// asks for their driver: it may be that of a backup which was restored without statuses.
func (g *gatherer) unproven(ctx context.Context) error {
	if g.kept.Found || len(g.kept.Rejected) == 0 {
		return nil
	}
	known := g.cluster.GeneratedClusterID != "" || g.cluster.ConfiguredClusterID != ""
	if sp := g.spec.StorageProvider; (known || (sp != nil && sp.ClusterID != "")) && slices.Contains(g.wanted(), matrix.CSI) {
		return nil
	}
	volumes, attachments, err := g.Cluster.Volumes(ctx)
	if err != nil || volumes+attachments == 0 {
		return err
	}
	return &fault.Error{
		Reason: fault.Untrusted, Op: "write", Subject: "ConfigMaps " + strings.Join(inventory.VDOConfigs.Both(g.name.Namespace, g.name.Name), " and "), Err: errUnproven,
		Hint: "where a backup was restored, restore the VDOConfig's status, or the operator's Secrets (vdo-config-hash and its copy), or the driver's (" + render.CSINamespace + "/" + render.CSISecret + "), as well; where the ConfigMaps are not the operator's, delete both",
	}
}
