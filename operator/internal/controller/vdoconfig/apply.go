package vdoconfig

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// applier applies a plan as far as this pass may go.
type applier struct {
	*pass
	planned
	blocked map[matrix.Driver]error // by conflicts; treated as not requested
	failed  map[matrix.Driver]error // in this pass; later drivers may need them
	errs    []error
}

// apply stops before the first write if the DriverBundle or its policy changed after the check: reading, rendering and
// dry runs take a while. It writes the records, then applies stage by stage. It skips drivers with a conflict. A failed
// driver stops for this pass, and so do drivers that are not installed yet.
func (p *pass) apply(ctx context.Context, in planned) error {
	changed, err := p.policyChanged(ctx)
	if p.outcome.broken = err; changed || err != nil {
		p.outcome.drift, p.outcome.again = p.config.Status.Drift, changed
		p.wait("DriverBundle " + p.bundle.source.Name + ", which has changed, to be verified again")
		return err
	}
	a := &applier{pass: p, planned: in, blocked: p.blocked(), failed: map[matrix.Driver]error{}}
	_, err = drift.Parse(p.config.Spec.Drift)
	a.errs = append(a.errs, err, p.outcome.plan.Conflicts())
	p.outcome.broken = a.stages(ctx)
	a.errs = append(a.errs, p.outcome.broken)
	p.outcome.failed = maps.Clone(a.blocked)
	for d, why := range a.failed {
		p.outcome.failed = joined(p.outcome.failed, d, why)
	}
	a.noteDrift()
	return fault.Join(a.errs...)
}

func (a *applier) stages(ctx context.Context) error {
	if err := a.recordFirst(ctx); err != nil {
		return err
	}
	untried := a.untried()
	for i, stage := range a.Stages {
		if err := a.stage(ctx, stage); err != nil {
			return err
		}
		if i == 0 && stage.Name == render.StageBase && untried && a.outcome.changed > 0 {
			a.wait("the namespaces and kinds that were just created: all else needs them")
			a.outcome.again = true
			return nil
		}
		if stage.Name == render.StageCSINode && a.rendering.canary {
			if err := a.canaryStage(ctx); err != nil {
				return err
			}
		}
	}
	if a.facts.frozen != "" {
		return nil
	}
	return a.removals(ctx)
}

// policyChanged reports whether the trust policies changed after the check of the accepted bundle. It reads past the
// cache, which may be stale.
func (p *pass) policyChanged(ctx context.Context) (bool, error) {
	b := p.bundle
	if b.policy == "" || p.bundleGated {
		return false, nil
	}
	var now v1alpha1.DriverBundle
	if err := p.Reader.Get(ctx, client.ObjectKeyFromObject(b.source), &now); err != nil {
		return false, fmt.Errorf("see whether DriverBundle %s is still trusted: %w", b.source.Name, err)
	}
	policy, err := p.Cluster.PolicyVersion(ctx, &now)
	return policy != b.policy || now.Generation != b.source.Generation, err
}

// blocked returns the drivers that must not change: those with a conflict. The others of their group are blocked too if
// they are not installed yet or start another revision.
func (p *result) blocked() map[matrix.Driver]error {
	all := p.outcome.plan.Blocked()
	for d, why := range maps.Clone(all) {
		for _, other := range inOrder {
			group := revision.GroupOf(other)
			starts := !p.inventory.Has(other) || p.upgrades.verdicts[group].Starts
			if starts && all[other] == nil && group == revision.GroupOf(d) {
				all[other] = why
			}
		}
	}
	return all
}

// untried reports whether the dry run lacks objects because their namespace does not exist. Then the pass writes only
// namespaces and CRDs: a dry run of all objects comes before any other write.
func (in *planned) untried() bool {
	lacks := func(o render.Object) bool { return in.live[plan.IDOf(o.Unstructured).Key] == nil }
	return len(in.Stages) > 0 && in.Stages[0].Name == render.StageBase && slices.ContainsFunc(in.Stages[0].Objects, lacks)
}

