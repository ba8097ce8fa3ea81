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
)

// labelPart tells the operator's own bookkeeping from what it installs.
const labelPart = "app.kubernetes.io/part-of"

// LoadInventory reads the inventory of an owner, as Records names them: the record, or
// where that is not there or cannot be read its second copy. Where there is neither it is
// empty. No owner refers to them: with the VDOConfig deleted in the foreground the garbage collector
// would take them before its objects are removed.
func (c *Cluster) LoadInventory(ctx context.Context, of types.NamespacedName) (inventory.Inventory, error) {
	inv, found, err := c.loadInventory(ctx, of.Namespace, c.Records.ConfigMap(of.Name))
	if found && err == nil {
		return inv, nil
	}
	if err != nil && fault.ReasonOf(err) != fault.Corrupt {
		return inventory.Inventory{}, err
	}
	second, there, errCopy := c.loadInventory(ctx, of.Namespace, c.Records.Copy(of.Name))
	if there && errCopy == nil {
		return second, nil
	}
	return inventory.Inventory{}, fault.Join(err, errCopy)
}

func (c *Cluster) loadInventory(ctx context.Context, namespace, name string) (inv inventory.Inventory, found bool, err error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	var cm corev1.ConfigMap
	err = c.Reader.Get(ctx, key, &cm)
	if apierrors.IsNotFound(err) {
		return inventory.Inventory{}, false, nil
	}
	if err != nil {
		return inventory.Inventory{}, false, classify("read", "inventory "+key.String(), err)
	}
	data, ok := cm.Data[inventory.DataKey]
	if !ok {
		return inventory.Inventory{}, true, &fault.Error{
			Reason: fault.Corrupt, Op: "read inventory", Subject: key.String(), Err: errNoData,
			Hint: "restore the ConfigMap from a backup; or delete it: installed objects carry the label app.kubernetes.io/managed-by=vdo-operator and are taken over again",
		}
	}
	inv, err = inventory.Parse(key.String(), []byte(data))
	return inv, true, err
}

// SaveInventory writes the inventory of an owner, the copy first.
func (c *Cluster) SaveInventory(ctx context.Context, of types.NamespacedName, inv inventory.Inventory) error {
	data := map[string]string{inventory.DataKey: string(inv.Marshal())}
	for _, name := range []string{c.Records.Copy(of.Name), c.Records.ConfigMap(of.Name)} {
		if err := c.record(ctx, of.Namespace, name, data); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) record(ctx context.Context, namespace, name string, data map[string]string) error {
	var cm corev1.ConfigMap
	err := c.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &cm)
	switch {
	case apierrors.IsNotFound(err):
		cm = corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{labelPart: FieldManager}}, Data: data}
		err = c.Client.Create(ctx, &cm, client.FieldOwner(FieldManager))
	case err == nil:
		cm.Data = data
		err = c.Client.Update(ctx, &cm, client.FieldOwner(FieldManager))
	}
	if err != nil {
		return classify("write", "ConfigMap "+namespace+"/"+name, err)
	}
	return nil
}

// DeleteInventory removes the record and its copy, once everything in it is gone, after
// what is kept of its revisions.
func (c *Cluster) DeleteInventory(ctx context.Context, of types.NamespacedName) error {
	if err := c.DropRevisions(ctx, of, nil); err != nil {
		return err
	}
	for _, name := range []string{c.Records.ConfigMap(of.Name), c.Records.Copy(of.Name)} {
		if err := c.deleteNow(ctx, types.NamespacedName{Namespace: of.Namespace, Name: name}, &corev1.ConfigMap{}); err != nil {
			return classify("delete", "inventory "+of.String(), err)
		}
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
	d, err := source.Read(ctx, c.Reader, key.Namespace, v1alpha1.KeyReference{Secret: key.Name})
	if c.absent(ctx, key.Namespace, err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", classify("read", "Secret "+key.String(), err)
	}
	return d.Values, d.Version, nil
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
	d, err := source.Read(ctx, c.Reader, key.Namespace, v1alpha1.KeyReference{ConfigMap: key.Name})
	if c.absent(ctx, key.Namespace, err) {
		return nil, nil
	}
	if err != nil {
		return nil, classify("read", "ConfigMap "+key.String(), err)
	}
	data := make(map[string]string, len(d.Values))
	for k, v := range d.Values {
		data[k] = string(v)
	}
	return data, nil
}

// CreateSecret makes a Secret of the operator's own. It is an error where there is
// one already that has any of the keys: a key made twice would be two keys. One that
// was emptied is made anew.
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
	var there corev1.Secret
	if c.Reader.Get(ctx, key, &there) != nil {
		return false
	}
	for k := range keys {
		if len(there.Data[k]) > 0 {
			return false
		}
	}
	as := client.Preconditions{UID: &there.UID, ResourceVersion: &there.ResourceVersion}
	return c.Client.Delete(ctx, &there, as) == nil
}

// DeleteSecret removes a Secret of the operator's own.
func (c *Cluster) DeleteSecret(ctx context.Context, key types.NamespacedName) error {
	if err := c.deleteNow(ctx, key, &corev1.Secret{}); err != nil {
		return classify("delete", "Secret "+key.String(), err)
	}
	return nil
}

// deleteNow deletes an object as it is now: one that is written or made anew in between,
// as by an operator that leads since, stays.
func (c *Cluster) deleteNow(ctx context.Context, key types.NamespacedName, o client.Object) error {
	if err := c.Reader.Get(ctx, key, o); err != nil {
		return client.IgnoreNotFound(err)
	}
	return c.deleteAsRead(ctx, o)
}
