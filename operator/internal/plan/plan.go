// Package plan decides what a pass does to the cluster: for each object of the
// stages wanted and of the inventory one [Step], with its reason. It is pure; status, log and
// apply use the value.
//
// # The rules
//
//   - Objects are made what is rendered, by server-side apply, which touches
//     only the fields that are rendered; of those each is forced, whoever changed it.
//     ConfigMaps and Secrets marked Replace are replaced whole.
//   - Each step has its [Cause], known by what the inventory notes of each object as it
//     was last applied. Only a drift is put right at once; what is new, be it a
//     release, a rebuilt bundle, a moved mirror or a setting, goes stage by stage.
//   - Of a bundle that is not trusted nothing is applied that was not applied before, though
//     the object be gone: it waits, and nothing is pruned for the bundle's sake.
//   - Nothing is deleted before its replacement is healthy: prunes come after all stages.
//   - A Namespace, CustomResourceDefinition, PersistentVolume or StorageClass is never pruned.
//   - A CSIDriver is never deleted to be made again. Workloads and bindings are,
//     where an immutable field (selector, roleRef) has to change and they are ours.
//   - What is ours is known by the inventory, by UID.
//   - An object of the same name that is not in the inventory is adopted where that
//     is safe: it has no other manager (Helm, a GitOps tool,
//     OpenShift, OLM, an owner, a managed-by label), its immutable fields are what
//     they have to be, and a binding names no subject that we would drop. So drivers
//     that the earlier operator or upstream's manifests installed are upgraded in
//     place. Taken over means ours: it is removed with the VDOConfig.
//   - The cloud provider of upstream's deprecated manifests, whose pods are selected by another
//     label, is adopted by a [Recreate]: it has no volumes. That is known by its place and
//     that selector; any other selector is a conflict. While its configuration cannot be
//     replaced yet, it is left as it is.
//   - A workload is not deleted to be made again before the API server has accepted the new one
//     as an update of the old ([Trial]): a rule for creations alone is asked only afterwards.
//   - What is not safe is a [Conflict]: a fault with a remedy. A driver with a
//     conflict is left as it is, the others go on.
package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// Action is what is done to an object.
type Action string

// The actions.
const (
	Create    Action = "create"
	Change    Action = "change"    // server-side apply
	Replace   Action = "replace"   // the whole data of a ConfigMap or Secret
	Recreate  Action = "recreate"  // delete, then create: an immutable field has to change
	Unchanged Action = "unchanged" // is as it shall be
	Prune     Action = "prune"     // delete what is no longer wanted
	Keep      Action = "keep"      // no longer wanted, but must not be deleted
	Forget    Action = "forget"    // leave it on the cluster to its users
	Gone      Action = "gone"      // no longer wanted, and not there
	Wait      Action = "wait"      // shall be changed, and the bundle is not trusted, or the configuration is not accepted yet
	Conflict  Action = "conflict"  // someone else's
)

// Live are objects as they are on the cluster.
type Live map[inventory.Key]*unstructured.Unstructured

// Outcome is what a dry run of an object's apply answered.
type Outcome struct {
	Object *unstructured.Unstructured // as it would be; nil where it could not be asked yet
	Err    error
}

// Input is what is decided on.
type Input struct {
	Stages []render.Stage
	Live   Live
	// Refused are objects that may not be read, and why: nothing is known of them.
	Refused   map[inventory.Key]error
	DryRun    map[inventory.Key]Outcome
	Inventory inventory.Inventory
	// Key of the hashes by which the inventory knows what was applied.
	Key []byte
	// Content identifies, for each driver, what its objects are made of beside the
	// site's configuration: PROGRAM/BUNDLE, of which the latter is of the release with its
	// images and the mirror.
	Content map[matrix.Driver]string
	// Untrusted are drivers that come from a bundle that may not be installed from now, and why: what
	// differs from what was applied last waits, unless it is by the site's configuration or the program
	// alone.
	Untrusted map[matrix.Driver]string
	// Unwatched is set where no one looks for drift: what was applied as it is now is as it
	// shall be.
	Unwatched bool
	// Gated are drivers that are left as they are, and why: what they have is neither
	// changed nor pruned.
	Gated map[matrix.Driver]string
	// Retained says what becomes of the objects of drivers that are not wanted at
	// all any more. Absent: they are pruned.
	Retained map[matrix.Driver]Retention
	// Others are workloads of the same drivers that are someone else's.
	Others []Other
	// WithoutIt is how a person does without a part whose object is someone else's; default:
	// "take the driver out of the VDOConfig".
	WithoutIt string
}

// Step is what is done to one object.
type Step struct {
	Action Action
	inventory.ID
	Driver  matrix.Driver
	Release string // wanted; "" where nothing is
	Stage   string // "" for what is pruned
	Reason  string
	// Adopts is set where the object was not ours.
	Adopts bool
	// Cause of a step that applies Object.
	Cause Cause
	// Rendered and Content are what the inventory notes once Object was applied.
	Rendered, Content string
	// Object is what shall be, for Create to Recreate; nil of a step that waits.
	Object   *unstructured.Unstructured
	Strategy render.Strategy
	Precondition
	// Gated is set of a step that waits for the configuration, not for the bundle.
	Gated bool
	// Err is the fault of a Conflict.
	Err error
}

// Precondition is the live object that a delete is of.
type Precondition struct {
	UID, ResourceVersion string
	Deleting             bool // it is on its way out already
}

// Writes tells whether the step changes the cluster.
func (s Step) Writes() bool {
	return slices.Contains([]Action{Create, Change, Replace, Recreate, Prune}, s.Action)
}

// Plan is all steps: those of the stages in order, then what is no longer wanted,
// in order of removal.
type Plan struct{ Steps []Step }

