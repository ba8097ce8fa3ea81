package vdoconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// Remove is the pass over a VDOConfig that is being deleted. It removes what the
// inventory names, in order, as far as spec.onDelete lets it, and then has the
// finalizer taken off. What the drivers themselves made is kept: kinds, which map volumes,
// and the cluster id.
func (r *Reconciler) Remove(ctx context.Context, config *v1alpha1.VDOConfig) (reconciler.Outcome[*v1alpha1.VDOConfig], error) {
	p := r.newPass(config)
	other, err := r.inForce(ctx, config)
	if err != nil {
		return nil, err
	}
	done, err := p.clear(ctx, other)
	if err == nil && done {
		note := "the drivers were removed"
		if config.Spec.OnDelete == v1alpha1.DeleteOrphan {
			note = p.leftInstalled(ctx)
		}
		return reconciler.Release[*v1alpha1.VDOConfig]{Note: note}, nil
	}
	defer p.logChanges(ctx)
	p.outcome.leaving = err
	if other == nil && (p.outcome.volumes != nil || errors.Is(err, errInventoryLost) || stopped(&config.Spec)) {
		p.run(ctx, "the VDOConfig is being deleted") // what cannot be removed yet is repaired, also where its removal had begun
	}
	return p.result, nil
}

// leftInstalled is what a person has to know of drivers that are left.
func (p *pass) leftInstalled(ctx context.Context) string {
	note := "the drivers were left installed"
	ids, _ := p.Cluster.ConfigMap(ctx, clusterIDConfigMap) //nolint:errcheck // the inventory may have it
	if id := cmp.Or(ids[clusterIDKey], p.inventory.Memory().ClusterID); id != "" {
		note += fmt.Sprintf("; the storage driver's cluster id is %q: if namespace %s is lost, "+
			"create the next VDOConfig with it in spec.storageProvider.clusterID", id, render.CSINamespace)
	}
	cur, _ := p.inventory.Memory().Revisions.InForce()
	if policy := p.config.Spec.UpgradePolicy; policy != nil && policy.Canary != nil && cur.Canary.Open() {
		note += "; an upgrade had come to chosen nodes only, so that the node plugin's DaemonSets replace no pods by themselves (updateStrategy OnDelete)"
	}
	return note
}

// clear does what can be done now, and tells whether that was all. The other one is
// the VDOConfig in force, if it is not this one.
func (p *pass) clear(ctx context.Context, other *v1alpha1.VDOConfig) (done bool, err error) {
	if why := stoppedBy(&p.config.Spec); stopped(&p.config.Spec) {
		return false, &fault.Error{
			Reason: fault.Refused, Op: "remove", Subject: "drivers", Err: errors.New(why), Hint: "set " + strings.TrimSuffix(why, " is set") + " to false"}
	}
	if p.kept, err = p.load(ctx, p.config); err != nil {
		return false, err
	}
	inv := p.kept.Inventory
	if p.inventory = inv; other != nil {
		theirs, err := p.load(ctx, other)
		if err != nil {
			return false, err
		}
		for _, e := range theirs.Entries() { // what is of the one in force is not ours to remove
			p.inventory = p.inventory.Without(e.Key)
		}
	}
	if err := p.lostInventory(ctx, inv, other != nil); err != nil {
		return false, err
	}
	if inv.Len() == 0 && other == nil && p.config.Spec.OnDelete == v1alpha1.DeleteOrphan {
		// Where the record is lost, the labels alone say whose it is.
		p.inventory = inventory.Of(inventory.Entry{ID: webhookRegistration, Driver: matrix.CSI})
	}
	if done, err := p.clearObjects(ctx); err != nil || !done {
		return false, err
	}
	return true, p.Cluster.DeleteInventory(ctx, p.name)
}

var errInventoryLost = errors.New("the inventory of what was installed is lost")

// lostInventory refuses a removal by an inventory that has nothing, where the status
// says that drivers were installed and they are there: they would be left behind, and
// nobody would know. The pass that follows takes them over again.
func (p *pass) lostInventory(ctx context.Context, inv inventory.Inventory, other bool) error {
	was := slices.ContainsFunc(p.config.Status.Drivers, func(d v1alpha1.DriverStatus) bool { return d.Version != "" })
	if inv.Len() > 0 || other || !was || p.config.Spec.OnDelete == v1alpha1.DeleteOrphan {
		return nil
	}
	observed, err := p.Cluster.Observe(ctx)
	if err := fault.Join(append(slices.Collect(maps.Values(observed.Unread)), err)...); err != nil || len(installed(&observed, inv)) == 0 {
		return err
	}
	return &fault.Error{
		Reason: fault.Conflict, Op: "remove", Subject: "drivers", Err: errInventoryLost,
		Hint: "the operator makes it again from the bundle first; set spec.onDelete to Orphan to leave the drivers installed",
	}
}

