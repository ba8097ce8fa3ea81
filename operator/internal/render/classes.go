package render

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

const (
	annotationDefaultClass         = "storageclass.kubernetes.io/is-default-class"
	annotationDefaultSnapshotClass = "snapshot.storage.kubernetes.io/is-default-class"
)

func (r *renderer) addClasses(s *source, p *v1alpha1.StorageProvider) {
	for _, c := range p.StorageClasses {
		r.add(s, StageClasses, storageClass(c, len(p.TopologyCategories) > 0), Merge)
	}
	for _, c := range p.SnapshotClasses {
		o := object("snapshot.storage.k8s.io/v1", "VolumeSnapshotClass", "", c.Name)
		o.Object["driver"] = drivers.CSIDriver
		o.Object["deletionPolicy"] = cmp.Or(c.DeletionPolicy, "Delete")
		o.SetAnnotations(map[string]string{annotationDefaultSnapshotClass: fmt.Sprint(c.Default)})
		r.add(s, StageClasses, o, Merge)
	}
}

func storageClass(c v1alpha1.StorageClass, topology bool) *unstructured.Unstructured {
	o := object("storage.k8s.io/v1", "StorageClass", "", c.Name)
	o.Object["provisioner"] = drivers.CSIDriver
	parameters := map[string]any{}
	for name, value := range map[string]string{
		"storagepolicyname": c.StoragePolicy, "datastoreurl": c.DatastoreURL, "csi.storage.k8s.io/fstype": c.FSType,
	} {
		if value != "" {
			parameters[name] = value
		}
	}
	if len(parameters) > 0 {
		o.Object["parameters"] = parameters
	}
	binding := "Immediate"
	if topology {
		binding = "WaitForFirstConsumer"
	}
	o.Object["volumeBindingMode"] = cmp.Or(c.VolumeBindingMode, binding)
	o.Object["reclaimPolicy"] = cmp.Or(c.ReclaimPolicy, "Delete")
	o.Object["allowVolumeExpansion"] = c.AllowVolumeExpansion == nil || *c.AllowVolumeExpansion
	o.SetAnnotations(map[string]string{annotationDefaultClass: fmt.Sprint(c.Default)})
	return o
}
