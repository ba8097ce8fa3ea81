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

// Remove is the pass over a VDOConfig that is being deleted. It removes what the inventory names, in order, as far as
// spec.onDelete lets it; kinds, which map volumes, and the cluster id are kept.
func (r *Reconciler) Remove(ctx context.Context, config *v1alpha1.VDOConfig) (reconciler.Outcome[*v1alpha1.VDOConfig], error) {
	p := r.newPass(config)
	other, err := r.activeConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	done, err := p.clear(ctx, other)
	if err == nil && done {
		note := "the drivers were removed"
		if config.Spec.OnDelete == v1alpha1.DeleteOrphan {
			note = p.noteStaying(ctx)
		}
		return reconciler.Release[*v1alpha1.VDOConfig]{Note: note}, nil
	}
	p.outcome.retentions = err
	if other == nil && (p.outcome.volumes != nil || errors.Is(err, errInventoryMissing) || stopped(&config.Spec)) {
		p.run(ctx, "the VDOConfig is being deleted") // what cannot be removed yet is repaired, also where its removal had begun
	}
	return p.result, nil
}

// noteStaying is what a person has to know of drivers that are left.
func (p *pass) noteStaying(ctx context.Context) string {
	note := "the drivers were left installed"
	ids, _ := p.Cluster.ConfigMap(ctx, clusterIDConfigMap) //nolint:errcheck // the inventory may have it
	if id := cmp.Or(ids[clusterIDKey], p.inventory.Memory().ClusterID); id != "" {
		note += fmt.Sprintf("; the storage driver's cluster id is %q: if namespace %s is lost, "+
			"create the next VDOConfig with it in spec.storageProvider.clusterID", id, render.CSINamespace)
	}
	if p.facts.canaryOpen(p.inventory.Memory().Revisions) {
		note += "; an upgrade had come to canary nodes only, so that the node plugin's DaemonSets replace no pods by themselves (updateStrategy OnDelete)"
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
	retentions, err := p.staying(ctx)
	if err != nil {
		return false, err
	}
	if err := p.missingInventory(ctx, inv, other != nil, retentions); err != nil {
		return false, err
	}
	if inv.Len() == 0 && other == nil && p.config.Spec.OnDelete == v1alpha1.DeleteOrphan {
		// Where the record is lost, the labels alone say whose it is.
		p.inventory = inventory.Of(inventory.Entry{ID: webhookRegistration, Driver: matrix.CSI})
	}
	if done, err := p.clearObjects(ctx, retentions); err != nil || !done {
		return false, err
	}
	return true, p.Cluster.DeleteInventory(ctx, p.name)
}

var errInventoryMissing = errors.New("the inventory of what was installed is lost")

// missingInventory refuses a removal by an inventory that has nothing, where the status
// says that drivers were installed and they are there: they would be left behind, and
// no one would know. The pass that follows takes them over again.
func (p *pass) missingInventory(
	ctx context.Context, inv inventory.Inventory, other bool, retentions map[matrix.Driver]plan.Retention,
) error {
	was := slices.ContainsFunc(p.config.Status.Drivers, func(d v1alpha1.DriverStatus) bool { return d.Version != "" })
	if inv.Len() > 0 || other || !was || p.config.Spec.OnDelete == v1alpha1.DeleteOrphan {
		return nil
	}
	observed, err := p.Cluster.Observe(ctx)
	err = joinAll(observed.Unread, err)
	exists := installed(&observed, inv)
	maps.DeleteFunc(exists, func(d matrix.Driver, _ matrix.Version) bool { return retentions[d].Reason != "" })
	if err != nil || len(exists) == 0 {
		return err
	}
	return fault.Errorf(fault.Conflict, "remove", "drivers",
		"the operator makes it again from the bundle first; set spec.onDelete to Orphan to leave the drivers installed",
		"%w", errInventoryMissing)
}

// staying are the drivers that stay when all others go.
func (p *pass) staying(ctx context.Context) (map[matrix.Driver]plan.Retention, error) {
	going := p.inventory.Drivers()
	if len(going) == 0 { // a removal that ended but for the finalizer has left it
		going = []matrix.Driver{matrix.SnapshotController}
	}
	needed, err := p.needed(ctx, going)
	return retentionsOf(p.config.Spec.OnDelete, inOrder, needed, plan.Forget), err
}

func (p *pass) clearObjects(ctx context.Context, retentions map[matrix.Driver]plan.Retention) (done bool, err error) {
	if p.outcome.volumes != nil {
		return false, nil //nolint:nilerr // the status reports it
	}
	live, refused, err := p.Cluster.Read(ctx, ids(&render.Rendered{}, p.inventory))
	if err != nil {
		return false, err
	}
	if p.config.Spec.OnDelete == v1alpha1.DeleteOrphan {
		maps.DeleteFunc(refused, func(key inventory.Key, _ error) bool { return withoutOperator[key] == "" }) // it stays anyway
	}
	removal := plan.Removal(p.inventory, live, refused, retentions)
	p.outcome.removal = &removal
	unseen := map[matrix.Driver]bool{} // what these need has to stay
	for key := range refused {
		e, _ := p.inventory.Get(key)
		unseen[e.Driver] = true
	}
	wave := removal.Without(unseen).NextWave()
	if err := p.prune(ctx, wave); err != nil {
		return false, err
	}
	if len(wave) > 0 {
		p.outcome.next.waits = fmt.Sprintf("the removal of %s and %d more", wave[0].Key, len(wave)-1)
	}
	// What cannot be seen is not known to be gone.
	return len(wave) == 0, joinAll(refused, nil)
}

// prune asks for deletions, once each. While they only wait for someone (a finalizer)
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
		if s.Action == plan.Gone || s.Action == plan.Forget {
			inv = inv.Without(s.Key)
		}
	}
	if err := a.record(ctx, inv); err != nil {
		return err
	}
	gated := a.groupGates() // of what only waits nothing goes, and nothing waits for that
	steps = slices.DeleteFunc(steps, func(s plan.Step) bool { return gated[s.Driver] != nil })
	if a.outcome.next.waits != "" || len((plan.Plan{Steps: steps}).NextWave()) == 0 {
		return nil
	}
	var of []matrix.Driver
	for _, s := range steps {
		of = append(of, s.Driver)
	}
	a.wait("the removal of what is no longer wanted", of...)
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
	inv = a.inventory
	for _, s := range wave {
		if e, recorded := inv.Get(s.Key); recorded {
			e.UID, e.Rendered = "", "" // should it be wanted again before it is forgotten, that it is not there is no drift
			inv = inv.With(e)
		}
	}
	if err := a.record(ctx, inv); err != nil {
		return err
	}
	return a.prune(ctx, wave)
}

