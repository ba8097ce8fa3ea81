package vdoconfig

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drift"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// applier applies a plan as far as it may go in this pass.
type applier struct {
	*pass
	planned
	blocked map[matrix.Driver]error // by conflicts: as if they were not asked for
	failed  map[matrix.Driver]error // in this pass: what comes later may need them
	errs    []error
}

// apply goes through the stages: records first, then each stage's steps, then what
// the next stage waits for. A driver that has a conflict is left out. One that fails
// goes no further in this pass, and its gates stay closed; the others go on.
func (p *pass) apply(ctx context.Context, in planned) error {
	a := &applier{pass: p, planned: in, blocked: blocked(p.outcome.plan, p.inventory), failed: map[matrix.Driver]error{}}
	_, err := drift.Parse(p.config.Spec.Drift)
	a.errs = append(a.errs, err, p.outcome.plan.Conflicts())
	p.outcome.broken = a.recheckTrust(ctx)
	p.outcome.broken = fault.Join(p.outcome.broken, a.stages(ctx))
	a.errs = append(a.errs, p.outcome.broken)
	p.outcome.failed = maps.Clone(a.blocked)
	for d, why := range a.failed {
		p.outcome.failed = joined(p.outcome.failed, d, why)
	}
	a.noteDrift()
	a.tellDrift()
	return fault.Join(a.errs...)
}

// stages applies all that may be applied now, and removes what is wanted no longer.
func (a *applier) stages(ctx context.Context) error {
	if err := a.recordAhead(ctx); err != nil {
		return err
	}
	untried := a.untried()
	for i, stage := range a.Stages {
		if err := a.stage(ctx, stage); err != nil {
			return err
		}
		if i == 0 && stage.Name == render.StageBase && untried && a.outcome.changed > 0 {
			a.outcome.gate, a.outcome.again = "the namespaces and kinds that were just created: all else needs them", true
			return nil
		}
		if stage.Name == render.StageCSINode && a.rendering.canary {
			if err := a.canaryStage(ctx); err != nil {
				return err
			}
		}
	}
	if a.site.frozen != "" || a.rendering.frozen != "" {
		return nil
	}
	return a.removals(ctx)
}

// recheckTrust lets nothing but repairs go on where a trust policy has changed since the
// bundle was held against it, or that cannot be seen: to read a bundle, to render and to
// try all of it takes a while. Then the plan is made anew.
func (a *applier) recheckTrust(ctx context.Context) error {
	b := a.site.bundle
	if b.policy == "" || a.site.bundleHeld {
		return nil
	}
	changed, err := a.policyChanged(ctx, b)
	switch {
	case err != nil:
		a.outcome.gate = "an answer to whether DriverBundle " + b.source.Name + " is still trusted"
	case changed:
		a.outcome.gate, a.outcome.again = "DriverBundle "+b.source.Name+" to be verified under the trust policy, which has just changed", true
	default:
		return nil
	}
	a.rendering.untrusted, a.rendering.frozen = a.outcome.gate, a.outcome.gate
	made := a.site.plan(a.planned)
	a.outcome.plan = &made
	return err
}

// policyChanged looks past the cache, which may be as late as what was read before.
func (a *applier) policyChanged(ctx context.Context, b *opened) (bool, error) {
	var now v1alpha1.DriverBundle
	if err := a.Reader.Get(ctx, client.ObjectKeyFromObject(b.source), &now); err != nil {
		return false, fmt.Errorf("see whether DriverBundle %s is still trusted: %w", b.source.Name, err)
	}
	policy, err := a.Cluster.PolicyVersion(ctx, &now)
	return policy != b.policy || now.Generation != b.source.Generation, err
}

// blocked returns the drivers that must not be touched. A storage driver whose
// snapshot-controller cannot be had is not installed anew.
func blocked(made *plan.Plan, inv inventory.Inventory) map[matrix.Driver]error {
	blocked := made.Blocked()
	if err := blocked[matrix.SnapshotController]; err != nil && !inv.Has(matrix.CSI) {
		blocked[matrix.CSI] = fault.Join(blocked[matrix.CSI], err)
	}
	return blocked
}

// untried tells whether objects could not be tried because their namespace is not
// there yet. Then nothing but namespaces and kinds is written in this pass: nothing
// of the rest before all of it was tried.
func (in *planned) untried() bool {
	if len(in.Stages) == 0 || in.Stages[0].Name != render.StageBase {
		return false
	}
	for _, o := range in.Stages[0].Objects {
		if in.live[plan.IDOf(o.Unstructured).Key] == nil {
			return true
		}
	}
	return false
}

