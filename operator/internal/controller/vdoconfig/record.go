package vdoconfig

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

const (
	// hashSecret holds the key of configuration hashes. It is never removed: with another key nobody
	// would know any more what was applied last.
	hashSecret = "vdo-config-hash" //nolint:gosec // a name
	// hashSecretBefore is where programs before v0.1 kept it as well. To be dropped in v0.2.
	hashSecretBefore = "vdo-config-hash-copy" //nolint:gosec // a name
)

// record is the inventory as it is on the cluster, and the key of hashes.
type record struct {
	cluster.Loaded
	key    []byte // nil where there is none yet
	keyIn  string // the Secret that has it
	unkept error  // why the inventory could not be written in this pass
}

// load reads the inventory of a VDOConfig.
func (r *Reconciler) load(ctx context.Context, config *v1alpha1.VDOConfig) (record, error) {
	key, in, err := r.Cluster.Key(ctx, config.Namespace, hashSecret, hashSecretBefore)
	if err != nil {
		return record{}, err
	}
	loaded, err := r.Cluster.LoadInventory(ctx, client.ObjectKeyFromObject(config))
	return record{Loaded: loaded, key: key, keyIn: in}, err
}

// record writes the inventory where it differs. Where that fails the pass writes no other one: it
// would be without what this one has more.
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

// keepKey makes the Secret with the key of hashes where it is not there.
func (p *pass) keepKey(ctx context.Context) error {
	if p.kept.keyIn == hashSecret {
		return nil
	}
	name := types.NamespacedName{Namespace: p.name.Namespace, Name: hashSecret}
	if err := p.Cluster.CreateSecret(ctx, name, map[string][]byte{cluster.KeptKey: p.site.hash}); err != nil {
		return err
	}
	p.kept.key, p.kept.keyIn = p.site.hash, hashSecret
	return nil
}
