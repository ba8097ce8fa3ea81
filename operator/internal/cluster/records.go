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

// labelPart tells the operator's own bookkeeping from what it installs.
const labelPart = "app.kubernetes.io/part-of"

// Loaded is a record as it was read. The zero value is of one that is not there.
type Loaded struct {
	inventory.Inventory
	Exists bool

	configMap *corev1.ConfigMap // as it was read or written last; nil where it is not there
}

// LoadInventory reads the inventory of an owner, as Records names them. No owner refers to it: with
// the VDOConfig deleted in the foreground the garbage collector would take it before its objects are
// removed.
func (c *Cluster) LoadInventory(ctx context.Context, of types.NamespacedName) (Loaded, error) {
	cm, err := c.inventoryAt(ctx, of.Namespace, c.Records.ConfigMap(of.Name))
	if err != nil || cm == nil {
		return Loaded{}, err
	}
	out := Loaded{Exists: true, configMap: cm}
	out.Inventory, err = inventory.Parse("ConfigMap "+cm.Namespace+"/"+cm.Name, []byte(cm.Data[inventory.DataKey]))
	return out, err
}

// inventoryAt returns a ConfigMap with a record, nil where there is none.
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

// SaveInventory writes the inventory of an owner in the place of the one that was read. It fails
// with Conflict where that is not there any more as it was: another operator leads now.
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

// DeleteInventory removes the record, once everything in it is gone.
func (c *Cluster) DeleteInventory(ctx context.Context, of types.NamespacedName) error {
	if err := c.drop(ctx, of.Namespace, c.Records.Copy(of.Name)); err != nil { // of an earlier program
		return err
	}
	return c.drop(ctx, of.Namespace, c.Records.ConfigMap(of.Name))
}

// drop deletes a record as it is now: one that is written or recreated in between, as by an operator
// that leads since, stays.
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

// Secret returns the data of a Secret, or nil where there is none.
func (c *Cluster) Secret(ctx context.Context, key types.NamespacedName) (map[string][]byte, error) {
	data, _, err := c.VersionedSecret(ctx, key)
	return data, err
}

// VersionedSecret returns the data of a Secret and what identifies its state, or nil
// and "" where there is none.
func (c *Cluster) VersionedSecret(ctx context.Context, key types.NamespacedName) (data map[string][]byte, version string, err error) {
	d, err := c.data(ctx, key.Namespace, v1alpha1.KeyReference{Secret: key.Name})
	return d.Values, d.Version, err
}

// data reads a Secret or ConfigMap; the zero value is of one that is not there.
func (c *Cluster) data(ctx context.Context, namespace string, ref v1alpha1.KeyReference) (source.Data, error) {
	d, err := source.Read(ctx, c.Reader, namespace, ref)
	switch {
	case c.absent(ctx, namespace, err):
		return source.Data{}, nil
	case err != nil:
		return source.Data{}, classify("read", source.Subject(namespace, ref), err)
	}
	return d, nil
}

// Credentials reads what a VsphereCloudConfig refers to, and its version.
func (c *Cluster) Credentials(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig) (credentials.Credentials, error) {
	return credentials.Read(ctx, c.Reader, vcc)
}

// PolicyVersion identifies the state of what a DriverBundle's trust policies are read from.
func (c *Cluster) PolicyVersion(ctx context.Context, b *v1alpha1.DriverBundle) (string, error) {
	return source.PolicyVersion(ctx, c.Reader, b, c.TrustFloor)
}

// ConfigMap returns the data of a ConfigMap, or nil where there is none.
func (c *Cluster) ConfigMap(ctx context.Context, key types.NamespacedName) (map[string]string, error) {
	d, err := c.data(ctx, key.Namespace, v1alpha1.KeyReference{ConfigMap: key.Name})
	if d.Values == nil {
		return nil, err
	}
	data := make(map[string]string, len(d.Values))
	for k, v := range d.Values {
		data[k] = string(v)
	}
	return data, nil
}

// CreateSecret makes a Secret of the operator's own. It is an error where there is
// one already that has any of the keys: a key made twice would be two keys. One that
// was emptied is recreated.
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

// dropEmptied deletes a Secret that has none of the keys, and tells whether it did.
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

// KeptKey is where Secrets hold a key of the operator's own.
const KeptKey = "key"

// Key returns the operator's own key that the first of these Secrets has, and that Secret's name; nil
// and "" where none has one.
func (c *Cluster) Key(ctx context.Context, namespace string, secrets ...string) (key []byte, in string, err error) {
	for _, name := range secrets {
		data, err := c.Secret(ctx, types.NamespacedName{Namespace: namespace, Name: name})
		if err != nil || len(data[KeptKey]) > 0 {
			return data[KeptKey], name, err
		}
	}
	return nil, "", nil
}

// deleteAsRead deletes an object in the state that it was read in; one that is gone is
// deleted.
func (c *Cluster) deleteAsRead(ctx context.Context, o client.Object) error {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return client.IgnoreNotFound(c.Client.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version}))
}
