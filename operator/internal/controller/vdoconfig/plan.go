package vdoconfig

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drift"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// planned is the input of a plan besides the facts: the rendered objects, the live ones and the results of the dry run.
type planned struct {
	rendering
	live    plan.Live
	refused map[inventory.Key]error
	dry     map[inventory.Key]plan.Outcome
	content map[matrix.Driver]string
}

func (p *pass) dryRun(ctx context.Context, r rendering) (planned, error) {
	in := planned{rendering: r, content: p.facts.content(r.decision)}
	in.content[drivers.MirrorSet] = contentOfMirrorSet(r.mirrored)
	var err error
	if in.live, in.refused, err = p.Cluster.Read(ctx, ids(r.Rendered, p.inventory)); err != nil {
		return in, err
	}
	rules, _ := drift.Parse(p.config.Spec.Drift) //nolint:errcheck // apply reports its faults
	in.hashes = p.adapt(r.Rendered, in.live, rules)
	in.dry, err = p.Cluster.DryRun(ctx, r.Objects(), in.live)
	return in, err
}

// plan compares the desired with the live objects. It is pure.
func (s *facts) plan(in planned) plan.Plan {
	others, _ := s.others()
	return plan.Make(plan.Input{
		Key: s.hash, Content: in.content, Untrusted: in.decision.untrusted(),
		Stages: in.Stages, Live: in.live, Refused: in.refused, DryRun: in.dry, Inventory: s.inventory,
		Unwatched: s.config.Spec.Drift != nil && s.config.Spec.Drift.Mode == v1alpha1.DriftOff,
		Gated:     in.decision.gated, Retained: s.retentions(),
		Others: others,
	})
}

// ids returns all objects of the plan, each once.
func ids(rendered *render.Rendered, inv inventory.Inventory) []inventory.ID {
	all := map[inventory.Key]inventory.ID{}
	for _, e := range inv.Entries() {
		all[e.Key] = e.ID
	}
	for _, o := range rendered.Objects() {
		id := plan.IDOf(o.Unstructured)
		all[id.Key] = id
	}
	return slices.SortedFunc(maps.Values(all), func(a, b inventory.ID) int { return a.Compare(b.Key) })
}

// adapt changes rendered objects by what the cluster has. Kept configuration stays, or is omitted if it does not exist.
// So an unaccepted password replaces none that works, and reaches no driver that would lock the account. It omits
// fields that spec.drift leaves to others. It returns the hashes of configuration to record.
func (s *facts) adapt(rendered *render.Rendered, live plan.Live, rules drift.Rules) (hashes map[string]string) {
	eachRendered(rendered, live, func(o render.Object, was *unstructured.Unstructured) (render.Object, bool) {
		if was != nil {
			s.keepPart(o, was)
		}
		return o, was != nil || o.Config != render.ConfigData
	})
	hashes = s.keepHashes(rendered, live)
	away := s.awayFrom()
	eachRendered(rendered, live, func(o render.Object, was *unstructured.Unstructured) (render.Object, bool) {
		if w, is := away[plan.IDOf(o.Unstructured).Key]; is {
			o.Unstructured = withUnavailable(o.Unstructured, w.Desired, s.observed.AwayFrom(w))
		}
		o.Unstructured = rules.Omit(o, was, cluster.FieldManager)
		return o, true
	})
	return hashes
}

// eachRendered replaces each object by the result of a function of it and its live counterpart, or omits it. It does
// not change the rendered object, which may be shared.
func eachRendered(rendered *render.Rendered, live plan.Live,
	change func(o render.Object, was *unstructured.Unstructured) (is render.Object, stays bool),
) {
	for i := range rendered.Stages {
		var all []render.Object
		for _, o := range rendered.Stages[i].Objects {
			if is, stays := change(o, live[plan.IDOf(o.Unstructured).Key]); stays {
				all = append(all, is)
			}
		}
		rendered.Stages[i].Objects = all
	}
}

// keepPart copies an object's part of the configuration, and a kept login, from the live object.
func (s *facts) keepPart(o render.Object, was *unstructured.Unstructured) {
	if s.login.kept && slices.Contains(copies, plan.IDOf(o.Unstructured).Key) {
		o.Object["data"] = was.Object["data"]
	}
	switch o.Config {
	case render.ConfigData:
		for _, field := range []string{"data", "binaryData"} {
			delete(o.Object, field)
			if v, ok := was.Object[field]; ok {
				o.Object[field] = v
			}
		}
	case render.ConfigHash:
		if hash, ok, _ := unstructured.NestedString(was.Object, configHash...); ok {
			_ = unstructured.SetNestedField(o.Object, hash, configHash...) //nolint:errcheck // rendering has set it before
		} else {
			unstructured.RemoveNestedField(o.Object, configHash...)
		}
	}
}

var configHash = []string{"spec", "template", "metadata", "annotations", render.AnnotationConfigHash}

