package cluster

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// KeepRevision makes an empty ConfigMap for a revision of a VDOConfig, where there is none. The copy of its
// bundle stays as long as it does, whatever becomes of the DriverBundle.
func (c *Cluster) KeepRevision(ctx context.Context, of types.NamespacedName, r revision.Revision) error {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: revision.ConfigMapName(of.Name, r.Name()),
			Labels: map[string]string{labelPart: FieldManager, revision.LabelDigest: revision.DigestLabel(r.Bundle)},
		},
		Immutable: ptr.To(true),
	}
	maps.Copy(cm.Labels, revision.LabelsOf(of.Name))
	err := c.Client.Create(ctx, cm, client.FieldOwner(FieldManager))
	if apierrors.IsAlreadyExists(err) {
		err = c.Reader.Get(ctx, client.ObjectKeyFromObject(cm), cm) // of a pass that was interrupted
	}
	if err != nil {
		return revisionFault("keep", cm, err)
	}
	return revisionFault("keep the bundle of", cm, c.ownCopy(ctx, cm))
}

// ownCopy makes a revision an owner of the copies of its bundle: the garbage collector
// takes what has lost all of its owners.
func (c *Cluster) ownCopy(ctx context.Context, cm *corev1.ConfigMap) error {
	of := client.MatchingLabels{revision.LabelCopy: cm.Labels[revision.LabelDigest]}
	copies, err := c.configMaps(ctx, cm.Namespace, of)
	if err != nil {
		return err
	}
	for i := range copies {
		o := &copies[i]
		if slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == cm.UID }) {
			continue
		}
		before := o.DeepCopy()
		o.OwnerReferences = append(o.OwnerReferences, revision.Owner(cm))
		as := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := c.Client.Patch(ctx, o, as, client.FieldOwner(FieldManager)); err != nil {
			return err
		}
	}
	return nil
}

// configMaps are those with labels, without what is in them.
func (c *Cluster) configMaps(
	ctx context.Context, namespace string, with client.MatchingLabels,
) ([]metav1.PartialObjectMetadata, error) {
	var all metav1.PartialObjectMetadataList
	all.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	err := c.Reader.List(ctx, &all, client.InNamespace(namespace), with)
	return all.Items, err
}

// DropRevisions removes what revisions of a VDOConfig consist of but for those of bundles.
func (c *Cluster) DropRevisions(ctx context.Context, of types.NamespacedName, but []string) error {
	keep := map[string]bool{}
	for _, bundle := range but {
		keep[revision.DigestLabel(bundle)] = true
	}
	all, err := c.configMaps(ctx, of.Namespace, revision.LabelsOf(of.Name))
	if err != nil {
		return classify("list", "revisions of "+of.String(), err)
	}
	gone := slices.DeleteFunc(all, func(cm metav1.PartialObjectMetadata) bool {
		return keep[cm.Labels[revision.LabelDigest]]
	})
	for i := range gone {
		if err := c.deleteAsRead(ctx, &gone[i]); err != nil {
			return revisionFault("delete", &gone[i], err)
		}
	}
	return nil
}

// deleteAsRead deletes an object in the state that it was read in; one that is gone is
// deleted.
func (c *Cluster) deleteAsRead(ctx context.Context, o client.Object) error {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return client.IgnoreNotFound(c.Client.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version}))
}

func revisionFault(op string, cm client.Object, err error) error {
	if err == nil {
		return nil
	}
	return classify(op, "ConfigMap "+cm.GetNamespace()+"/"+cm.GetName(), err)
}
