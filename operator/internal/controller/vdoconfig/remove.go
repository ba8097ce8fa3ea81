package vdoconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// Remove is the pass over a VDOConfig that is being deleted. It removes the inventory's objects in order, as
// spec.onDelete permits; CRDs, which map volumes, and the cluster id that the driver made stay.
func (r *Reconciler) Remove(ctx context.Context, config *v1alpha1.VDOConfig) (reconciler.Outcome[*v1alpha1.VDOConfig], error) {
	p := r.newPass(config)
	other, err := r.activeConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	done, err := p.clear(ctx, other)
	if err == nil && done {
		note := "Removed a VDOConfig that was not active"
		if other == nil {
			note = p.noteAtEnd(ctx)
		}
		return reconciler.Release[*v1alpha1.VDOConfig]{Note: note}, nil
	}
	p.outcome.retentions = err
	switch {
	case other != nil:
	case p.outcome.volumes != nil || errors.Is(err, errInventoryMissing) || stopped(&config.Spec):
		p.run(ctx, "the VDOConfig is being deleted") // drivers that cannot go yet are repaired, even half-removed ones
	case err != nil:
		p.outcome.renewed = p.keepCertificate(ctx, false) // nothing blocks this
	}
	return p.result, nil
}

// noteAtEnd returns what a person must know afterwards. A cluster id that was configured goes with the driver's Secret.
func (p *pass) noteAtEnd(ctx context.Context) string {
	note, stay := "Removed the drivers", p.config.Spec.OnDelete == v1alpha1.DeleteOrphan
	if stay {
		note = "Left the drivers installed"
	}
	ids, _ := p.Cluster.Data(ctx, render.CSINamespace, generatedID) //nolint:errcheck // the inventory may have it
	if id := cmp.Or(string(ids.Values[generatedID.Key]), p.inventory.Memory().ClusterID); id != "" {
		note += fmt.Sprintf("; the storage driver's cluster id is %q: unless namespace %s has it, "+
			"create the next VDOConfig with it in spec.storageProvider.clusterID", id, render.CSINamespace)
	}
	if stay && p.facts.canaryOpen(p.inventory.Memory().Revisions) {
		note += "; an upgrade had come to canary nodes only, so that the node plugin's DaemonSets replace no pods by themselves (updateStrategy OnDelete)"
	}
	return note
}

// clear removes what it can now, and reports whether that was all. other is the active VDOConfig, if it is not this
// one.
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
		for _, e := range theirs.Entries() { // keep the active one's objects
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
		// Without the record, only the labels identify the owner.
		p.inventory = inventory.Of(inventory.Entry{ID: webhookRegistration, Driver: matrix.CSI})
	}
	if done, err := p.clearObjects(ctx, retentions); err != nil || !done {
		return false, err
	}
	return true, p.Cluster.DeleteInventory(ctx, p.name)
}

var errInventoryMissing = errors.New("the inventory of what was installed is lost")

// missingInventory refuses a removal by an empty inventory if the status says that drivers were installed and they
// exist: they would stay behind unnoticed. The next pass adopts them again.
func (p *pass) missingInventory(
	ctx context.Context, inv inventory.Inventory, other bool, retentions map[matrix.Driver]plan.Retention,
) error {
	was := p.config.Status.Bundle != "" && len(p.config.Status.Drivers) > 0 // without a bundle they are found ones
	if inv.Len() > 0 || other || !was || p.config.Spec.OnDelete == v1alpha1.DeleteOrphan {
		return nil
	}
	observed, err := p.Cluster.Observe(ctx)
	err = joinAll(observed.Unread, err)
	p.omitLeftWebhook(&observed)
	exists := installed(&observed, inv)
	maps.DeleteFunc(exists, func(d matrix.Driver, _ matrix.Version) bool { return retentions[d].Reason != "" })
	if err != nil || len(exists) == 0 {
		return err
	}
	return fault.Errorf(fault.Conflict, "remove", "drivers",
		"the operator makes it again from the bundle first; set spec.onDelete to Orphan to leave the drivers installed",
		"%w", errInventoryMissing)
}

