package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/tracing"
)

// labelPart distinguishes the operator's own objects from those it installs.
const labelPart = "app.kubernetes.io/part-of"

// Loaded is an inventory as it was read. The zero value means a missing one.
type Loaded struct {
	inventory.Inventory
	Exists bool

	configMap *corev1.ConfigMap // as last read or written; nil if missing
}

// LoadInventory reads the inventory of an owner; Records names it. It has no owner reference: if the VDOConfig is
// deleted in the foreground, garbage collection would delete it before its objects.
func (c *Cluster) LoadInventory(ctx context.Context, of types.NamespacedName) (Loaded, error) {
	cm, err := c.inventoryAt(ctx, of.Namespace, c.Records.ConfigMap(of.Name))
	if err != nil || cm == nil {
		return Loaded{}, err
	}
	out := Loaded{Exists: true, configMap: cm}
	out.Inventory, err = inventory.Parse("ConfigMap "+cm.Namespace+"/"+cm.Name, []byte(cm.Data[inventory.DataKey]))
	return out, err
}

// inventoryAt returns the ConfigMap of an inventory, nil if missing.
func (c *Cluster) inventoryAt(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	var cm corev1.ConfigMap
	err := c.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &cm)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, classify("read", "inventory "+namespace+"/"+name, err)
	}
	return &cm, nil
}

// SaveInventory replaces the inventory that was read. It fails with Conflict if that changed or is missing: another
// operator leads now.
func (c *Cluster) SaveInventory(
	ctx context.Context, of types.NamespacedName, inv inventory.Inventory, was Loaded,
) (out Loaded, err error) {
	ctx, end := tracing.Span(ctx, "write inventory")
	defer func() { end(err) }()
	data := map[string]string{inventory.DataKey: string(inv.Marshal())}
	out = Loaded{Inventory: inv, Exists: true}
	if was.configMap == nil {
		out.configMap = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: c.Records.ConfigMap(of.Name), Labels: map[string]string{labelPart: FieldManager}}, Data: data}
		err = c.Client.Create(ctx, out.configMap, client.FieldOwner(FieldManager))
	} else {
		out.configMap = was.configMap.DeepCopy()
		out.configMap.Data = data
		err = c.Client.Update(ctx, out.configMap, client.FieldOwner(FieldManager))
	}
	switch {
	case err == nil:
		return out, nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		return was, fault.Errorf(fault.Conflict, "write",
			"ConfigMap "+of.Namespace+"/"+c.Records.ConfigMap(of.Name), "",
			"%w: it was written or removed meanwhile, as by an operator that leads now", fault.ErrOutdated)
	}
	return was, classify("write", "ConfigMap "+of.Namespace+"/"+c.Records.ConfigMap(of.Name), err)
}

// DeleteInventory deletes the inventory; everything in it must be gone.
func (c *Cluster) DeleteInventory(ctx context.Context, of types.NamespacedName) error {
	if err := c.drop(ctx, of.Namespace, c.Records.Copy(of.Name)); err != nil { // of an earlier version
		return err
	}
	return c.drop(ctx, of.Namespace, c.Records.ConfigMap(of.Name))
}

// drop deletes an inventory in its current state. It stays if it is changed or recreated meanwhile, as by a new
// leader.
func (c *Cluster) drop(ctx context.Context, namespace, name string) error {
	cm, err := c.inventoryAt(ctx, namespace, name)
	if cm == nil {
		return err
	}
	if err := c.deleteAsRead(ctx, cm); err != nil {
		return classify("delete", "inventory "+namespace+"/"+name, err)
	}
	return nil
}

// Data reads a Secret or ConfigMap; the zero value means a missing one.
func (c *Cluster) Data(ctx context.Context, namespace string, ref v1alpha1.KeyReference) (source.Data, error) {
	d, err := source.Read(ctx, c.Reader, namespace, ref)
	switch {
	case c.absent(ctx, namespace, err):
		return source.Data{}, nil
	case err != nil:
		return source.Data{}, classify("read", source.Subject(namespace, ref), err)
	}
	return d, nil
}

// Credentials reads the credentials of a VsphereCloudConfig, and their version.
func (c *Cluster) Credentials(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig) (credentials.Credentials, error) {
	return credentials.Read(ctx, c.Reader, vcc)
}

// PolicyVersion identifies the state of the sources of a DriverBundle's trust policies.
func (c *Cluster) PolicyVersion(ctx context.Context, b *v1alpha1.DriverBundle) (string, error) {
	return source.PolicyVersion(ctx, c.Reader, b, c.TrustFloor)
}

// CreateSecret creates a Secret of the operator's own. It fails if one with any of the keys exists, since a second
// key would differ. It recreates an emptied one.
func (c *Cluster) CreateSecret(ctx context.Context, key types.NamespacedName, data map[string][]byte) error {
	s := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{labelPart: FieldManager}}, Data: data}
	err := c.Client.Create(ctx, s.DeepCopy(), client.FieldOwner(FieldManager))
	if apierrors.IsAlreadyExists(err) && c.dropEmptied(ctx, key, data) {
		err = c.Client.Create(ctx, &s, client.FieldOwner(FieldManager))
	}
	if err != nil {
		return classify("create", "Secret "+key.String(), err)
	}
	return nil
}

// dropEmptied deletes a Secret without any of the keys, and reports whether it did.
func (c *Cluster) dropEmptied(ctx context.Context, key types.NamespacedName, keys map[string][]byte) bool {
	var exists corev1.Secret
	if c.Reader.Get(ctx, key, &exists) != nil {
		return false
	}
	for k := range keys {
		if len(exists.Data[k]) > 0 {
			return false
		}
	}
	return c.deleteAsRead(ctx, &exists) == nil
}

// KeptKey is the data key with which Secrets store a key of the operator's own.
const KeptKey = "key"

// Key returns the operator's own key in the first of these Secrets that has one, and that Secret's name; nil and ""
// if none has.
func (c *Cluster) Key(ctx context.Context, namespace string, secrets ...string) (key []byte, in string, err error) {
	for _, name := range secrets {
		d, err := c.Data(ctx, namespace, v1alpha1.KeyReference{Secret: name})
		if err != nil || len(d.Values[KeptKey]) > 0 {
			return d.Values[KeptKey], name, err
		}
	}
	return nil, "", nil
}

// deleteAsRead deletes an object if it is in the state that was read. A missing one is no error.
func (c *Cluster) deleteAsRead(ctx context.Context, o client.Object) error {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return client.IgnoreNotFound(c.Client.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version}))
}
