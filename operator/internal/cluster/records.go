package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/anew"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
)

// labelPart tells the operator's own bookkeeping from what it installs.
const labelPart = "app.kubernetes.io/part-of"

// LoadInventory reads the inventory of an owner, as Records names them, and believes of its
// two copies what the proof says. Where there is neither it is
// empty. No owner refers to them: with the VDOConfig deleted in the foreground the garbage collector
// would take them before its objects are removed.
func (c *Cluster) LoadInventory(ctx context.Context, of types.NamespacedName, by inventory.Proof) (inventory.Loaded, error) {
	by.Owner = c.owner(of)
	copies, err := c.copies(ctx, of.Namespace, c.Records.ConfigMap(of.Name), c.Records.Copy(of.Name))
	if err != nil {
		return inventory.Loaded{}, err
	}
	earlier := c.Records.Earlier(of.Name)
	if !by.Earlier || len(earlier) == 0 || slices.ContainsFunc(copies, func(c inventory.Copy) bool { return c.Found }) {
		return inventory.Believe(copies, by)
	}
	by.Owner = of.Namespace + "/" + earlier[0]
	if copies, err = c.copies(ctx, of.Namespace, earlier...); err != nil {
		return inventory.Loaded{}, err
	}
	loaded, err := inventory.Believe(copies, by)
	loaded.Whole = false // it is written under the names of now
	return loaded, err
}

func (c *Cluster) copies(ctx context.Context, namespace string, names ...string) ([]inventory.Copy, error) {
	var all []inventory.Copy
	for _, name := range names {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		var cm corev1.ConfigMap
		err := c.Reader.Get(ctx, key, &cm)
		if client.IgnoreNotFound(err) != nil {
			return nil, classify("read", "inventory "+key.String(), err)
		}
		all = append(all, inventory.Copy{Name: key.String(), Found: err == nil, Version: cm.ResourceVersion, Data: cm.Data})
	}
	return all, nil
}

// owner is by what a seal names the record of an owner.
func (c *Cluster) owner(of types.NamespacedName) string {
	return of.Namespace + "/" + c.Records.ConfigMap(of.Name)
}

// SaveInventory writes the inventory of an owner, the copy first, under a seal. It fails with
// Conflict where a record is there already that is as new, or one is gone that was known.
func (c *Cluster) SaveInventory(ctx context.Context, of types.NamespacedName, inv inventory.Inventory, by inventory.Sealer) error {
	by.Owner = c.owner(of)
	data := by.Data(inv)
	for _, name := range []string{c.Records.Copy(of.Name), c.Records.ConfigMap(of.Name)} {
		if err := c.record(ctx, types.NamespacedName{Namespace: of.Namespace, Name: name}, data, by); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) record(ctx context.Context, key types.NamespacedName, data map[string]string, by inventory.Sealer) error {
	var cm corev1.ConfigMap
	err := c.Reader.Get(ctx, key, &cm)
	outdated := func(why error) error {
		return &fault.Error{Reason: fault.Conflict, Op: "write", Subject: "ConfigMap " + key.String(), Err: why}
	}
	version, known := by.Known[key.String()]
	switch {
	case apierrors.IsNotFound(err) && known:
		return outdated(errRemoved)
	case apierrors.IsNotFound(err):
		err = c.createRecord(ctx, key, data)
	case err == nil && version != cm.ResourceVersion && by.Outdated(cm.Data):
		return outdated(errOutdated)
	case err == nil && cm.Immutable != nil && *cm.Immutable:
		// killed in between, the other copy is there
		err = anew.Make(ctx, c.Client, c.Reader, &cm, func() error { return c.createRecord(ctx, key, data) })
		if apierrors.IsNotFound(err) {
			return outdated(errRemoved)
		}
	case err == nil:
		cm.Data = data
		err = c.Client.Update(ctx, &cm, client.FieldOwner(FieldManager))
	}
	if err != nil {
		return classify("write", "ConfigMap "+key.String(), err)
	}
	return nil
}

func (c *Cluster) createRecord(ctx context.Context, key types.NamespacedName, data map[string]string) error {
	cm := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{labelPart: FieldManager}}, Data: data}
	return c.Client.Create(ctx, &cm, client.FieldOwner(FieldManager))
}

// errRemoved is of a record that somebody else has removed meanwhile.
var errRemoved = fmt.Errorf("%w: it was removed, as by an operator that leads now", fault.ErrOutdated)

// errOutdated is of a record that somebody else with the same key has written meanwhile.
var errOutdated = fmt.Errorf("%w: a newer record was written, as by an operator that leads now", fault.ErrOutdated)

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

// KeptKey is where Secrets hold a key of the operator's own.
const KeptKey = "key"

// KeyThere returns a key of the operator's own that Secrets of a namespace hold, each the same,
// or nil, and the Secrets that it is not in. Of several, as where one of the Secrets was put back
// from a backup, it is the one that the resource's own status knows, else the only one that others'
// know: who is in force goes on beside a new one. It fails with Conflict where that is none.
func (c *Cluster) KeyThere(ctx context.Context, namespace string, secrets []string, known inventory.KnownKeys) (key []byte, missing []string, err error) {
	var keys [][]byte
	for _, name := range secrets {
		data, err := c.Secret(ctx, types.NamespacedName{Namespace: namespace, Name: name})
		if err != nil {
			return nil, nil, err
		}
		if have := data[KeptKey]; len(have) == 0 {
			missing = append(missing, name)
		} else if !slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, have) }) {
			keys = append(keys, have)
		}
	}
	if len(keys) == 0 {
		return nil, missing, nil
	}
	of := keysOf(keys, known.Own)
	if len(keys) == 1 {
		of = keys
	} else if len(of) == 0 && known.Others != nil {
		ids, err := known.Others(ctx)
		if err != nil {
			return nil, nil, err
		}
		of = keysOf(keys, ids...)
	}
	if len(of) == 1 {
		return of[0], missing, nil
	}
	why := "no status knows either"
	if len(of) > 1 {
		why = "each is known to the status of another " + known.Kind
	}
	return nil, nil, &fault.Error{
		Reason: fault.Conflict, Op: "read", Subject: "Secrets " + strings.Join(secrets, " and ") + " in " + namespace,
		Err:  errors.New("each has another key, and " + why),
		Hint: "delete the one that is older, as one that was put back from a backup: the operator makes it again from the other",
	}
}

// keysOf are those of keys that are known by these identifiers.
func keysOf(keys [][]byte, ids ...string) (of [][]byte) {
	for _, k := range keys {
		if slices.Contains(ids, inventory.KeyID(k)) {
			of = append(of, k)
		}
	}
	return of
}

// KeepKey makes the Secrets that a key is not in. Of two operators that make one, one fails.
func (c *Cluster) KeepKey(ctx context.Context, namespace string, missing []string, key []byte) error {
	for _, name := range missing {
		if err := c.CreateSecret(ctx, types.NamespacedName{Namespace: namespace, Name: name}, map[string][]byte{KeptKey: key}); err != nil {
			return err
		}
	}
	return nil
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