func (p *pass) clearObjects(ctx context.Context) (done bool, err error) {
	if err := p.mayRemove(ctx); err != nil || p.outcome.volumes != nil {
		return false, err
	}
	live, refused, err := p.Cluster.Read(ctx, ids(&render.Rendered{}, p.inventory, nil))
	if err != nil {
		return false, err
	}
	leaving := retainNetwork(p.config.Spec.OnDelete)
	if p.config.Spec.OnDelete == v1alpha1.DeleteOrphan {
		leaving = orphaned(inOrder)
		maps.DeleteFunc(refused, func(key inventory.Key, _ error) bool { return withoutOperator[key] == "" }) // it stays anyway
	}
	removal := plan.Removal(p.inventory, live, refused, leaving)
	p.outcome.removal = &removal
	wave := removal.Without(p.unseen(refused)).NextWave()
	if err := p.prune(ctx, wave); err != nil {
		return false, err
	}
	if len(wave) > 0 {
		p.outcome.gate = fmt.Sprintf("the removal of %s and %d more", wave[0].Key, len(wave)-1)
	}
	// What cannot be seen is not known to be gone.
	return len(wave) == 0, fault.Join(slices.Collect(maps.Values(refused))...)
}

// unseen are the drivers of which some object may not be read: what it needs has to stay.
func (p *pass) unseen(refused map[inventory.Key]error) map[matrix.Driver]bool {
	all := map[matrix.Driver]bool{}
	for key := range refused {
		e, _ := p.inventory.Get(key)
		all[e.Driver] = true
	}
	return all
}

// prune asks for deletions, once each. While they only wait for somebody (a finalizer)
// there is no hurry: what is watched starts the next pass, or the time that grows.
func (p *pass) prune(ctx context.Context, wave []plan.Step) error {
	for _, s := range wave {
		if s.Deleting {
			continue
		}
		p.outcome.again = true
		if err := p.Cluster.Delete(ctx, s); err != nil {
			return err
		}
		note := fmt.Sprintf("%s was removed: %s", s.Key, s.Reason)
		if !p.config.DeletionTimestamp.IsZero() && p.config.Spec.OnDelete != v1alpha1.DeleteOrphan {
			note = "" // that everything goes is one event, in the end
		}
		p.changed(ctx, s, note)
	}
	return nil
}

// removals prunes what is no longer wanted, once everything that is wanted is there
// and healthy; and forgets what is gone. Of a driver that is at fault nothing goes.
func (a *applier) removals(ctx context.Context) error {
	steps := a.outcome.plan.Removals()
	inv := a.inventory
	unfinished := map[matrix.Driver]bool{}
	for _, s := range steps {
		unfinished[s.Driver] = unfinished[s.Driver] || s.Action == plan.Prune
	}
	for _, s := range steps {
		if s.Action == plan.Gone && isWorkload(s.Key) && unfinished[s.Driver] {
			continue // should a volume appear before all is removed, it is made again
		}
		if s.Action == plan.Gone && a.site.login.lost && slices.Contains(copies, s.Key) {
			continue // that pods have a login would be forgotten with it, and they rolled without one
		}
		if s.Action == plan.Gone || s.Action == plan.Forget {
			inv = inv.Without(s.Key)
		}
	}
	if err := a.record(ctx, inv); err != nil {
		return err
	}
	held := a.site.holds() // of what only waits nothing goes, and nothing waits for that
	steps = slices.DeleteFunc(steps, func(s plan.Step) bool { return held[s.Driver] != nil })
	if a.outcome.gate != "" || len((plan.Plan{Steps: steps}).NextWave()) == 0 {
		return nil
	}
	a.outcome.gate = "the removal of what is no longer wanted"
	wave := (plan.Plan{Steps: slices.DeleteFunc(steps, func(s plan.Step) bool { return a.out(s.Driver) })}).NextWave()
	if a.outcome.resolved != nil || len(wave) == 0 {
		return nil //nolint:nilerr // what is at fault was reported; here it only means: not now
	}
	if a.outcome.changed > 0 {
		a.outcome.again = true
		return nil // what replaces it was just written
	}
	if still, err := a.stillOpen(ctx); err != nil || !still {
		return err
	}
	return a.prune(ctx, wave)
}

// stillOpen lists before something is removed whether what it waited for is there: gates
// were opened by what is kept by watching, which may be a moment old.
func (a *applier) stillOpen(ctx context.Context) (bool, error) {
	if err := a.observeListed(ctx); err != nil {
		return false, err
	}
	was := a.outcome.gate
	a.outcome.gate = ""
	for _, stage := range a.Stages {
		if err := a.gates(ctx, stage, nil); err != nil {
			return false, err
		}
	}
	if a.outcome.gate != "" {
		return false, nil
	}
	a.outcome.gate = was
	return true, nil
}

// mayRemove refuses while volumes need the storage driver, unless told otherwise.
// Once its workloads are gone there is nothing left to refuse.
func (p *pass) mayRemove(ctx context.Context) error {
	if on := p.config.Spec.OnDelete; on == v1alpha1.DeleteRemove || on == v1alpha1.DeleteOrphan || !p.inventory.Has(matrix.CSI) {
		return nil
	}
	volumes, attachments, err := p.Cluster.Volumes(ctx)
	if err != nil {
		return err
	}
	if volumes+attachments > 0 {
		p.outcome.volumes = volumesFault(volumes, attachments)
	}
	return nil
}