// recordAhead widens the inventory to old ∪ new before anything is written.
func (a *applier) recordAhead(ctx context.Context) error {
	wanted := func(s plan.Step) bool { return s.Object != nil }
	if a.site.newHash && !slices.ContainsFunc(a.outcome.plan.Steps, wanted) {
		return nil // nothing is installed, and nothing shall be
	}
	if err := a.keepKey(ctx); err != nil {
		return err
	}
	wide := a.inventory
	for _, s := range a.outcome.plan.Steps {
		if s.Object == nil || a.blocked[s.Driver] != nil {
			continue
		}
		wide = wide.Union(inventory.Entry{ID: s.ID, Driver: s.Driver})
		if s.Action == plan.Create {
			wide = wide.WithoutUID(s.Key)
		}
	}
	wide = a.site.remember(wide, a.rendering)
	if err := a.keepRevisions(ctx, wide.Memory().Revisions); err != nil {
		return err
	}
	was := a.inventory
	if err := a.record(ctx, wide); err != nil {
		return err
	}
	a.tellRevision(was.Memory().Revisions, wide.Memory().Revisions)
	return a.dropRevisions(ctx, was, wide)
}

// stage applies a stage's steps, notes what was applied, and sees what the next
// stage waits for. Once something is waited for, only repairs go on.
func (a *applier) stage(ctx context.Context, stage render.Stage) error {
	inv := a.inventory
	written := map[inventory.Key]bool{}
	for _, s := range a.outcome.plan.Stage(stage.Name) {
		if a.out(s.Driver) || s.Object == nil || a.tolerated(s) || (s.Writes() && a.outcome.gate != "" && s.Cause != plan.Drift) {
			continue
		}
		if ahead, first := beforehand(inv, s); first {
			inv = ahead
			if err := a.record(ctx, inv); err != nil {
				return err
			}
		}
		applied, err := a.step(ctx, s)
		if err != nil {
			a.failed[s.Driver] = err
			a.errs = append(a.errs, err)
			continue
		}
		written[s.Key] = s.Writes()
		if applied != nil {
			inv = inv.With(entry(s, applied))
		}
	}
	if err := a.record(ctx, inv); err != nil {
		return err
	}
	return a.gates(ctx, stage, written)
}

// beforehand is the inventory that is to be written before a step that makes an object anew. What
// is deleted for it is not there for a while, in which the driver counts as installed all the same:
// one that was taken over so is made again whatever then holds new installations back.
func beforehand(inv inventory.Inventory, s plan.Step) (inventory.Inventory, bool) {
	switch {
	case s.AtOnce():
		return inv.WithoutUID(s.Key), true
	case s.AdoptsAnew():
		return inv.With(inventory.Entry{ID: s.ID, Driver: s.Driver, Release: s.Release, Content: s.Content}), true
	}
	return inv, false
}

// out tells whether nothing more is done for a driver in this pass.
func (a *applier) out(d matrix.Driver) bool { return a.blocked[d] != nil || a.failed[d] != nil }

func entry(s plan.Step, applied *unstructured.Unstructured) inventory.Entry {
	return inventory.Entry{ID: s.ID, UID: string(applied.GetUID()), Driver: s.Driver, Release: s.Release,
		Rendered: s.Rendered, Content: s.Content}
}

// step does one step and tells of it. The object returned is as it is now, nil where
// it was deleted to be made again.
func (a *applier) step(ctx context.Context, s plan.Step) (*unstructured.Unstructured, error) {
	live := a.live[s.Key]
	if !s.Writes() {
		return live, nil
	}
	applied, err := a.Cluster.Apply(ctx, s, live)
	if err != nil {
		return nil, err
	}
	if applied != nil || !s.Deleting {
		a.changed(ctx, s, a.note(s, live))
	}
	if applied == nil {
		a.outcome.gate, a.outcome.again = s.Key.String()+" to be deleted, so that it can be created again", a.outcome.again || !s.Deleting
	}
	return applied, nil
}

