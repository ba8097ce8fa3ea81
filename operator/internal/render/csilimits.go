package render

import (
	"strconv"

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
	var bad problems
	for _, limit := range []struct {
		field, since string
		set          bool
	}{
		{"snapshots", "2.4.0", p.Snapshots != nil && *p.Snapshots != (v1alpha1.SnapshotLimits{})},
		{"queryLimit", "2.6.0", p.QueryLimit != 0},
		{"listVolumeThreshold", "2.6.0", p.ListVolumeThreshold != 0},
	} {
		bad.when(limit.set && !s.since(limit.since), "spec.storageProvider."+limit.field,
			"leave it out, or use csi@"+limit.since+" or later", "%s does not know it", s.name())
	}
	return fault.Join(bad...)
}
