// Package vdoconfig installs, upgrades, repairs and removes the drivers that a
// VDOConfig asks for.
//
// One pass observes (observe.go), resolves which releases shall be there
// (resolve.go), plans what that changes (plan.go), applies it stage by stage
// (apply.go), assesses how the drivers fare (assess.go), and writes the outcome
// once (status.go). Removal is in remove.go. A pass never waits: where a stage has
// to be healthy before the next one, the pass ends, and what it waits for starts
// another one.
//
// # What is never at stake
//
//   - What runs is read from the cluster at every pass: from labels and images,
//     never from memory. A restart of the operator forgets nothing.
//   - A fault keeps new installations and upgrades back. What is installed stays,
//     and is repaired, as long as the bundle holds its release; configuration that
//     was not verified with the vCenter does not replace what works.
//   - The inventory is written before anything else is, and kept twice.
//   - Nothing stops repairs as long as anything is installed (repair.go).
//   - The certificate of the storage driver's webhook is renewed before anything else
//     is looked at, whatever else is at fault, and while suspended (certificate.go).
package vdoconfig

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

const (
	// Finalizer keeps a VDOConfig until what it installed is removed.
	Finalizer = "vdo.vmware.com/drivers"

	defaultInterval = 5 * time.Minute
	// notReadyInterval is how often a VDOConfig that is not Ready is looked at: some of what
	// it waits for, such as a node's registration, is not watched.
	notReadyInterval = time.Minute
)

// Store gives the contents of the accepted bundle.
type Store interface {
	Contents(ctx context.Context, b *v1alpha1.DriverBundle) (*bundle.Contents, error)
}

// Observer reads the cluster. Absent objects are left out of what it answers.
type Observer interface {
	// APIServers returns every one; it fails where none answers.
	APIServers(ctx context.Context) ([]assess.APIServer, error)
	Observe(ctx context.Context) (assess.Observed, error)
	// Read returns what is there, and of what may not be read why.
	Read(ctx context.Context, ids []inventory.ID) (plan.Live, map[inventory.Key]error, error)
	Serves(kind schema.GroupKind) bool
	Secret(ctx context.Context, key types.NamespacedName) (map[string][]byte, error)
	// VersionedSecret says beside it what identifies the Secret's state.
	VersionedSecret(ctx context.Context, key types.NamespacedName) (data map[string][]byte, version string, err error)
	ConfigMap(ctx context.Context, key types.NamespacedName) (map[string]string, error)
	// Credentials reads what a VsphereCloudConfig refers to. Errors are faults.
	Credentials(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig) (credentials.Credentials, error)
	// PolicyVersion identifies the state of what the bundle's trust policies are read from.
	PolicyVersion(ctx context.Context, b *v1alpha1.DriverBundle) (string, error)
	// Volumes counts PersistentVolumes of the storage driver and its attachments.
	Volumes(ctx context.Context) (volumes, attachments int, err error)
	EmptyNamespaces(ctx context.Context, names []string) map[string]bool
}

// Changer changes the cluster.
type Changer interface {
	// DryRun changes nothing; an object whose namespace or kind is missing has an empty outcome.
	DryRun(ctx context.Context, objects []render.Object, live plan.Live) (map[inventory.Key]plan.Outcome, error)
	Apply(ctx context.Context, s plan.Step, live *unstructured.Unstructured) (*unstructured.Unstructured, error)
	// Amend writes one object as it is given, past any plan.
	Amend(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error)
	// Delete asks for the deletion under the step's preconditions.
	Delete(ctx context.Context, s plan.Step) error
}

// Records keeps what the operator has to remember.
type Records interface {
	LoadInventory(ctx context.Context, of types.NamespacedName) (inventory.Inventory, error)
	SaveInventory(ctx context.Context, of types.NamespacedName, inv inventory.Inventory) error
	DeleteInventory(ctx context.Context, of types.NamespacedName) error
	CreateSecret(ctx context.Context, key types.NamespacedName, data map[string][]byte) error
	DeleteSecret(ctx context.Context, key types.NamespacedName) error
}

// Cluster is the cluster that drivers are installed on.
type Cluster interface {
	Observer
	Changer
	Records
}

// Reconciler makes clusters what VDOConfigs say. Its fields are required, but for Reader.
type Reconciler struct {
	Client   client.Client // of the operator's own kinds
	Reader   client.Reader // of the same, past every cache; default: Client
	Cluster  Cluster
	Store    Store
	Recorder condition.Recorder
	Now      func() time.Time

	matrices matrices
}

// Reconcile is one pass.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	frame := &reconciler.Reconciler[*v1alpha1.VDOConfig]{
		Controller: r, Reader: r.Reader, Writer: condition.Writer{Client: r.Client, Recorder: r.Recorder}, Now: r.Now,
		Finalizer: &reconciler.Finalizer[*v1alpha1.VDOConfig]{Name: Finalizer, Client: r.Client, Remover: r},
	}
	if r.Reader == nil {
		frame.Reader = r.Client
	}
	return reconcile.AsReconciler(r.Client, frame).Reconcile(ctx, req)
}

