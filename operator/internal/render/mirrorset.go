package render

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// MirrorSet returns the ImageDigestMirrorSet that redirects OpenShift's nodes to the mirror. As in `vdo-bundle
// mirror-config`, nodes pull missing images from upstream, unless the entry has another policy.
func MirrorSet(entries mirrorset.Entries) Object {
	o := &unstructured.Unstructured{Object: entries.Object(mirrorset.Digests, MirrorSetName, mirrorset.AllowContactingSource)}
	// The version is that of the object's form: the entries contain all that depends on the drivers' releases.
	o.SetLabels(map[string]string{LabelManagedBy: ManagedBy, LabelDriver: string(drivers.MirrorSet), LabelVersion: mirrorset.Digests.Version})
	return Object{Unstructured: o, Driver: drivers.MirrorSet, Apply: Merge}
}

// addMirrorSet adds it in a stage before all pods, whose images it redirects.
func (r *renderer) addMirrorSet() {
	if len(r.in.Mirrored) == 0 {
		return
	}
	o := MirrorSet(r.in.Mirrored)
	st := r.stage(StageMirrors)
	st.Objects, st.Drivers = append(st.Objects, o), []matrix.Driver{drivers.MirrorSet}
	r.waitFor(StageMirrors, Wait{Kind: Exists, Object: RefOf(o.Unstructured), Why: "the nodes find the drivers' images by it"})
}
