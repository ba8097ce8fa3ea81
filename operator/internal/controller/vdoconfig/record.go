package vdoconfig

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// record is the inventory as it was found, and what the next one is sealed with. See package
// inventory for what is believed of it, and why.
type record struct {
	inventory.Loaded
	key     []byte   // of seals, as it is kept in Secrets; nil where it is in none
	missing []string // the Secrets that it is not in
	unkept  error    // why it could not be written in this pass
}

// load reads the inventory of a VDOConfig, and believes of it what the key and the VDOConfig's
// status prove.
func (r *Reconciler) load(ctx context.Context, config *v1alpha1.VDOConfig) (record, error) {
	key, missing, err := r.Cluster.KeyThere(ctx, config.Namespace, hashSecrets, r.knownKeys(config))
	if err != nil {
		return record{}, err
	}
	loaded, err := r.Cluster.LoadInventory(ctx, client.ObjectKeyFromObject(config), inventory.Proof{
		Key: key, UID: string(config.UID), Anchor: anchor(&config.Status), Earlier: installedBefore(&config.Status)})
	return record{Loaded: loaded, key: key, missing: missing}, fault.Join(err, replayed(config, loaded.Inventory))
}

// knownKeys are the keys of seals that VDOConfigs' status know.
func (r *Reconciler) knownKeys(config *v1alpha1.VDOConfig) inventory.KnownKeys {
	return inventory.KnownKeys{Own: anchor(&config.Status).KeyID, Kind: "VDOConfig", Others: func(ctx context.Context) (ids []string, err error) {
		var all v1alpha1.VDOConfigList
		if err := r.Client.List(ctx, &all); err != nil {
			return nil, fmt.Errorf("list VDOConfigs: %w", err)
		}
		for i := range all.Items {
			ids = append(ids, anchor(&all.Items[i].Status).KeyID)
		}
		return ids, nil
	}}
}

// installedBefore tells whether a status shows that this program, or one from before there were
// seals, has installed: all of them have written there which bundle they installed from.
func installedBefore(st *v1alpha1.VDOConfigStatus) bool {
	return st.Inventory != nil || st.Bundle != "" || st.Revision != ""
}

func anchor(st *v1alpha1.VDOConfigStatus) inventory.Anchor {
	if st.Inventory == nil {
		return inventory.Anchor{}
	}
	return inventory.Anchor{Serial: st.Inventory.Serial, KeyID: st.Inventory.KeyID, Epoch: st.Inventory.Epoch}
}

// anchored is what the status says of the record: what is not sealed is not told.
func (r *record) anchored(was *v1alpha1.InventoryStatus) *v1alpha1.InventoryStatus {
	if !r.Sealed {
		return was
	}
	return &v1alpha1.InventoryStatus{Serial: r.Serial, KeyID: inventory.KeyID(r.key), Epoch: r.Epoch.ID}
}

// settled tells whether the record need not be written: it is both copies, and has its seal.
func (r *record) settled() bool {
	return r.Whole && (r.Sealed || !r.Found || r.key == nil)
}

// record writes the inventory where it differs, or its record has to be mended. Where that fails
// the pass writes no other one: it would be without what this one has more.
func (p *pass) record(ctx context.Context, inv inventory.Inventory) error {
	was := &p.kept
	if was.unkept != nil || (was.settled() && inv.Equal(p.inventory)) {
		return was.unkept
	}
	by := was.Next(was.key, string(p.config.UID), anchor(&p.config.Status))
	if was.unkept = p.Cluster.SaveInventory(ctx, p.name, inv, by); was.unkept != nil {
		return was.unkept
	}
	p.tellRejected(was)
	p.tellLost(was)
	*was = record{key: was.key, missing: was.missing, Loaded: by.Saved(inv, inventory.VDOConfigs.Both(p.name.Namespace, p.name.Name))}
	p.inventory = inv
	return nil
}

// tellLost tells that nobody's record was there, once it is made again.
func (p *pass) tellLost(was *record) {
	if was.Found || !p.site.historyLost() {
		return
	}
	names := inventory.VDOConfigs
	p.Recorder.Eventf(p.config, nil, "Warning", string(fault.NotFound), "Repair", "ConfigMaps %s and %s, the records of what is installed, were deleted: they are written again from what runs and what the status knew of revisions",
		names.ConfigMap(p.name.Name), names.Copy(p.name.Name))
}

// tellRejected tells of copies that were not the operator's, once they are written again.
func (p *pass) tellRejected(was *record) {
	how := "again from the other copy"
	if !was.Found {
		how = "anew"
	}
	for _, err := range was.Rejected {
		p.Recorder.Eventf(p.config, nil, "Warning", string(fault.ReasonOf(err)), "Repair", "%s", condition.Cut(fault.Text(err)+"; it was written "+how, condition.MaxNote))
	}
}
