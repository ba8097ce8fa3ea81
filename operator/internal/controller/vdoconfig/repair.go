package vdoconfig

import (
	"cmp"
	"context"
	"reflect"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// settle reads what was installed, and finds the drivers that have to stay though they
// are not asked for any more: the storage driver goes only as the deletion of the
// VDOConfig would let it. Those are cared for as they were last asked for.
func (p *pass) settle(ctx context.Context) error {
	var err error
	if p.site.inventory, err = p.Cluster.LoadInventory(ctx, p.name); err != nil {
		return err
	}
	gone := slices.DeleteFunc(p.unasked(), func(d matrix.Driver) bool { return !p.runs(d) })
	if !slices.Contains(gone, matrix.CSI) || p.config.Spec.OnDelete == v1alpha1.DeleteOrphan || p.config.Spec.OnDelete == v1alpha1.DeleteRemove {
		return nil
	}
	volumes, attachments, err := p.Cluster.Volumes(ctx)
	if err != nil || volumes+attachments == 0 {
		return err
	}
	p.outcome.volumes = volumesFault(volumes, attachments)
	for _, d := range []matrix.Driver{matrix.SnapshotController, matrix.CSI} {
		if slices.Contains(gone, d) {
			p.site.retained = append(p.site.retained, d)
		}
	}
	if p.spec.StorageProvider == nil {
		p.spec.StorageProvider = p.site.inventory.Memory().StorageProvider
	}
	return nil
}

// runs tells whether a driver's pods were installed, and their removal has not ended:
// kinds and namespaces stay in the inventory longer.
func (p *pass) runs(d matrix.Driver) bool {
	return slices.ContainsFunc(p.site.inventory.Entries(), func(e inventory.Entry) bool { return e.Driver == d && e.Release != "" && isWorkload(e.Key) })
}

// unasked are the drivers that are installed and not asked for.
func (p *pass) unasked() []matrix.Driver {
	rules, _, _ := policies(p.config.Spec) //nolint:errcheck // what is wrong with pins is reported by deciding
	wanted := asked(rules)
	return slices.DeleteFunc(p.site.inventory.Drivers(), func(d matrix.Driver) bool { return slices.Contains(wanted, d) })
}

// renderAny renders what was decided. Where that cannot be done (a field of the spec
// that makes no sense, a new release that is refused) it renders what is installed, so
// that it is repaired: as the spec has it, else as it was last rendered. Where there is
// no way for a driver at all, the others go on without it.
func (p *pass) renderAny(ctx context.Context) (*render.Rendered, error) {
	rendered, err := p.render(ctx)
	if err == nil {
		return rendered, nil
	}
	if p.site.inventory.Len() == 0 {
		return p.withoutFailed(ctx)
	}
	p.freeze(err)
	if rendered, again := p.render(ctx); again == nil {
		p.outcome.resolved = fault.Join(p.outcome.resolved, err)
		return rendered, nil
	}
	was := p.site.inventory.Memory()
	p.spec.CloudProvider, p.spec.StorageProvider = was.CloudProvider, was.StorageProvider
	if e := p.observeVCenters(ctx); e != nil {
		return nil, fault.Join(err, e)
	}
	if rendered, again := p.render(ctx); again == nil {
		p.outcome.resolved = fault.Join(p.outcome.resolved, err)
		return rendered, nil
	}
	return p.withoutFailed(ctx)
}

func (p *pass) withoutFailed(ctx context.Context) (*render.Rendered, error) {
	p.leavesOut = true
	return p.render(ctx)
}

// freeze decides anew, for what is installed alone.
func (p *pass) freeze(why error) {
	p.frozen = why.Error()
	p.choose(why)
}

// installedFrom is the bundle that the drivers come from, "" before there are any. It is
// kept in the status and in the inventory: either may be lost.
func (p *pass) installedFrom() string {
	was := cmp.Or(p.config.Status.Bundle, p.site.inventory.Memory().Bundle)
	if b := p.site.bundle; b != nil && p.site.contents != nil && (was == "" || len(p.stranded()) == 0) {
		return b.Status.Repository + "@" + b.Status.Digest
	}
	return was
}

// remember notes in the inventory what the drivers are rendered from.
func (p *pass) remember(inv inventory.Inventory) inventory.Inventory {
	was := inv.Memory()
	now := was
	if p.frozen == "" {
		if p.site.malformed[matrix.CPI] == nil && (p.spec.CloudProvider != nil || !inv.Has(matrix.CPI)) {
			now.CloudProvider = p.spec.CloudProvider.DeepCopy()
		}
		if p.site.malformed[matrix.CSI] == nil && (p.spec.StorageProvider != nil || !inv.Has(matrix.CSI)) {
			now.StorageProvider = p.spec.StorageProvider.DeepCopy()
		}
	}
	now.Kubernetes, now.Bundle = p.site.kubernetes.reported, p.installedFrom()
	switch c := p.site.cluster; {
	case c.GeneratedClusterID != "":
		now.ClusterID = c.GeneratedClusterID
	case now.ClusterID == "":
		now.ClusterID = c.ConfiguredClusterID
	}
	if inv.Len() == 0 || reflect.DeepEqual(was, now) {
		return inv
	}
	return inv.WithMemory(now)
}