// Writes is how many steps change the cluster.
func (p Plan) Writes() int {
	n := 0
	for _, s := range p.Steps {
		if s.Writes() {
			n++
		}
	}
	return n
}

// Conflicts returns the faults of all conflicts.
func (p Plan) Conflicts() error {
	var errs []error
	for _, s := range p.Steps {
		errs = append(errs, s.Err)
	}
	return fault.Join(errs...)
}

// Stage returns the steps of a stage.
func (p Plan) Stage(name string) []Step {
	var all []Step
	for _, s := range p.Steps {
		if s.Stage == name {
			all = append(all, s)
		}
	}
	return all
}

// Removals returns the steps of what is no longer wanted.
func (p Plan) Removals() []Step { return p.Stage("") }

// IDOf returns the name of an object and its version.
func IDOf(o *unstructured.Unstructured) inventory.ID {
	gvk := o.GroupVersionKind()
	return inventory.ID{
		Key:     inventory.Key{Group: gvk.Group, Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName()},
		Version: gvk.Version,
	}
}

// KeyOf returns the key of what rendering refers to.
func KeyOf(r render.Ref) inventory.Key {
	return inventory.Key{Group: r.Group, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

// ReleaseOf returns the release that a rendered or live object is labelled with, such
// as "csi@3.5.1", or "".
func ReleaseOf(o *unstructured.Unstructured) string {
	l := o.GetLabels()
	if l[render.LabelDriver] == "" || l[render.LabelVersion] == "" {
		return ""
	}
	return l[render.LabelDriver] + "@" + l[render.LabelVersion]
}

// Make decides.
func Make(in Input) Plan {
	var p Plan
	desired := map[inventory.Key]bool{}
	for _, stage := range in.Stages {
		for _, o := range stage.Objects {
			id := IDOf(o.Unstructured)
			desired[id.Key] = true
			s := in.step(o, id)
			s.Stage = stage.Name
			p.Steps = append(p.Steps, s)
		}
	}
	p.Steps = append(p.Steps, in.others()...)
	p.Steps = append(p.Steps, in.removals(desired)...)
	return p
}

func (in *Input) step(o render.Object, id inventory.ID) Step {
	s := Step{ID: id, Driver: o.Driver, Release: ReleaseOf(o.Unstructured), Object: o.Unstructured, Strategy: o.Apply}
	known, recorded := in.Inventory.Get(id.Key)
	live := in.Live[id.Key]
	s.Rendered, s.Content = in.sum(o.Unstructured), in.Content[o.Driver]
	s.Cause = in.cause(s, live, known)
	dry := in.DryRun[id.Key]
	if err := in.Refused[id.Key]; err != nil {
		return s.conflict(err)
	}
	if in.Unwatched && recorded && known.Release == s.Release && known.Rendered == s.Rendered {
		s.Action = Unchanged
		return s
	}
	if in.waits(s, known) {
		s.Action, s.Reason, s.Object = Wait, in.Untrusted[s.Driver], nil
		return s
	}
	if live == nil {
		s.Action, s.Reason = Create, "is not there"
		if s.Cause == Drift {
			s.Reason = "was deleted"
		}
		return s.failed(dry.Err)
	}
	s.of(live)
	ours := recorded && Ours(live, known)
	if !ours {
		if err := in.mayAdopt(live, o.Unstructured); err != nil {
			return s.conflict(err)
		}
		s.Adopts = id.Kind != "Namespace"
	}
	if err := frozen(live, o.Unstructured); err != nil {
		return s.conflict(err)
	}
	field := immutable(live, o.Unstructured)
	switch {
	case field != "" && !ours && !deprecated(live):
		return s.conflict(immutableConflict(live, field))
	case dry.Err != nil && (field == "" || Trial(live, o.Unstructured) != nil):
		return s.failed(dry.Err)
	case field != "" && !ours:
		return s.recreates(o, live, field)
	case field != "":
		s.Action, s.Reason = Recreate, field+" has to change and is immutable"
		return s
	}
	return s.compare(live, dry.Object)
}

// of notes what a delete of the live object has to name.
func (s *Step) of(live *unstructured.Unstructured) {
	s.UID, s.ResourceVersion = string(live.GetUID()), live.GetResourceVersion()
	s.Deleting = !live.GetDeletionTimestamp().IsZero()
}

func (s Step) compare(live, dry *unstructured.Unstructured) Step {
	if dry == nil {
		s.Action, s.Reason = Change, "could not be compared yet"
		return s
	}
	paths := Diff(live, dry)
	switch {
	case len(paths) == 0:
		s.Action, s.Adopts = Unchanged, false
	case s.Strategy == render.Replace:
		s.Action, s.Reason = Replace, summary(paths)
	default:
		s.Action, s.Reason = Change, summary(paths)
	}
	return s
}

func (s Step) conflict(err error) Step {
	s.Action, s.Err, s.Reason, s.Adopts = Conflict, err, err.Error(), false
	if s.alone() {
		s.Object = nil // the driver is not blocked, so that this would be applied
	}
	return s
}

// failed makes a conflict of a dry run that the API server refused.
func (s Step) failed(err error) Step {
	if err == nil {
		return s
	}
	return s.conflict(err)
}

// Ours tells whether an object was applied by us: under the UID that the inventory has of it, or, where the pass was
// interrupted before that was noted, with the label that it would have been made with. The label alone proves nothing.
func Ours(live *unstructured.Unstructured, known inventory.Entry) bool {
	if known.UID != "" {
		return known.UID == string(live.GetUID())
	}
	return live.GetLabels()[render.LabelManagedBy] == render.ManagedBy
}
