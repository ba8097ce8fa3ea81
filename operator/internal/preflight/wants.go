package preflight

import (
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// Use is a vCenter of a configuration, by the name of its VsphereCloudConfig, and the
// drivers that use it.
type Use struct {
	Name     string
	CPI, CSI bool
}

// WantsOf reads what a configuration asks for, and with which vCenters, sorted by name. Of a
// driver whose policy is disabled nothing is wanted.
func WantsOf(spec *v1alpha1.VDOConfigSpec) (Wants, []Use) {
	cloud, storage := render.CloudVCenters(spec.CloudProvider), render.StorageVCenters(spec.StorageProvider)
	w := Wants{CPI: len(cloud) > 0 && !disabled(spec, matrix.CPI), CSI: len(storage) > 0 && !disabled(spec, matrix.CSI)}
	if c := spec.CloudProvider; c != nil {
		w.NodeAddresses, w.IPFamilies = ptr.Deref(c.NodeAddresses, v1alpha1.NodeAddresses{}), c.IPFamilies
		topology := ptr.Deref(c.Topology, v1alpha1.Topology{})
		w.Zone, w.Region = topology.Zone, topology.Region
	}
	if p := spec.StorageProvider; p != nil {
		w.Snapshots = len(p.SnapshotClasses) > 0
		w.Categories, w.ClusterID, w.Encryption = p.TopologyCategories, p.ClusterID, p.Encryption
		isShared := func(c v1alpha1.StorageClass) bool { return c.FSType == "nfs4" }
		w.FileVolumes = p.FileVolumes != nil || slices.ContainsFunc(p.StorageClasses, isShared)
	}
	for _, d := range spec.Drivers {
		if d.Driver == string(matrix.CSI) {
			w.CSIVersion = strings.TrimPrefix(d.Version, "v")
		}
	}
	names := slices.Concat(cloud, storage)
	slices.Sort(names)
	var uses []Use
	for _, n := range slices.Compact(names) {
		uses = append(uses, Use{Name: n, CPI: w.CPI && slices.Contains(cloud, n), CSI: w.CSI && slices.Contains(storage, n)})
	}
	return w, uses
}

func disabled(spec *v1alpha1.VDOConfigSpec, d matrix.Driver) bool {
	return slices.ContainsFunc(spec.Drivers, func(p v1alpha1.DriverPolicy) bool { return p.Driver == string(d) && p.Policy == "disabled" })
}

// FeaturesAt are those that the account of one vCenter needs privileges for.
func (w Wants) FeaturesAt(u Use) privileges.Features {
	f := w.Features()
	f.CPI, f.Block, f.File, f.Encryption = f.CPI && u.CPI, f.Block && u.CSI, f.File && u.CSI, f.Encryption && u.CSI
	return f
}