// note is the text of the event of a change: of workloads what they changed to, of
// everything that had been changed by others what was repaired; "" for the many
// small parts of a release.
func (a *applier) note(s plan.Step, live *unstructured.Unstructured) string {
	switch {
	case s.Cause == plan.Drift:
		return fmt.Sprintf("repaired %s: %s", s.Key, s.Reason)
	case s.Driver == drivers.MirrorSet:
		return fmt.Sprintf("%s was written: OpenShift's Machine Config Operator has one node after the other take it up", s.Key)
	case s.Kind != "DaemonSet" && s.Kind != "Deployment":
		return ""
	case s.AdoptsAnew():
		return fmt.Sprintf("%s of an earlier installation is deleted with its pods, to be made again by %s: %s", s.Key, s.Release, s.Reason)
	case s.Adopts:
		return fmt.Sprintf("%s of an earlier installation was taken over by %s", s.Key, s.Release)
	case live == nil:
		return fmt.Sprintf("%s of %s was installed", s.Key, s.Release)
	case s.Cause == plan.Configuration:
		return fmt.Sprintf("%s of %s was reconfigured: %s", s.Key, s.Release, s.Reason)
	case s.Cause == plan.Content:
		return fmt.Sprintf("%s of %s was changed to what bundle, mirror and operator make of it now: %s", s.Key, s.Release, s.Reason)
	}
	return fmt.Sprintf("%s was changed from %s to %s", s.Key, plan.ReleaseOf(live), s.Release)
}

// gates sees whether the next stage may be applied.
func (a *applier) gates(ctx context.Context, stage render.Stage, written map[inventory.Key]bool) error {
	if a.outcome.gate != "" {
		return nil
	}
	var look []inventory.ID
	for _, g := range stage.Gates {
		if g.Kind == render.Established || g.Kind == render.Exists {
			look = append(look, inventory.ID{Key: plan.KeyOf(g.Object), Version: g.Object.Version})
		}
	}
	live, _, err := a.Cluster.Read(ctx, look)
	if err != nil {
		return err
	}
	for _, g := range stage.Gates {
		key := plan.KeyOf(g.Object)
		drivers := gated(stage, key)
		if all(drivers, a.blocked) || (!anyOf(drivers, a.failed) && a.open(g, live[key], written[key])) {
			continue
		}
		a.outcome.gate = waits(g)
		return nil
	}
	return nil
}

// gated returns the drivers that a gate of a stage is about: that of its object, or
// those of the stage.
func gated(stage render.Stage, key inventory.Key) []matrix.Driver {
	for _, o := range stage.Objects {
		if plan.IDOf(o.Unstructured).Key == key {
			return []matrix.Driver{o.Driver}
		}
	}
	return stage.Drivers
}

func all(drivers []matrix.Driver, in map[matrix.Driver]error) bool {
	return len(drivers) > 0 && !slices.ContainsFunc(drivers, func(d matrix.Driver) bool { return in[d] == nil })
}

func anyOf(drivers []matrix.Driver, in map[matrix.Driver]error) bool {
	return slices.ContainsFunc(drivers, func(d matrix.Driver) bool { return in[d] != nil })
}

func waits(g render.Gate) string {
	if g.Kind == render.NodesInitialized {
		return "a node that the cloud provider has initialised"
	}
	return g.Object.String() + ": " + g.Why
}

// open tells whether a gate is: of what was just written the status is not known.
func (a *applier) open(g render.Gate, live *unstructured.Unstructured, written bool) bool {
	switch g.Kind {
	case render.Established:
		return live != nil && established(live)
	case render.Exists:
		return live != nil
	case render.RolledOut:
		return !written && rolledOut(a.site.observed, g.Object)
	case render.NodesInitialized:
		return initialized(a.site.observed, g.Nodes)
	}
	return false
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(item any) bool {
		c, ok := item.(map[string]any)
		return ok && c["type"] == "Established" && c["status"] == "True"
	})
}

func rolledOut(o *assess.Observed, ref render.Ref) bool {
	for _, w := range o.All() {
		if w.Kind == ref.Kind && w.Namespace == ref.Namespace && w.Name == ref.Name {
			return o.RolledOut(w)
		}
	}
	return false
}

// initialized tells whether one of the nodes is: what comes next needs one to run
// on. All of them would let one broken node keep storage from a whole cluster.
func initialized(o *assess.Observed, names []string) bool {
	if len(names) == 0 {
		return true
	}
	for i := range o.Nodes {
		if slices.Contains(names, o.Nodes[i].Name) && !slices.ContainsFunc(o.Nodes[i].Spec.Taints,
			func(t corev1.Taint) bool { return t.Key == assess.TaintUninitialized }) {
			return true
		}
	}
	return false
}
