package store

import (
	"context"
	"slices"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	keep, owners, err := retained(ctx, from, b.Namespace)
	if err != nil {
		return nil, err
	}
	owned := func(o metav1.Object) bool {
		return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return owners[r.UID] })
	}
	if d, err := image.ParseDigest(b.Status.Digest); err == nil {
		keep[d.Hex()[:63]] = true
	}
	return slices.DeleteFunc(list.Items, func(o metav1.PartialObjectMetadata) bool {
		return keep[o.Labels[labelDigest]] || owned(&o)
	}), nil
}

// maxRetained is how many bundles' copies are retained for revisions: that many revisions
// a VDOConfig retains at most. Of more, which somebody else has made, the newest count, and
// those that own a copy already.
const maxRetained = 12

// retained are the digests, as labels have them, of the bundles that revisions were
// installed from, and the revisions, which may own copies.
func retained(ctx context.Context, from client.Reader, namespace string) (digests map[string]bool, owners map[types.UID]bool, err error) {
	all, err := revisions(ctx, from, namespace, client.HasLabels{revision.LabelDigest})
	digests, owners = map[string]bool{}, map[types.UID]bool{}
	for i := range all {
		owners[all[i].UID] = true
	}
	for _, o := range newest(all) {
		digests[o.Labels[revision.LabelDigest]] = true
	}
	return digests, owners, err
}

// revisions are the ConfigMaps of revisions, of the bundle that the labels say.
func revisions(ctx context.Context, from client.Reader, namespace string, labels client.ListOption) ([]metav1.PartialObjectMetadata, error) {
	list := configMaps()
	err := from.List(ctx, list, client.InNamespace(namespace), labels)
	return list.Items, err
}

// newest are the newest revisions, of maxRetained bundles.
func newest(all []metav1.PartialObjectMetadata) []metav1.PartialObjectMetadata {
	all = slices.Clone(all)
	sort.SliceStable(all, func(i, j int) bool { return all[j].CreationTimestamp.Before(&all[i].CreationTimestamp) })
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(o metav1.PartialObjectMetadata) bool {
		seen[o.Labels[revision.LabelDigest]] = seen[o.Labels[revision.LabelDigest]] || len(seen) < maxRetained
		return !seen[o.Labels[revision.LabelDigest]]
	})
}

// configMaps is a list of what ConfigMaps are, without what is in them.
func configMaps() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	return list
}
