package sipcluster

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// Versions before v0.1 ran services in the SIPCluster's own namespace, and kept a record of them. What
// the record names goes when the services' namespace has its replacement. v0.2 drops this file.

// loadFormer reads what an earlier version made, and deletes the record of what is gone.
func (p *pass) loadFormer(ctx context.Context) error {
	owner := types.NamespacedName{Namespace: p.Namespace, Name: p.key.Namespace + "." + p.key.Name}
	record, err := p.Cluster.LoadInventory(ctx, owner)
	if err != nil || !record.Found {
		return err
	}
	var ids []inventory.ID
	for _, e := range record.Entries() {
		if e.Namespace == p.key.Namespace { // nothing was ever made elsewhere
			ids = append(ids, e.ID)
		}
	}
	live, refused, err := p.Cluster.Read(ctx, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := refused[id.Key]; err != nil {
			return secretFault(p.key.Namespace, err)
		}
		e, _ := record.Get(id.Key)
		if o := live[id.Key]; o != nil && (e.UID == string(o.GetUID()) || e.UID == "") { // policy.yaml wants our labels
			p.former = append(p.former, o)
		}
	}
	if len(p.former) == 0 {
		return p.Cluster.DeleteInventory(ctx, owner)
	}
	return nil
}

// removeFormer deletes what an earlier version made for services whose pods run here, or that are gone. Then only
// can the Service be applied: its node port is one Service's.
func (p *pass) removeFormer(ctx context.Context) error {
	var errs []error
	for _, o := range p.former {
		p.again = true
		name := services.NameOf(o)
		d := p.objects[objectKey{"Deployment", name}]
		if d != nil && unready(d) == "" || state(p.states, name) == nil {
			errs = append(errs, p.delete(ctx, o))
		}
	}
	return errors.Join(errs...)
}
