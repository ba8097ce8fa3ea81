package render

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// MirrorSet is the ImageDigestMirrorSet that leads OpenShift's nodes to the mirror. It says of
// every repository what `vdo-bundle mirror-config` says: upstream is asked where the mirror has
// nothing, unless the entry has another policy.
func MirrorSet(entries mirrorset.Entries) Object {
	o := &unstructured.Unstructured{Object: entries.Object(mirrorset.Digests, MirrorSetName, mirrorset.AllowContactingSource)}
	// Its release is that of its form: all of a driver's release that it depends on is in the entries.
	o.SetLabels(map[string]string{LabelManagedBy: ManagedBy, LabelDriver: string(drivers.MirrorSet), LabelVersion: mirrorset.Digests.Version})
	return Object{Unstructured: o, Driver: drivers.MirrorSet, Apply: Merge}
}

// addMirrorSet places it before all pods: what is rendered for them is pulled by it.
func (r *renderer) addMirrorSet() {
	if len(r.in.Mirrored) == 0 {
		return
	}
	o := MirrorSet(r.in.Mirrored)
	st := r.stage(StageMirrors)
	st.Objects, st.Drivers = append(st.Objects, o), []matrix.Driver{drivers.MirrorSet}
	r.waitFor(StageMirrors, Wait{Kind: Exists, Object: RefOf(o.Unstructured), Why: "the nodes find the drivers' images by it"})
}
