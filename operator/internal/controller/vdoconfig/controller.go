// Package vdoconfig installs, upgrades, repairs and removes the drivers that a VDOConfig requests.
//
// One reconcile collects facts, decides, and acts:
//
//	collect.go  reads the facts, once: the installed objects, the bundle, the vCenters
//	resolve.go  facts → desired releases; asks the matrix once (package lookahead asks about the next upgrades); pure
//	gates.go    facts → gates, which block changes; package decide has the table of all gates; pure
//	revision.go decides for each group of drivers (package decide) whether it changes, or rolls back
//	repair.go   facts, decision → rendering: the objects of the drivers; pure
//	plan.go     facts, rendering, the API server's dry run → plan; pure
//	apply.go    applies the plan, stage by stage
//	canary.go   upgrades canary nodes first
//	health.go   judges the drivers after the changes, and their revisions (package rollout)
//	status.go   all of these → status; pure. Package reconciler writes the status
//
// remove.go removes the drivers. preview.go plans in other facts and changes nothing: it answers people who plan an
// upgrade. A reconcile never waits. If a stage must become healthy before the next one, the reconcile ends, and the
// change that the stage waits for starts another one.
//
// # Guarantees
//
//   - The operator reads installed objects from the API server at every reconcile, one by one, past every cache.
//     A restart loses nothing that the operator holds in memory.
//   - A fault gates installations and upgrades of its group of drivers only (gates.go). Installed drivers stay, and
//     are repaired from the bundle that each came from. Configuration that the vCenter did not accept, or with which
//     a driver would not start, never replaces configuration that works.
//   - The operator writes the inventory before anything else.
//   - No fault stops repairs of installed drivers (repair.go), with three exceptions: a conflict with another tool,
//     of that driver and of changes to its group; a bundle that neither cluster nor mirror has; an unreadable
//     inventory. A user stops repairs by spec.dryRun, spec.suspend and spec.drift. Only dryRun stops the renewal of
//     the storage webhook's certificate (certificate.go).
package vdoconfig

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drift"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
)

const (
	defaultInterval = 5 * time.Minute
	// notReadyInterval is how often the operator reconciles a VDOConfig that is not Ready: it does not watch all
	// conditions, such as a node's registration.
	notReadyInterval = time.Minute
)

// Store returns the contents of the accepted bundle.
type Store interface {
	Contents(ctx context.Context, b *v1alpha1.DriverBundle) (*bundle.Contents, error)
}

// Trust reports whether an earlier accepted bundle is still trusted.
type Trust interface {
	// Trusted checks status.digest against today's trust policies, without the mirror. It fails with Untrusted if they
	// do not accept it.
	Trusted(ctx context.Context, b *v1alpha1.DriverBundle) error
}

// Cluster is the cluster of the drivers; see the methods of package cluster.
type Cluster interface {
	APIServers(ctx context.Context) ([]assess.APIServer, error)
	Observe(ctx context.Context) (assess.Observed, error)
	ObserveListed(ctx context.Context) (assess.Observed, error)
	Read(ctx context.Context, ids []inventory.ID) (plan.Live, map[inventory.Key]error, error)
	Serves(kind schema.GroupKind) (bool, error)
	Data(ctx context.Context, namespace string, ref v1alpha1.KeyReference) (source.Data, error)
	Credentials(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig) (credentials.Credentials, error)
	PolicyVersion(ctx context.Context, b *v1alpha1.DriverBundle) (string, error)
	Volumes(ctx context.Context) (volumes, attachments int, err error)
	OthersSnapshots(ctx context.Context) (int, error)
	MirrorRules(ctx context.Context) ([]preflight.MirrorRule, error)
	MachineConfigPools(ctx context.Context) ([]decide.Pool, error)

	DryRun(ctx context.Context, objects []render.Object, live plan.Live) (map[inventory.Key]plan.Outcome, error)
	Apply(ctx context.Context, s plan.Step, live *unstructured.Unstructured) (*unstructured.Unstructured, error)
	Amend(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error)
	Delete(ctx context.Context, s plan.Step) error
	DeletePod(ctx context.Context, pod types.NamespacedName, uid types.UID) error

	LoadInventory(ctx context.Context, of types.NamespacedName) (cluster.Loaded, error)
	SaveInventory(
		ctx context.Context, of types.NamespacedName, inv inventory.Inventory, was cluster.Loaded,
	) (cluster.Loaded, error)
	DeleteInventory(ctx context.Context, of types.NamespacedName) error
	Key(ctx context.Context, namespace string, secrets ...string) (key []byte, in string, err error)
	CreateSecret(ctx context.Context, key types.NamespacedName, data map[string][]byte) error
}

// Reconciler reconciles VDOConfigs. Its fields are required, except Checks and Refusals.
type Reconciler struct {
	Client   client.Client // for the operator's own kinds
	Reader   client.Reader // for the same, past every cache
	Cluster  Cluster
	Store    Store
	Trust    Trust
	Recorder condition.Recorder
	Now      func() time.Time
	Program  string // version of this program: another one may render the same release differently
	// Checks run before an installation or a change of configuration; nil for none.
	Checks   Checks
	Refusals *reconciler.Refusals // of watches; nil in a preview

	repairs drift.RepairCounter
}