// keepHashes keeps the hashes of workloads while their configuration is equal: else all pods would roll. The key may be
// another one, and the records may be lost. It returns them in the form of [inventory.Memory].
func (s *facts) keepHashes(rendered *render.Rendered, live plan.Live) map[string]string {
	hashes := s.inventory.Memory().Hashes
	unknown := s.newHash || s.inventory.Len() == 0
	if unknown {
		hashes = map[string]string{}
	}
	differ := map[matrix.Driver]bool{}
	for _, o := range rendered.Objects() {
		was := live[plan.IDOf(o.Unstructured).Key]
		data := o.GetKind() == "ConfigMap" || o.GetKind() == "Secret"
		if was == nil || (data && !reflect.DeepEqual(o.Object["data"], was.Object["data"])) {
			differ[o.Driver] = true
		}
	}
	for _, o := range rendered.Objects() {
		hash, found, _ := unstructured.NestedString(o.Object, configHash...)
		if !found {
			continue
		}
		if unknown && !differ[o.Driver] {
			hashes[hash], _, _ = unstructured.NestedString(live[plan.IDOf(o.Unstructured).Key].Object, configHash...)
		}
		if kept := hashes[hash]; kept != "" {
			_ = unstructured.SetNestedField(o.Object, kept, configHash...) //nolint:errcheck // it existed
		}
	}
	return hashes
}

// awayFrom returns the DaemonSets that have pods on nodes that are not ready. During a rollout such pods use up the
// manifest's maxUnavailable, so it is raised by their number. Pods do not restart for it.
func (s *facts) awayFrom() map[inventory.Key]assess.Workload {
	all := map[inventory.Key]assess.Workload{}
	for _, w := range s.observed.All() {
		if w.Kind == "DaemonSet" && !w.Foreign && s.observed.AwayFrom(w) > 0 {
			all[plan.WorkloadID(w).Key] = w
		}
	}
	return all
}

// withUnavailable returns a DaemonSet of this many pods with a maxUnavailable that is higher by more. One that replaces
// no pods by itself stays unchanged.
func withUnavailable(o *unstructured.Unstructured, pods int32, more int) *unstructured.Unstructured {
	var ds appsv1.DaemonSet
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &ds)
	strategy := ds.Spec.UpdateStrategy
	if err != nil || strategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return o
	}
	one, rolling := intstr.FromInt32(1), cmp.Or(strategy.RollingUpdate, &appsv1.RollingUpdateDaemonSet{})
	field, is := "maxUnavailable", cmp.Or(rolling.MaxUnavailable, &one)
	if surge := rolling.MaxSurge; surge != nil && surge.String() != "0" && surge.String() != "0%" {
		field, is = "maxSurge", surge
	}
	o = o.DeepCopy()
	if n, err := intstr.GetScaledValueFromIntOrPercent(is, int(pods), true); err == nil {
		path := []string{"spec", "updateStrategy", "rollingUpdate", field}
		_ = unstructured.SetNestedField(o.Object, int64(n+more), path...) //nolint:errcheck // the path was read before
	}
	return o
}

// retentions returns why installed drivers stay that are no longer requested.
func (s *facts) retentions() map[matrix.Driver]plan.Retention {
	all := retentionsOf(s.onDelete(), s.notRequested(), s.retained, plan.Keep)
	all[drivers.MirrorSet] = plan.Retention{Action: plan.Keep,
		Reason: "OpenShift drains its nodes when it goes: it goes with the VDOConfig, after the drivers"}
	return all
}

// onDelete returns the rules of a removal. Orphan is only for the VDOConfig's own deletion. The operator would forget a
// driver that the spec no longer requests, and nothing would remove it later.
func (s *facts) onDelete() v1alpha1.DeleteMode {
	if s.config.Spec.OnDelete == v1alpha1.DeleteOrphan && s.config.DeletionTimestamp.IsZero() {
		return v1alpha1.DeleteRefuse
	}
	return s.config.Spec.OnDelete
}

// withoutOperator are objects that do harm without the operator.
var withoutOperator = map[inventory.Key]string{
	webhookRegistration.Key: "without the operator its certificate expires, and the API server then refuses all changes of StorageClasses and claims",
}

// retentionsOf returns the drivers that stay. Under Orphan these are the given ones, except objects that need the
// operator. Needed ones stay too, and the network plug-in, unless spec.onDelete is to remove everything. Without it no
// pod of the cluster has a network, not even the operator's.
func retentionsOf(
	on v1alpha1.DeleteMode, orphans []matrix.Driver, needed map[matrix.Driver]string, how plan.Action,
) map[matrix.Driver]plan.Retention {
	all := map[matrix.Driver]plan.Retention{}
	if on != v1alpha1.DeleteRemove {
		all[matrix.CNI] = plan.Retention{Action: plan.Forget,
			Reason: "all pods of the cluster need the network: spec.onDelete Remove removes it, after the rest"}
	}
	for d, why := range needed {
		all[d] = plan.Retention{Action: how, Reason: why}
	}
	for _, d := range orphans {
		if on == v1alpha1.DeleteOrphan {
			all[d] = plan.Retention{Action: plan.Forget, Reason: "spec.onDelete is Orphan", But: withoutOperator}
		}
	}
	return all
}