// recordFirst widens the inventory to old ∪ new before any write.
func (a *applier) recordFirst(ctx context.Context) error {
	hasObject := func(s plan.Step) bool { return s.Object != nil }
	if a.facts.newHash && !slices.ContainsFunc(a.outcome.plan.Steps, hasObject) {
		return nil // nothing is installed or requested
	}
	wide := a.inventory
	for _, s := range a.outcome.plan.Steps {
		if s = a.lent(s); s.Object == nil || a.blocked[s.Driver] != nil {
			continue
		}
		wide = wide.Union(inventory.Entry{ID: s.ID, Driver: s.Driver})
		if s.Action == plan.Create {
			wide = wide.WithoutUID(s.Key)
		}
	}
	a.rendering.blocked = a.blocked
	wide = a.remember(wide, a.rendering)
	was := a.inventory
	if err := a.record(ctx, wide); err != nil {
		return err
	}
	// The records have the pods' hashes under this key: without it all pods would roll.
	if err := a.keepKey(ctx); err != nil {
		return err
	}
	if dropped := strings.Join(a.rendering.Dropped, "; "); dropped != "" && a.takesOver() {
		a.emit(corev1.EventTypeWarning, "SettingsDropped", "Apply", "Dropped settings that the VDOConfig does not have: "+dropped)
	}
	a.emitRevisions(was.Memory().Revisions, wide.Memory().Revisions)
	return nil
}

func (a *applier) takesOver() bool {
	c := &a.facts.cluster
	cloud, storage := len(c.ExistingCloudConfig) > 0, len(c.ExistingStorageConfig)+len(c.ExistingFeatureStates) > 0
	return cloud && a.blocked[matrix.CPI] == nil || storage && a.blocked[matrix.CSI] == nil
}

// stage applies and records a stage's steps, and evaluates the next stage's conditions.
func (a *applier) stage(ctx context.Context, stage render.Stage) error {
	inv := a.inventory
	written := map[inventory.Key]bool{}
	for _, s := range a.outcome.plan.Stage(stage.Name) {
		if s = a.lent(s); a.out(s.Driver) || s.Object == nil || a.tolerated(s) || (s.Writes() && a.mustWait(s)) {
			continue
		}
		if next, first := beforehand(inv, s); first {
			inv = next
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
			inv = inv.With(inventory.Entry{ID: s.ID, UID: string(applied.GetUID()), Driver: s.Driver, Release: s.Release,
				Rendered: s.Rendered, Content: s.Content})
		}
	}
	if err := a.record(ctx, inv); err != nil {
		return err
	}
	return a.seeNext(ctx, stage, written)
}

// beforehand returns the inventory to write before a step recreates an object. While the object is missing, its driver
// counts as installed, and the missing object is no drift.
func beforehand(inv inventory.Inventory, s plan.Step) (inventory.Inventory, bool) {
	if (s.Action == plan.Recreate && s.Cause != plan.Drift) || s.AdoptsByRecreation() {
		return inv.With(inventory.Entry{ID: s.ID, Driver: s.Driver, Release: s.Release, Content: s.Content}), true
	}
	return inv, false
}

// lent returns the step of a pull secret for another driver, if its own may not change. The other one has pods in the
// namespace, which need the secret too.
func (a *applier) lent(s plan.Step) plan.Step {
	if s.Name != render.PullSecret || s.Err != nil || !a.out(s.Driver) {
		return s
	}
	for _, o := range a.outcome.plan.Steps {
		if isWorkload(o.Key) && o.Namespace == s.Namespace && o.Object != nil && !a.out(o.Driver) {
			s.Driver = o.Driver
		}
	}
	return s
}

func (a *applier) out(d matrix.Driver) bool { return a.blocked[d] != nil || a.failed[d] != nil }

// step runs one step and records its event. It returns the current object, or nil if it was deleted to be recreated.
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
		a.changed(ctx, s, a.note(s))
	}
	if applied == nil {
		a.wait(s.Key.String()+" to be deleted, so that it can be created again", s.Driver)
		a.outcome.again = a.outcome.again || !s.Deleting
	}
	return applied, nil
}

// past has the first words of the events about changes.
var past = map[plan.Action]string{
	plan.Create: "Created", plan.Change: "Changed", plan.Replace: "Replaced", plan.Recreate: "Deleted to recreate",
}

// note returns the event text of a change: of a workload, or of an object that drifted. It is "" for the other objects
// of a release, which are many.
func (a *applier) note(s plan.Step) string {
	if s.Cause != plan.Drift && !isWorkload(s.Key) && s.Driver != drivers.MirrorSet {
		return ""
	}
	return fmt.Sprintf("%s %s of %s: %s", past[s.Action], s.Key, s.Release, s.Reason)
}

// wait records the condition that a next stage waits for, and its drivers; no driver means all.
func (p *result) wait(what string, of ...matrix.Driver) {
	o := &p.outcome
	all := len(of) == 0 || o.next.ofAll()
	o.next.waits = sentences(o.next.waits, what)
	if o.next.of = append(o.next.of, of...); all {
		o.next.of = nil
	}
}