// staying returns the drivers that stay when all others go.
func (p *pass) staying(ctx context.Context) (map[matrix.Driver]plan.Retention, error) {
	going := p.inventory.Drivers()
	if len(going) == 0 { // a removal that lacks only the finalizer
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
	unseen := map[matrix.Driver]bool{} // what these need must stay
	for key := range refused {
		e, _ := p.inventory.Get(key)
		unseen[e.Driver] = true
	}
	isUnseen := func(s plan.Step) bool { return unseen[s.Driver] }
	wave := plan.NextWave(slices.DeleteFunc(slices.Clone(removal.Steps), isUnseen))
	if err := p.prune(ctx, wave); err != nil {
		return false, err
	}
	if len(wave) > 0 {
		var names []string
		for _, s := range wave {
			names = append(names, s.Key.String())
		}
		p.outcome.next.waits = "the removal of " + fault.Few(names, 1)
	}
	// Unseen objects may still exist.
	return len(wave) == 0, joinAll(refused, nil)
}

// prune requests each deletion once. For those that only wait for a finalizer, a watch or a growing interval starts the
// next pass.
func (p *pass) prune(ctx context.Context, wave []plan.Step) error {
	for _, s := range wave {
		if s.Deleting {
			continue
		}
		if err := p.Cluster.Delete(ctx, s); err != nil {
			return err
		}
		p.outcome.again = true
		note := fmt.Sprintf("Removed %s: %s", s.Key, s.Reason)
		if !p.config.DeletionTimestamp.IsZero() && p.config.Spec.OnDelete != v1alpha1.DeleteOrphan {
			note = "" // the whole removal is one event at its end
		}
		p.changed(ctx, s, note)
	}
	return nil
}

// removals prunes obsolete objects once all desired ones exist and are healthy, and forgets deleted ones. It removes
// nothing of a driver with a fault.
func (a *applier) removals(ctx context.Context) error {
	steps := a.outcome.plan.Removals()
	inv := a.inventory
	unfinished := map[matrix.Driver]bool{}
	for _, s := range steps {
		unfinished[s.Driver] = unfinished[s.Driver] || s.Action == plan.Prune
	}
	for _, s := range steps {
		if s.Action == plan.Gone && isWorkload(s.Key) && unfinished[s.Driver] {
			continue // recreated if a volume appears before its removal
		}
		if s.Action == plan.Gone || s.Action == plan.Forget {
			inv = inv.Without(s.Key)
		}
		a.tellLeft(s)
	}
	if err := a.record(ctx, inv); err != nil {
		return err
	}
	gated := a.groupGates() // a gated driver removes nothing, and no removal waits for it
	steps = slices.DeleteFunc(steps, func(s plan.Step) bool { return gated[s.Driver] != nil })
	if a.facts.starts != nil || a.outcome.resolved != nil { // others still go, but not the login that drivers share
		steps = slices.DeleteFunc(steps, func(s plan.Step) bool {
			return s.Name == render.PullSecret || slices.Contains(a.requested(), s.Driver)
		})
	}
	if a.outcome.next.waits != "" || len(plan.NextWave(steps)) == 0 {
		return nil
	}
	var of []matrix.Driver
	for _, s := range steps {
		of = append(of, s.Driver)
	}
	a.wait("the removal of obsolete objects", of...)
	wave := plan.NextWave(slices.DeleteFunc(steps, func(s plan.Step) bool { return a.out(s.Driver) }))
	_, _, unread := policies(a.config.Spec) // an unreadable pin may request the driver
	if a.facts.gated != nil || unread != nil || len(wave) == 0 {
		return nil //nolint:nilerr // reported elsewhere; here it only means: not now
	}
	if a.outcome.changed > 0 {
		a.outcome.again = true
		return nil // its replacement was just written
	}
	if still, err := a.stillOpen(ctx); err != nil || !still {
		return err
	}
	inv = a.inventory
	for _, s := range wave {
		if e, recorded := inv.Get(s.Key); recorded {
			e.UID, e.Rendered = "", "" // if it is requested again before that, its absence is no drift
			inv = inv.With(e)
		}
	}
	if err := a.record(ctx, inv); err != nil {
		return err
	}
	return a.prune(ctx, wave)
}

// tellLeft tells of a driver that stays installed without the operator.
func (p *pass) tellLeft(s plan.Step) {
	if s.Action == plan.Forget && s.Kind == "DaemonSet" { // once for a driver
		p.emit(corev1.EventTypeNormal, "Left", "Apply", fmt.Sprintf("Left %s, without repairs: %s", s.Key, s.Reason))
	}
}

// stillOpen lists the awaited objects before a removal: the conditions were read from the cache, which may be stale.
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

// These texts are of a driver that is being removed.
const (
	reasonRemoving = "Removing"
	textRemoving   = "is being removed"
)

// going reports whether a driver is being removed: with the VDOConfig, or because it is no longer requested. A
// decided or judged driver loses only obsolete objects.
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
