// Package plan decides what a pass does to the cluster. It has one [Step], with its reason, for each object of the
// desired stages and of the inventory. It is pure; status, log and apply use the value.
//
// # The rules
//
//   - Objects are applied as rendered, by server-side apply. It touches only rendered fields, and forces each of
//     them, whoever changed it. ConfigMaps and Secrets marked Replace are replaced whole.
//   - Each step has its [Cause], from what the inventory records of each object as last applied. Only a drift is
//     repaired at once. Anything new (a release, a rebuilt bundle, a moved mirror, a setting) goes stage by stage.
//   - Nothing new is applied from an untrusted bundle, even if the object is missing: the step waits. Nothing is
//     pruned because of such a bundle.
//   - Nothing is deleted before its replacement is healthy: prunes come after all stages.
//   - A Namespace, CustomResourceDefinition, PersistentVolume, StorageClass or VolumeSnapshotClass is never pruned.
//   - A CSIDriver is never recreated. Workloads and bindings of ours are, if an immutable field (selector, roleRef)
//     has to change.
//   - The inventory identifies our objects by UID.
//   - An object of the same name that is not in the inventory is adopted if it has no other manager, the right
//     immutable fields, and no subject that we would drop. Then it is ours, and removed with the VDOConfig.
//   - A CRD of ours never goes back to an earlier version.
//   - The cloud provider of upstream's deprecated manifests, which selects its pods by another label, is adopted by a
//     [Recreate], since it has no volumes. Before that, the API server must accept the new workload ([Trial]).
//   - An unsafe step is a [Conflict]: a fault with a remedy. A driver with a conflict stays unchanged, the others
//     go on.
package plan

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// Action is what a step does to an object.
type Action string

// All actions.
const (
	Create    Action = "create"
	Change    Action = "change"    // server-side apply
	Replace   Action = "replace"   // the whole data of a ConfigMap or Secret
	Recreate  Action = "recreate"  // delete, then create: an immutable field has to change
	Unchanged Action = "unchanged" // the object is as desired
	Prune     Action = "prune"     // delete an obsolete object
	Keep      Action = "keep"      // obsolete, but must not be deleted
	Forget    Action = "forget"    // leave it on the cluster to its users
	Gone      Action = "gone"      // obsolete, and missing
	Wait      Action = "wait"      // to be changed, but the bundle is not trusted or the configuration is not accepted yet
	Conflict  Action = "conflict"  // a foreign object
)

// Live has the objects of the cluster.
type Live map[inventory.Key]*unstructured.Unstructured

// Outcome is the result of a dry run of an object's apply.
type Outcome struct {
	Object *unstructured.Unstructured // after the apply; nil if not possible yet
	Err    error
}

// Input is what the plan is computed from.
type Input struct {
	Stages []render.Stage
	Live   Live
	// Refused has the objects that the operator may not read, with the error.
	Refused   map[inventory.Key]error
	DryRun    map[inventory.Key]Outcome
	Inventory inventory.Inventory
	// Key is of the hashes of applied objects in the inventory.
	Key []byte
	// Content identifies the source of each driver's objects, other than the VDOConfig: PROGRAM/BUNDLE. BUNDLE is of
	// the release with its images and the mirror.
	Content map[matrix.Driver]string
	// Untrusted has the drivers whose bundle may not be installed from now, and why. Their changes wait unless they
	// come only from the configuration or the program.
	Untrusted map[matrix.Driver]string
	// Unwatched is set if the operator does not look for drift. Then an object that was applied as rendered now
	// counts as unchanged, unless it was deleted and its driver changes.
	Unwatched bool
	// Gated has the drivers that stay unchanged, and why: their objects are neither changed nor pruned.
	Gated map[matrix.Driver]string
	// Retained has what happens to the objects of drivers that are not requested. The default is to prune them.
	Retained map[matrix.Driver]Retention
	// Others are foreign workloads of the same drivers.
	Others []assess.Workload
}

// Step is the work on one object.
type Step struct {
	Action Action
	inventory.ID
	Driver  matrix.Driver
	Release string // desired; "" if none
	Stage   string // "" for removals
	Reason  string
	// Adopts is set if the object was not ours.
	Adopts bool
	// Cause is of a step that applies Object.
	Cause Cause
	// Rendered and Content are recorded in the inventory once Object was applied.
	Rendered, Content string
	// Object is the desired object, for Create to Recreate; nil in a step that waits.
	Object   *unstructured.Unstructured
	Strategy render.Strategy
	Precondition
	// Err is the fault of a Conflict.
	Err error
}

// Precondition identifies the live object to delete.
type Precondition struct {
	UID, ResourceVersion string
	Deleting             bool // its deletion has started
}

// Writes reports whether the step changes the cluster.
func (s Step) Writes() bool {
	return slices.Contains([]Action{Create, Change, Replace, Recreate, Prune}, s.Action)
}

// Plan has all steps: those of the stages in order, then removals in their order.
type Plan struct {
	Steps []Step
	// Changing has the drivers that change for another reason than drift. Their deleted objects are created too, in
	// every drift mode: the new pods may need them.
	Changing map[matrix.Driver]bool
}

// Writes returns the number of steps that change the cluster.
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

// Removals returns the steps for obsolete objects.
func (p Plan) Removals() []Step { return p.Stage("") }

// IDOf returns the name of an object and its version.
func IDOf(o *unstructured.Unstructured) inventory.ID {
	gvk := o.GroupVersionKind()
	return inventory.ID{
		Key:     inventory.Key{Group: gvk.Group, Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName()},
		Version: gvk.Version,
	}
}

// WorkloadID returns the name of a driver's workload and its version.
func WorkloadID(w assess.Workload) inventory.ID {
	key := inventory.Key{Group: "apps", Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}
	return inventory.ID{Key: key, Version: "v1"}
}

