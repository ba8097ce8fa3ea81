package store

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// Forget removes the copies of a DriverBundle but that of the accepted digest, and those
// of digests that retained revisions were installed from.
func (s *Store) Forget(ctx context.Context, b *v1alpha1.DriverBundle) error {
	if s.opts.Watched != nil { // nothing is removed on its word
		soon, cancel := context.WithTimeout(ctx, time.Second) // without the right to list it never answers
		defer cancel()
		if old, err := s.obsolete(soon, s.opts.Watched, b); err == nil && len(old) == 0 {
			return nil
		}
	}
	old, err := s.obsolete(ctx, s.opts.Reader, b)
	if err != nil {
		return copyFault("list", b, err)
	}
	var errs []error
	for i := range old {
		uid := client.Preconditions{UID: &old[i].UID}
		errs = append(errs, client.IgnoreNotFound(s.opts.Client.Delete(ctx, &old[i], uid)))
	}
	if err := fault.Join(errs...); err != nil {
		return copyFault("remove old parts of", b, err)
	}
	return nil
}

// obsolete are the parts of copies that [Store.Forget] removes.
func (s *Store) obsolete(ctx context.Context, from client.Reader, b *v1alpha1.DriverBundle) ([]metav1.PartialObjectMetadata, error) {
	list := configMaps()
	if err := from.List(ctx, list, client.InNamespace(b.Namespace), client.MatchingLabels(copyLabels(b))); err != nil {
		return nil, err
	}
	kept, err := revisions(ctx, from, b.Namespace, client.HasLabels{revision.LabelDigest})
	if err != nil {
		return nil, err
	}
	keep := map[string]bool{}
	for i := range kept {
		keep[kept[i].Labels[revision.LabelDigest]] = true
	}
	if d, err := image.ParseDigest(b.Status.Digest); err == nil {
		keep[d.Hex()[:63]] = true
	}
	return slices.DeleteFunc(list.Items, func(o metav1.PartialObjectMetadata) bool { return keep[o.Labels[labelDigest]] }), nil
}

// revisions are the ConfigMaps of revisions, of the bundle that the labels say.
func revisions(ctx context.Context, from client.Reader, namespace string, labels client.ListOption) ([]metav1.PartialObjectMetadata, error) {
	list := configMaps()
	err := from.List(ctx, list, client.InNamespace(namespace), labels)
	return list.Items, err
}

// configMaps is a list of what ConfigMaps are, without what is in them.
func configMaps() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	return list
}