// Pass is over a VDOConfig that is not being deleted. Nothing is written before the
// finalizer is on.
func (r *Reconciler) Pass(ctx context.Context, config *v1alpha1.VDOConfig) (reconciler.Outcome[*v1alpha1.VDOConfig], error) {
	p := r.newPass(config)
	other, err := p.inForce(ctx)
	switch {
	case err != nil:
		return nil, err
	case other != nil:
		p.outcome = outcome{resolved: notInForce(other)}
	case !config.Spec.Suspend && !controllerutil.ContainsFinalizer(config, Finalizer):
		return reconciler.Hold[*v1alpha1.VDOConfig]{}, nil
	default:
		p.run(ctx)
	}
	return p, nil
}

func (r *Reconciler) newPass(config *v1alpha1.VDOConfig) *pass {
	return &pass{Reconciler: r, now: r.Now(), name: client.ObjectKeyFromObject(config), config: config, spec: *config.Spec.DeepCopy()}
}

// Next is at the interval, at once where work was only begun, and sooner while it is not
// Ready.
func (p *pass) Next(config *v1alpha1.VDOConfig) reconciler.Next {
	next := reconciler.Next{Interval: config.Spec.Interval.Duration}
	if next.Interval <= 0 {
		next.Interval = defaultInterval
	}
	switch {
	case p.outcome.again:
		next.AtMost = reconciler.Soon
	case !meta.IsStatusConditionTrue(config.Status.Conditions, v1alpha1.ConditionReady):
		next.AtMost = notReadyInterval
	}
	return next
}

// pass is the state of one pass.
type pass struct {
	*Reconciler
	now    time.Time
	name   types.NamespacedName
	config *v1alpha1.VDOConfig // as it was found; never changed
	// spec is the VDOConfig's, but for providers that are taken from the inventory: of
	// drivers that have to stay, or that cannot be rendered as the VDOConfig has them.
	spec   v1alpha1.VDOConfigSpec
	alone  bool   // there is no other VDOConfig
	frozen string // why nothing but repairs is done
	// leavesOut lets drivers that cannot be rendered at all be left out.
	leavesOut bool
	lost      bool // the inventory is

	site     site
	decision decision
	outcome  outcome
}

// outcome is what a pass came to.
type outcome struct {
	resolved error  // why releases could not be chosen, or may not be
	waiting  string // what is not there yet, for which nobody is at fault
	applied  error  // why objects could not be applied
	renewed  error  // why the webhook's certificate could not be kept
	gate     string // what the next stage waits for
	again    bool   // go on at once
	changed  int    // objects written
	plan     *plan.Plan
	report   *assess.Report
	notes    []string
	leaving  error // why what is not wanted cannot be removed
	volumes  error // the volumes that the removal waits for
}

// run is the pass over a VDOConfig that is in force.
func (p *pass) run(ctx context.Context) {
	if err := p.settle(ctx); err != nil {
		p.outcome.applied = err
		return
	}
	p.outcome.renewed = p.keepCertificate(ctx)
	err := p.observe(ctx)
	if err == nil {
		p.resolve(ctx)
		err = p.install(ctx)
	}
	err = fault.Join(err, p.assess(ctx))
	p.outcome.applied = fault.Join(append(slices.Collect(maps.Values(p.site.faults)), err)...)
}

// install plans and applies.
func (p *pass) install(ctx context.Context) error {
	if p.site.contents == nil {
		return nil // there is nothing to install from, and observe has said why
	}
	rendered, err := p.renderAny(ctx)
	if err != nil {
		return err
	}
	live, err := p.plan(ctx, rendered)
	if err != nil {
		return err
	}
	if p.config.Spec.Suspend {
		return p.outcome.plan.Conflicts()
	}
	return p.apply(ctx, rendered, live)
}

// changed logs and tells what was done to an object.
func (p *pass) changed(ctx context.Context, s plan.Step, note string) {
	p.outcome.changed++
	log.FromContext(ctx).Info("changed", "object", s.Key.String(), "action", s.Action, "driver", s.Driver, "release", s.Release, "cause", s.Cause, "reason", s.Reason)
	if note != "" {
		p.Recorder.Eventf(p.config, nil, "Normal", eventReason(s), "Apply", "%s", condition.Cut(note, condition.MaxNote))
	}
}

func eventReason(s plan.Step) string {
	switch {
	case s.Action == plan.Prune:
		return "Removed"
	case s.Cause == plan.Drift:
		return "Repaired"
	case s.Action == plan.Create:
		return "Installed"
	case s.Cause == plan.Configuration:
		return "Configured"
	}
	return "Updated"
}