// KeyOf returns the key of a reference of package render.
func KeyOf(r render.Ref) inventory.Key {
	return inventory.Key{Group: r.Group, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

// ReleaseOf returns the release in the labels of a rendered or live object, such as "csi@3.5.1", or "".
func ReleaseOf(o *unstructured.Unstructured) string {
	l := o.GetLabels()
	if l[render.LabelDriver] == "" || l[render.LabelVersion] == "" {
		return ""
	}
	return l[render.LabelDriver] + "@" + l[render.LabelVersion]
}

// Make computes the plan.
func Make(in Input) Plan {
	p := Plan{Changing: map[matrix.Driver]bool{}}
	desired := map[inventory.Key]bool{}
	for _, stage := range in.Stages {
		for _, o := range stage.Objects {
			id := IDOf(o.Unstructured)
			desired[id.Key] = true
			s := in.step(o, id)
			s.Stage = stage.Name
			p.Steps = append(p.Steps, s)
			known, _ := in.Inventory.Get(id.Key) // a deleted object is drift, also if it is made otherwise
			if s.Writes() && (s.Cause != Drift || known.Rendered != s.Rendered) {
				p.Changing[s.Driver] = true
			}
		}
	}
	for i, s := range p.Steps {
		if s.Action == Unchanged && in.Live[s.Key] == nil && p.Changing[s.Driver] {
			s.Action, s.Reason = Create, "was deleted"
			p.Steps[i] = s.failed(in.DryRun[s.Key].Err)
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
		if s.Action = Unchanged; live != nil && !Ours(live, known) {
			s.Object = nil // another has made it: the inventory must not have it as ours
		}
		return s
	}
	if in.waits(s, known) {
		s.Action, s.Reason, s.Object = Wait, in.Untrusted[s.Driver], nil
		return s
	}
	if live == nil {
		s.Action, s.Reason = Create, "missing"
		if s.Cause == Drift {
			s.Reason = "was deleted"
		}
		return s.failed(dry.Err)
	}
	s.of(live)
	ours := recorded && Ours(live, known)
	if !ours {
		if err := mayAdopt(live, o.Unstructured); err != nil {
			return s.conflict(err)
		}
		s.Adopts = id.Kind != "Namespace" && !s.alone() // a class keeps what others set
	}
	if ours && id.Kind == "CustomResourceDefinition" && older(o.Unstructured, live) {
		s.Action = Unchanged // resources may use what the newer one has
		return s
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
		s.Object = nil // the driver is not blocked, which would apply this object
	}
	return s
}

// failed returns a conflict if the API server refused the dry run.
func (s Step) failed(err error) Step {
	if err == nil {
		return s
	}
	return s.conflict(err)
}

// Ours reports whether we applied an object: its UID is that in the inventory. If the pass was interrupted before
// recording a UID, our label counts. The label alone proves nothing.
func Ours(live *unstructured.Unstructured, known inventory.Entry) bool {
	if known.UID != "" {
		return known.UID == string(live.GetUID())
	}
	return live.GetLabels()[render.LabelManagedBy] == render.ManagedBy
}

// older reports whether an object is of an earlier release than another one, by their labels, which have _ for +.
func older(a, b *unstructured.Unstructured) bool {
	x, errX := matrix.ParseVersion(strings.ReplaceAll(a.GetLabels()[render.LabelVersion], "_", "+"))
	y, errY := matrix.ParseVersion(strings.ReplaceAll(b.GetLabels()[render.LabelVersion], "_", "+"))
	return errX == nil && errY == nil && x.LessThan(y)
}

// Cause is why a step exists.
type Cause string

// All causes. Only a drift skips gates: everything else is new, and must prove itself stage by stage.
const (
	// Drift: an object is no longer as last applied.
	Drift Cause = "drift"
	// Configuration: the VDOConfig, a vCenter or its nodes changed.
	Configuration Cause = "configuration"
	// Content: the same release has other contents, since the bundle was rebuilt, the mirror moved, or the program
	// changed.
	Content Cause = "content"
	// Release: another release, or the first one.
	Release Cause = "release"
)

func (in *Input) cause(s Step, live *unstructured.Unstructured, known inventory.Entry) Cause {
	switch {
	case known.Release == "" || known.Release != s.Release:
		return Release
	case known.UID == "" && known.Rendered == "":
		return Release // it was to replace a deprecated one
	case known.Rendered == s.Rendered:
		return Drift
	case live == nil && (sameBundle(known.Content, s.Content) || in.Untrusted[s.Driver] == ""):
		return Drift // nothing runs that it could disturb
	case known.Content != s.Content:
		return Content
	}
	return Configuration
}

// waits reports whether a step waits until the bundle is trusted: it changes what was last applied, and the change
// comes from the bundle.
func (in *Input) waits(s Step, known inventory.Entry) bool {
	if in.Untrusted[s.Driver] == "" || (known.Release == s.Release && known.Rendered == s.Rendered) {
		return false
	}
	return s.Cause == Release || (s.Cause == Content && !sameBundle(known.Content, s.Content))
}

// sameBundle reports whether two contents have the same bundle part, whatever the program.
func sameBundle(a, b string) bool {
	_, a, known := strings.Cut(a, "/")
	_, b, _ = strings.Cut(b, "/")
	return known && a == b
}

// sum returns a keyed hash of an object. A plain hash would let a reader of the inventory try passwords offline.
func (in *Input) sum(o *unstructured.Unstructured) string {
	data, err := json.Marshal(o.Object)
	if err != nil {
		return "" // never: it was made from JSON
	}
	mac := hmac.New(sha256.New, in.Key)
	mac.Write(data)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