// Reconcile runs one pass.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	frame := &reconciler.Reconciler[*v1alpha1.VDOConfig]{
		Controller: r, Writer: condition.Writer{Client: r.Client, Recorder: r.Recorder}, Now: r.Now,
		Finalizer: &reconciler.Finalizer[*v1alpha1.VDOConfig]{Name: v1alpha1.FinalizerDrivers, Client: r.Client, Remover: r},
	}
	return reconcile.AsReconciler(r.Client, frame).Reconcile(ctx, req)
}

// Pass reconciles a VDOConfig that is not being deleted. It writes nothing before the finalizer.
func (r *Reconciler) Pass(ctx context.Context, config *v1alpha1.VDOConfig) (reconciler.Outcome[*v1alpha1.VDOConfig], error) {
	p := r.newPass(config)
	other, err := r.activeConfig(ctx, config)
	switch {
	case err != nil:
		return nil, err
	case other != nil:
		p.outcome.resolved = notActive(other)
	case !stopped(&config.Spec) && !controllerutil.ContainsFinalizer(config, v1alpha1.FinalizerDrivers):
		return reconciler.Wait[*v1alpha1.VDOConfig]{}, nil
	default:
		p.run(ctx, "")
	}
	p.outcome.unwatched = p.Refusals.Err(p.now)
	return p.result, nil
}

func (r *Reconciler) newPass(config *v1alpha1.VDOConfig) *pass {
	p := &pass{Reconciler: r, name: client.ObjectKeyFromObject(config)}
	p.request = request{config: config, spec: *config.Spec.DeepCopy(), program: r.Program, now: r.Now()}
	return p
}

type pass struct {
	*Reconciler
	name  types.NamespacedName
	tried map[string]func() (*opened, error) // one attempt to open, by REPOSITORY@DIGEST
	result
}

// run collects facts, decides, acts and judges. A frozen pass only repairs.
func (p *pass) run(ctx context.Context, frozen string) {
	p.frozen = frozen
	err := p.collectInstalled(ctx)
	p.outcome.renewed = p.keepCertificate(ctx, err == nil)
	if err != nil {
		p.outcome.applied = err
		return
	}
	p.facts.inventory, p.facts.certificate = p.inventory, p.certificate
	if err = p.collect(ctx); err == nil {
		p.decide(ctx)
	}
	p.outcome.notes, p.outcome.spec, p.outcome.resolved = p.notes, p.spec, p.facts.unresolved
	if p.outcome.broken = err; err == nil {
		err = p.install(ctx)
	}
	unseen := p.assess(ctx)
	err, p.outcome.broken = fault.Join(err, unseen), fault.Join(p.outcome.broken, unseen)
	p.outcome.applied = fault.Distinct(fault.Join(joinAll(p.faults, err), p.judgeRevisions(ctx)))
}

func (p *pass) install(ctx context.Context) error {
	s := &p.decided
	p.decision = s.resolve()
	if s.bundle == nil {
		return nil // no bundle to install from
	}
	p.outcome.resolved = fault.Join(p.outcome.resolved, s.gated, p.decision.refused)
	rendered, err := s.render(p.decision)
	p.decision, p.outcome.spec = rendered.decision, rendered.spec
	p.outcome.resolved = joinAll(rendered.refused, p.outcome.resolved)
	p.outcome.notes = append(p.outcome.notes, rendered.Notes...)
	if dropped := strings.Join(rendered.Dropped, "; "); dropped != "" {
		p.outcome.notes = append(p.outcome.notes, "settings that the VDOConfig does not have are not kept: "+dropped)
	}
	if err != nil {
		return err
	}
	tried, err := p.dryRun(ctx, rendered)
	if err != nil {
		p.outcome.broken = err
		return err
	}
	drawn := s.plan(tried)
	p.outcome.plan = &drawn
	unrepaired := s.unrepaired(rendered.decision)
	p.planCandidate(ctx)
	if stopped(&p.config.Spec) {
		p.outcome.drift = p.config.Status.Drift
		return fault.Join(unrepaired, drawn.Conflicts())
	}
	return fault.Join(unrepaired, p.apply(ctx, tried))
}

func (p *pass) changed(ctx context.Context, s plan.Step, note string) {
	p.outcome.changed++
	p.outcome.did = append(p.outcome.did, s)
	log.FromContext(ctx).Info("changed", "object", s.Key.String(), "action", s.Action, "driver", s.Driver,
		"release", s.Release, "cause", s.Cause, "reason", s.Reason)
	if note != "" {
		p.emit(corev1.EventTypeNormal, eventReason(s), "Apply", note)
	}
}

func (p *pass) emit(kind, reason, action, note string) {
	p.Recorder.Eventf(p.config, nil, kind, reason, action, "%s", condition.Cut(note, condition.MaxNote))
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
