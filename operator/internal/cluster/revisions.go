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

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/anew"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// KeepRevision writes what a revision of a VDOConfig consists of into an immutable
// ConfigMap. One that is there already stays where it is of the same: it is of a pass
// that was interrupted; any other makes way. The copy of its bundle
// stays as long as it does, whatever becomes of the DriverBundle.
func (c *Cluster) KeepRevision(ctx context.Context, of types.NamespacedName, m revision.Manifest) error {
	cm, err := c.writeRevision(ctx, of, m)
	if err != nil {
		return revisionFault("keep", cm, err)
	}
	return revisionFault("keep the bundle of", cm, c.ownCopy(ctx, cm))
}

// ownCopy makes a revision an owner of the copies of its bundle: the garbage collector
// takes what has lost all of its owners.
func (c *Cluster) ownCopy(ctx context.Context, cm *corev1.ConfigMap) error {
	copies := metav1.PartialObjectMetadataList{}
	copies.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := c.Reader.List(ctx, &copies, client.InNamespace(cm.Namespace), client.MatchingLabels{revision.LabelCopy: cm.Labels[revision.LabelDigest]}); err != nil {
		return err
	}
	for i := range copies.Items {
		o := &copies.Items[i]
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

func (c *Cluster) writeRevision(ctx context.Context, of types.NamespacedName, m revision.Manifest) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: revision.ConfigMapName(of.Name, m.Revision.Name()),
			Labels: map[string]string{labelPart: FieldManager, revision.LabelDigest: revision.DigestLabel(m.Bundle)},
		},
		Immutable: ptr.To(true),
		Data:      map[string]string{revision.DataKey: string(m.Marshal())},
	}
	maps.Copy(cm.Labels, revision.LabelsOf(of.Name))
	var there corev1.ConfigMap
	switch err := c.Reader.Get(ctx, client.ObjectKeyFromObject(cm), &there); {
	case apierrors.IsNotFound(err):
		return cm, c.Client.Create(ctx, cm, client.FieldOwner(FieldManager))
	case err != nil:
		return cm, err
	}
	known, err := revision.ParseManifest(there.Data[revision.DataKey])
	same := err == nil && known.Hash() == m.Hash() && maps.Equal(known.Contents, m.Contents)
	if same && there.Labels[revision.LabelDigest] == cm.Labels[revision.LabelDigest] {
		return &there, nil
	}
	return cm, anew.Make(ctx, c.Client, c.Reader, &there, func() error { return c.Client.Create(ctx, cm, client.FieldOwner(FieldManager)) })
}

// DropRevisions removes what revisions of a VDOConfig consist of but for those of bundles.
func (c *Cluster) DropRevisions(ctx context.Context, of types.NamespacedName, but []string) error {
	keep := map[string]bool{}
	for _, bundle := range but {
		keep[revision.DigestLabel(bundle)] = true
	}
	all := metav1.PartialObjectMetadataList{} // what is in them is for nobody to read here
	all.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := c.Reader.List(ctx, &all, client.InNamespace(of.Namespace), client.MatchingLabels(revision.LabelsOf(of.Name))); err != nil {
		return classify("list", "revisions of "+of.String(), err)
	}
	gone := slices.DeleteFunc(all.Items, func(cm metav1.PartialObjectMetadata) bool {
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
