package vdoconfig

import (
	"cmp"
	"context"
	"fmt"
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
	// hashSecret holds the key of configuration hashes. It is never removed: with another key no one
	// would know any more what was applied last.
	hashSecret = "vdo-config-hash" //nolint:gosec // a name
	// hashSecretBefore is where programs before v0.1 kept it as well. To be dropped in v0.2.
	hashSecretBefore = "vdo-config-hash-copy" //nolint:gosec // a name
)

type record struct {
	cluster.Loaded
	key    []byte // nil where there is none yet
	keyIn  string // the Secret that has it
	unkept error  // why the inventory could not be written in this pass
}

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
	if err := p.Cluster.CreateSecret(ctx, name, map[string][]byte{cluster.KeptKey: p.facts.hash}); err != nil {
		return err
	}
	p.kept.key, p.kept.keyIn = p.facts.hash, hashSecret
	return nil
}

// activeConfig returns the VDOConfig that is in force instead of this one, or nil. Who has installed something stays so:
// the inventories, read past every cache, say that, and passes are made one at a time. Of several, or of none, it is
// who has the finalizer, then the oldest, then the first by name: creation times have seconds.
func (r *Reconciler) activeConfig(ctx context.Context, config *v1alpha1.VDOConfig) (*v1alpha1.VDOConfig, error) {
	var all v1alpha1.VDOConfigList
	if err := r.Client.List(ctx, &all, client.InNamespace(config.Namespace)); err != nil {
		return nil, fmt.Errorf("list VDOConfigs: %w", err)
	}
	if len(all.Items) < 2 {
		return nil, nil
	}
	var claims []claim
	for i := range all.Items {
		o := &all.Items[i]
		if client.ObjectKeyFromObject(o) == client.ObjectKeyFromObject(config) {
			o = config
		}
		c, err := r.claim(ctx, o)
		if err != nil {
			return nil, err
		}
		claims = append(claims, c)
	}
	if first := slices.MinFunc(claims, claim.compare).config; first != config {
		return first, nil
	}
	return nil, nil
}

// claim is what a VDOConfig's right to be in force rests on.
type claim struct {
	config *v1alpha1.VDOConfig
	rank   int // 2 for who has installed something, and 1 more with the finalizer
}

// claim fails where the inventory cannot be read now: who has installed is not guessed. One that makes no sense
// counts as of something that was installed.
func (r *Reconciler) claim(ctx context.Context, o *v1alpha1.VDOConfig) (claim, error) {
	kept, err := r.load(ctx, o)
	if err != nil && fault.ReasonOf(err) != fault.Corrupt {
		return claim{}, err
	}
	c := claim{config: o}
	if err != nil || kept.Len() > 0 {
		c.rank = 2
	}
	if controllerutil.ContainsFinalizer(o, v1alpha1.FinalizerDrivers) {
		c.rank++
	}
	return c, nil
}

func (c claim) compare(o claim) int {
	a, b := c.config, o.config
	return cmp.Or(cmp.Compare(o.rank, c.rank), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func notActive(other *v1alpha1.VDOConfig) error {
	return fault.Errorf(fault.Refused, "install", "drivers", "delete this one; what is installed stays",
		"VDOConfig %s is active, and a cluster has only one", client.ObjectKeyFromObject(other))
}
