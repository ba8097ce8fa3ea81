package render

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// number writes a number that was set, and nothing for one that was not.
func number(n int32) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}

// snapshotLimits writes section Snapshot.
func snapshotLimits(w *ini, l *v1alpha1.SnapshotLimits) {
	if l == nil || *l == (v1alpha1.SnapshotLimits{}) {
		return
	}
	w.section("Snapshot", "")
	w.setUnlessEmpty("global-max-snapshots-per-block-volume", number(l.MaxPerVolume))
	w.setUnlessEmpty("granular-max-snapshots-per-block-volume-vsan", number(l.MaxPerVolumeVSAN))
	w.setUnlessEmpty("granular-max-snapshots-per-block-volume-vvol", number(l.MaxPerVolumeVVOL))
}

// checkLimits refuses keys that a release would pass over without a word.
func checkLimits(s *source, p *v1alpha1.StorageProvider) error {
	var errs []error
	for _, limit := range []struct {
		field, since string
		set          bool
		negative     bool
	}{
		{"snapshots", "2.4.0", p.Snapshots != nil && *p.Snapshots != (v1alpha1.SnapshotLimits{}), p.Snapshots != nil && min(p.Snapshots.MaxPerVolume, p.Snapshots.MaxPerVolumeVSAN, p.Snapshots.MaxPerVolumeVVOL) < 0},
		{"queryLimit", "2.6.0", p.QueryLimit != 0, p.QueryLimit < 0},
		{"listVolumeThreshold", "2.6.0", p.ListVolumeThreshold != 0, p.ListVolumeThreshold < 0},
		{"fileVolumes.vsanClusters", "2.3.0", p.FileVolumes != nil && len(p.FileVolumes.VsanClusters) > 0, false},
	} {
		field := "spec.storageProvider." + limit.field
		if limit.set && !s.since(limit.since) {
			errs = append(errs, badSpec(field, "leave it out, or use csi@"+limit.since+" or later", "%s does not know it", s.name()))
		}
		if limit.negative {
			errs = append(errs, badSpec(field, "write a positive number", "it is negative"))
		}
	}
	return fault.Join(errs...)
}

// fileShareClusters are the clusters of one vCenter.
func fileShareClusters(files *v1alpha1.FileVolumes, vcenter string) []string {
	var all []string
	for _, c := range files.VsanClusters {
		if c.VsphereCloudConfig == "" || c.VsphereCloudConfig == vcenter {
			all = append(all, c.Clusters...)
		}
	}
	return all
}

// clusterID is how vCenters name clusters, and the driver compares them.
var clusterID = regexp.MustCompile(`^domain-[cs][0-9]+$`)

func checkFileShareClusters(p *v1alpha1.StorageProvider, kept bool) error {
	if p.FileVolumes == nil || kept {
		return nil
	}
	const field = "spec.storageProvider.fileVolumes.vsanClusters"
	vcenters := StorageVCenters(p)
	var errs []error
	for _, c := range p.FileVolumes.VsanClusters {
		switch {
		case c.VsphereCloudConfig == "" && len(vcenters) > 1:
			errs = append(errs, badSpec(field, "say whose clusters they are in vsphereCloudConfig", "the same ids are of other clusters in another vCenter"))
		case c.VsphereCloudConfig != "" && !slices.Contains(vcenters, c.VsphereCloudConfig):
			errs = append(errs, badSpec(field, "name one of these: "+strings.Join(vcenters, ", "), "the storage driver does not use VsphereCloudConfig %s", c.VsphereCloudConfig))
		}
		for _, id := range c.Clusters {
			if !clusterID.MatchString(id) {
				errs = append(errs, badSpec(field, fmt.Sprintf("write its managed object id, such as domain-c8: `govc find -i / -type c -name %s` shows it", fault.Quote(id)), "%q is not the id of a cluster", id))
			}
		}
	}
	return fault.Join(errs...)
}
