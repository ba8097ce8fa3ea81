package vdoconfig

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

const (
	// hashSecret holds the key of configuration hashes. It is never removed: under another key the last applied
	// configuration is unknown.
	hashSecret = "vdo-config-hash" //nolint:gosec // a name
	// hashSecretBefore is a second place of programs before v0.1. To be dropped in v0.2.
	hashSecretBefore = "vdo-config-hash-copy" //nolint:gosec // a name
)

type record struct {
	cluster.Loaded
	key    []byte // nil before the first one
	keyIn  string // the Secret that has it
	unkept error  // why this pass could not write the inventory
}

func (r *Reconciler) load(ctx context.Context, config *v1alpha1.VDOConfig) (record, error) {
	key, in, err := r.Cluster.Key(ctx, config.Namespace, hashSecret, hashSecretBefore)
	if err != nil {
		return record{}, err
	}
	loaded, err := r.Cluster.LoadInventory(ctx, client.ObjectKeyFromObject(config))
	return record{Loaded: loaded, key: key, keyIn: in}, err
}

// record writes a changed inventory. After a failure the pass writes no other one, which would lack the entries of this
// one.
func (p *pass) record(ctx context.Context, inv inventory.Inventory) error {
	was := &p.kept
	if was.unkept != nil || inv.Equal(was.Inventory) {
		return was.unkept
	}
	if was.Loaded, was.unkept = p.Cluster.SaveInventory(ctx, p.name, inv, was.Loaded); was.unkept == nil {
		p.inventory = inv
	}
	return was.unkept
}

func (p *pass) keepKey(ctx context.Context) error {
	if p.kept.keyIn == hashSecret {
		return nil
	}
	name := types.NamespacedName{Namespace: p.name.Namespace, Name: hashSecret}
	if err := p.Cluster.CreateSecret(ctx, name, map[string][]byte{cluster.KeptKey: p.facts.hash}); err != nil {
		return err
	}
	p.kept.key, p.kept.keyIn = p.facts.hash, hashSecret
	return nil
}

// activeConfig returns the VDOConfig that is active in place of this one, or nil. A VDOConfig with installed drivers
// stays active: the inventories, read past every cache, say so, and passes run one at a time. Among several or none of
// these, the one with the finalizer counts, then the oldest, then the first name: creation times have seconds.
func (r *Reconciler) activeConfig(ctx context.Context, config *v1alpha1.VDOConfig) (*v1alpha1.VDOConfig, error) {
	var all v1alpha1.VDOConfigList
	if err := r.Client.List(ctx, &all, client.InNamespace(config.Namespace)); err != nil {
		return nil, fmt.Errorf("list VDOConfigs: %w", err)
	}
	if len(all.Items) < 2 {
		return nil, nil
	}
	ranks := map[*v1alpha1.VDOConfig]int{} // 2 with drivers or an invalid inventory, and 1 more with the finalizer
	for i := range all.Items {
		o := &all.Items[i]
		if o.Name == config.Name {
			o = config
		}
		kept, err := r.load(ctx, o)
		if err != nil && fault.ReasonOf(err) != fault.Corrupt {
			return nil, err // the operator does not guess
		}
		if ranks[o] = 0; err != nil || kept.Len() > 0 {
			ranks[o] = 2
		}
		if controllerutil.ContainsFinalizer(o, v1alpha1.FinalizerDrivers) {
			ranks[o]++
		}
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(ranks)), func(a, b *v1alpha1.VDOConfig) int {
		return cmp.Or(ranks[b]-ranks[a], a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	if first != config {
		return first, nil
	}
	return nil, nil
}

func notActive(other *v1alpha1.VDOConfig) error {
	return fault.Errorf(fault.Refused, "install", "drivers", "delete this one; what is installed stays",
		"VDOConfig %s is active, and a cluster has only one", client.ObjectKeyFromObject(other))
}