func (n nextStage) ofAll() bool { return n.waits != "" && len(n.of) == 0 }

func (p *result) waitsFor(group revision.Group) bool {
	return p.outcome.next.waits != "" && (p.outcome.next.ofAll() ||
		slices.ContainsFunc(p.outcome.next.of, func(d matrix.Driver) bool { return revision.GroupOf(d) == group }))
}

func (p *result) waitsForOthers(group revision.Group) bool {
	return slices.ContainsFunc(p.outcome.next.of, func(d matrix.Driver) bool { return revision.GroupOf(d) != group })
}

// mustWait reports whether a step waits for a condition of its own group. A step that installs or upgrades its driver
// waits for all groups: later drivers need earlier ones. Rollbacks, changed settings and recreated objects wait for no
// other group.
func (p *result) mustWait(s plan.Step) bool {
	group := revision.GroupOf(s.Driver)
	_, installed := p.facts.site.Installed[s.Driver]
	cur, _ := p.history()[group].InForce()
	e, _ := p.inventory.Get(s.Key)
	again := e.UID == "" && e.Rendered == "" && e.Release == s.Release
	upgrades := (s.Cause == plan.Release || s.Cause == plan.Content) && !cur.Returned && !again
	return p.outcome.next.waits != "" && s.Cause != plan.Drift && (!installed || upgrades || p.waitsFor(group))
}

func (a *applier) seeNext(ctx context.Context, stage render.Stage, written map[inventory.Key]bool) error {
	if a.outcome.next.ofAll() {
		return nil
	}
	var look []inventory.ID
	for _, g := range stage.Waits {
		if g.Kind == render.Established || g.Kind == render.Exists {
			look = append(look, inventory.ID{Key: plan.KeyOf(g.Object), Version: g.Object.Version})
		}
	}
	live, _, err := a.Cluster.Read(ctx, look)
	if err != nil {
		return err
	}
	for _, g := range stage.Waits {
		key := plan.KeyOf(g.Object)
		drivers := waiting(stage, key)
		waits := func(d matrix.Driver) bool { return a.waitsFor(revision.GroupOf(d)) }
		isFree := func(d matrix.Driver) bool { return a.blocked[d] == nil }
		failed := func(d matrix.Driver) bool { return a.failed[d] != nil }
		blocked := len(drivers) > 0 && !slices.ContainsFunc(drivers, isFree)
		open := !slices.ContainsFunc(drivers, failed) && a.open(g, live[key], written[key])
		if slices.ContainsFunc(drivers, waits) || blocked || open {
			continue
		}
		a.wait(waitsFor(g), drivers...)
	}
	return nil
}

// waiting returns the drivers that a stage's condition concerns: that of its object, or those of the stage.
func waiting(stage render.Stage, key inventory.Key) []matrix.Driver {
	for _, o := range stage.Objects {
		if plan.IDOf(o.Unstructured).Key == key {
			return []matrix.Driver{o.Driver}
		}
	}
	return stage.Drivers
}

func waitsFor(g render.Wait) string {
	if g.Kind == render.NodesInitialized {
		return "a node that the cloud provider has initialised"
	}
	return g.Object.String() + ": " + g.Why
}

// open reports whether a condition holds. The status of a just written object is unknown.
func (a *applier) open(g render.Wait, live *unstructured.Unstructured, written bool) bool {
	switch g.Kind {
	case render.Established:
		return live != nil && established(live)
	case render.Exists:
		return live != nil
	case render.RolledOut:
		return !written && slices.ContainsFunc(a.facts.observed.All(), func(w assess.Workload) bool {
			o := g.Object
			return w.Kind == o.Kind && w.Namespace == o.Namespace && w.Name == o.Name && a.facts.observed.RolledOut(w)
		})
	case render.NodesInitialized:
		return initialized(a.facts.observed, g.Nodes)
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

// initialized reports whether one of the nodes is initialised, which is enough for the next stage. If all of them had
// to be, one broken node would keep storage from a whole cluster.
func initialized(o *assess.Observed, names []string) bool {
	return len(names) == 0 || slices.ContainsFunc(o.Nodes, func(n *corev1.Node) bool {
		return slices.Contains(names, n.Name) && !slices.ContainsFunc(n.Spec.Taints,
			func(t corev1.Taint) bool { return t.Key == assess.TaintUninitialized })
	})
}
