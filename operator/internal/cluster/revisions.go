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

// KeepRevision writes what a revision of a VDOConfig consists of into an immutable
// ConfigMap. One that is there already stays where it has the same seal: it is of a pass
// that was interrupted; any other is somebody else's, and makes way.
func (c *Cluster) KeepRevision(ctx context.Context, of types.NamespacedName, m revision.Manifest) error {
	cm := corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: revision.ConfigMapName(of.Name, m.Name),
			Labels: map[string]string{labelPart: FieldManager, revision.LabelDigest: revision.DigestLabel(m.Bundle)},
		},
		Immutable: ptr.To(true),
		Data:      map[string]string{revision.DataKey: string(m.Marshal())},
	}
	maps.Copy(cm.Labels, revision.LabelsOf(of.Name))
	var there corev1.ConfigMap
	switch err := c.Reader.Get(ctx, client.ObjectKeyFromObject(&cm), &there); {
	case apierrors.IsNotFound(err):
		return revisionFault("write", &cm, c.Client.Create(ctx, &cm, client.FieldOwner(FieldManager)))
	case err != nil:
		return revisionFault("read", &cm, err)
	}
	known, err := revision.ParseManifest(there.Data[revision.DataKey])
	if err == nil && known.Seal == m.Seal && there.Labels[revision.LabelDigest] == cm.Labels[revision.LabelDigest] {
		return nil
	}
	if err := c.deleteAsRead(ctx, &there); err != nil {
		return revisionFault("delete", &cm, err)
	}
	return revisionFault("write", &cm, c.Client.Create(ctx, &cm, client.FieldOwner(FieldManager)))
}

// DropRevisions removes what revisions of a VDOConfig consist of but for those named.
func (c *Cluster) DropRevisions(ctx context.Context, of types.NamespacedName, but []string) error {
	keep := map[string]bool{}
	for _, name := range but {
		keep[revision.ConfigMapName(of.Name, name)] = true
	}
	var all corev1.ConfigMapList
	if err := c.Reader.List(ctx, &all, client.InNamespace(of.Namespace), client.MatchingLabels(revision.LabelsOf(of.Name))); err != nil {
		return classify("list", "revisions of "+of.String(), err)
	}
	gone := slices.DeleteFunc(all.Items, func(cm corev1.ConfigMap) bool { return keep[cm.Name] })
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

func revisionFault(op string, cm *corev1.ConfigMap, err error) error {
	if err == nil {
		return nil
	}
	return classify(op, "ConfigMap "+cm.Namespace+"/"+cm.Name, err)
}