// volumesInUse returns why the storage driver stays, nil if no volume uses it.
func (r *Reconciler) volumesInUse(ctx context.Context) (why, err error) {
	volumes, attachments, err := r.Cluster.Volumes(ctx)
	if err != nil || volumes+attachments == 0 {
		return nil, err
	}
	return fault.Errorf(fault.Refused, "remove", "csi",
		"delete the claims and volumes first; or set spec.onDelete to Remove, which leaves them without a driver, "+
			"or delete the VDOConfig under Orphan",
		"%d PersistentVolumes and %d VolumeAttachments (counted up to %d) use %s", volumes, attachments,
		cluster.MaxVolumes, drivers.CSIDriver), nil
}

func core(kind, namespace, name string) inventory.ID {
	return inventory.ID{Key: inventory.Key{Kind: kind, Namespace: namespace, Name: name}, Version: "v1"}
}

// status.plan is the rest of the plan after a pass. With a gate (an expired bundle, a vCenter that is down, a missing
// approval) it is the plan without the gate: see pass.planCandidate. It names fields without their values, so it
// contains no secrets.
const (
	maxPlanSteps  = 80
	maxPlanReason = 256
)

// shown returns a decision and its plan for a person: that many steps, without those of this pass that are done. The
// plan is nil if none could be made.
func (d decision) shown(drawn *plan.Plan, done []plan.Step, most int) *v1alpha1.PlanStatus {
	st := &v1alpha1.PlanStatus{}
	if from := d.sources(); len(from) == 1 {
		st.Bundle = from[0].reference()
	} else if d.from != nil {
		st.Bundle = d.from.reference()
	}
	for _, id := range d.releases {
		st.Releases = append(st.Releases, id.String())
	}
	if drawn == nil {
		return st
	}
	counts := map[plan.Action]int{}
	var todo []plan.Step
	for _, s := range drawn.Steps {
		switch {
		case !has(done, s.Key):
			counts[s.Action]++
			if s.Writes() || s.Action == plan.Wait || s.Action == plan.Conflict {
				todo = append(todo, s)
			}
		case s.Action != plan.Prune:
			counts[plan.Unchanged]++
		}
	}
	for _, action := range slices.Sorted(maps.Keys(counts)) {
		st.Actions = append(st.Actions, v1alpha1.PlanCount{Action: string(action), Count: counts[action]})
	}
	slices.SortStableFunc(todo, func(a, b plan.Step) int {
		return cmp.Or(slices.Index(inOrder, a.Driver)-slices.Index(inOrder, b.Driver), a.Compare(b.Key))
	})
	for _, s := range todo[:min(len(todo), most)] {
		if !s.Writes() || s.Action == plan.Prune {
			s.Cause = ""
		}
		st.Steps = append(st.Steps, v1alpha1.PlanStep{
			Action: string(s.Action), Driver: string(s.Driver), Kind: s.Kind, Namespace: s.Namespace, Name: s.Name,
			Cause: string(s.Cause), Reason: condition.Cut(s.Reason, maxPlanReason),
		})
	}
	st.Omitted = len(todo) - len(st.Steps)
	return st
}

func has(steps []plan.Step, key inventory.Key) bool {
	return slices.ContainsFunc(steps, func(s plan.Step) bool { return s.Key == key })
}

// planStatus returns the rest of the plan, or the earlier status if this pass could not plan.
func (p *result) planStatus(before *v1alpha1.PlanStatus) *v1alpha1.PlanStatus {
	switch {
	case p.outcome.foreseen != nil:
		return p.outcome.foreseen
	case p.outcome.plan != nil:
		return p.decision.shown(p.outcome.plan, p.outcome.did, maxPlanSteps)
	case p.outcome.applied != nil:
		return before
	}
	return nil
}

// stopped reports whether the user stopped all writes to the cluster.
func stopped(spec *v1alpha1.VDOConfigSpec) bool { return spec.Suspend || spec.DryRun }

func stoppedBy(spec *v1alpha1.VDOConfigSpec) string {
	if spec.DryRun {
		return "spec.dryRun is set"
	}
	return "spec.suspend is set"
}

// planCandidate plans without gates, for status.plan. It plans only from a bundle that satisfies today's trust policy:
// an untrusted one never reaches the API server, even in a dry run.
func (p *pass) planCandidate(ctx context.Context) {
	if !p.isGated() || p.facts.frozen != "" || !p.facts.bundle.verified {
		return
	}
	q := *p
	q.decided = p.withoutGates()
	q.decision = q.resolve()
	drawn, err := q.planPreview(ctx)
	if p.outcome.foreseen = q.decision.shown(drawn, nil, maxPlanSteps); err != nil {
		p.outcome.notes = append(p.outcome.notes, "status.plan cannot be made: "+fault.Text(err))
	}
}

// isGated reports whether a release or its content may not change now.
func (p *pass) isGated() bool {
	_, gates := p.upgrades.first()
	return gates || p.gateOfAll() != nil || len(p.groupGates()) > 0
}