// stillOpen lists before something is removed whether what it waited for is there: gates
// were opened by what is kept by watching, which may be a moment old.
func (a *applier) stillOpen(ctx context.Context) (bool, error) {
	if err := a.observe(ctx, a.Cluster.ObserveListed); err != nil {
		return false, err
	}
	was := a.outcome.next
	a.outcome.next = nextStage{}
	for _, stage := range a.Stages {
		if err := a.seeNext(ctx, stage, nil); err != nil {
			return false, err
		}
	}
	if a.outcome.next.waits != "" {
		return false, nil
	}
	a.outcome.next = was
	return true, nil
}

// What is said of a driver that is being taken down.
const (
	reasonRemoving = "Removing"
	textRemoving   = "is being removed"
)

// going tells whether a driver is being taken down: with the VDOConfig, or because it is no longer requested. What
// goes of one that is decided for, or judged, is only something that it needs no more.
func (p *result) going(d matrix.Driver) bool {
	all := cmp.Or(p.outcome.removal, p.outcome.plan)
	stays := p.decision.version(d) != ""
	if p.outcome.report != nil && !stays {
		_, stays = p.outcome.report.Drivers[d]
	}
	goes := func(s plan.Step) bool {
		return s.Driver == d && s.Action == plan.Prune && s.Kind != "Namespace" && withoutOperator[s.Key] != s.Reason
	}
	return all != nil && (p.outcome.removal != nil || !stays) && slices.ContainsFunc(all.Removals(), goes)
}
