// Package driverbundle keeps each DriverBundle true: which bundle does its reference
// name now, is it acceptable, and what is inside?
//
// One pass observes (policies from ConfigMaps and Secrets; the root that the mirror
// has under the reference; its signatures), decides (judge.go, pure), accepts or
// refuses, and returns an outcome, which package reconciler has put into the status
// (status.go). A pass starts when the resource, its
// ConfigMaps or its Secrets change, when the annotation
// reconcile.vdo.vmware.com/requestedAt changes, and at the interval, so that a moved
// tag is seen at the next one. After a fault that can pass it is tried again sooner.
//
// # What the status says
//
// status.digest is the accepted bundle: the one that everything is installed and
// repaired from. Only a bundle that satisfies the trust policy, whose matrix
// satisfies the matrix policy where there is one, is not older than one accepted
// before and is not expired, takes its place; under a matrix of the same serial it has
// not only lower versions than the accepted one either. An older or expired one does
// only where spec.acceptOlder names its digest.
//
//	Ready     True: what the reference names now is the accepted bundle.
//	          False: it could not be looked at, or is refused; reason and message
//	          say why and name the refused digest. The bundle accepted before, if
//	          any, stays in status.digest and goes on serving. It is False too where
//	          a digest was accepted from the copy in the cluster, see below.
//	Verified  is the accepted bundle's signature good under the policy of now? With
//	          none accepted: is that of the one last looked at? It gates installations
//	          and upgrades, and is judged while suspended too. Unknown where the policy
//	          or the accepted bundle's signatures cannot be read. Keys' times are held
//	          against the time of acceptance, so that a key may expire in peace;
//	          a revoked or removed key makes it False.
//	Fresh     is the accepted bundle's matrix neither expired nor older than one
//	          accepted before? False does not stop what runs, nor repairs of it.
//
// The highest serial is kept beside the DriverBundle too, by its name and by its
// repository, so that to delete it does not open the way to older bundles.
//
// A bundle that was accepted is never dropped, whatever becomes of its keys, its
// time or the mirror: what runs on the cluster came from it. Who wants another one
// installed pushes another one.
//
// # Without the mirror
//
// Where the mirror does not give what the reference names, because it cannot be asked or has
// it no more, and the reference is by digest and in the repository of the accepted bundle, the copy
// that is retained for a revision of a VDOConfig is judged in its place (fromcopy.go): its
// signatures under the policies of now, its serial, time and versions as ever, with the same
// consent. The DriverBundle owns what it accepts so, as it owns what comes from the mirror. Ready
// stays False with the mirror's fault, and says so, since nodes pull the images from there. What
// the mirror gives and is refused is not looked for elsewhere.
//
// # The predecessor's matrix ConfigMap
//
// comp-matrix-config or compat-matrix-config with versionConfigURL: oci://…, or a
// CompatibilityConfig with matrixURL: oci://…, means a DriverBundle named
// compat-matrix-config, where VDOConfigs are installed from it; see legacy.go.
package driverbundle

import (
	"context"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
)

// Mirror is a session with the registry of one DriverBundle.
type Mirror interface {
	// Resolve returns the root that the reference names, and its tag.
	Resolve(ctx context.Context) (root ocispec.Descriptor, tag string, err error)
	// Login identifies the login's Secret and its state, or is v1alpha1.NoLogin.
	Login() string
	origin
}

// origin has the signatures and the contents of a root.
type origin interface {
	// Evidence returns all signatures of a root; none is no error.
	Evidence(ctx context.Context, root ocispec.Descriptor) ([]trust.Evidence, error)
	// Contents returns what a root holds, every byte verified.
	Contents(ctx context.Context, root ocispec.Descriptor) (*bundle.Contents, error)
	// Keep copies into the cluster what Evidence and Contents have read.
	Keep(ctx context.Context, root ocispec.Descriptor, contents *bundle.Contents) error
}

// Store has the accepted bundle, also while the mirror is away.
type Store interface {
	Contents(ctx context.Context, b *v1alpha1.DriverBundle) (*bundle.Contents, error)
	// Evidence returns the accepted bundle's signatures, without asking the mirror.
	Evidence(ctx context.Context, b *v1alpha1.DriverBundle) ([]trust.Evidence, error)
	// Own makes the DriverBundle an owner of the accepted bundle's copy, so that it stays
	// whatever becomes of the revisions that it was retained for.
	Own(ctx context.Context, b *v1alpha1.DriverBundle) error
	// HighestSerial returns the highest matrix serial accepted from the DriverBundle's
	// repository, whatever became of the DriverBundle.
	HighestSerial(ctx context.Context, b *v1alpha1.DriverBundle) (int64, error)
	RecordSerial(ctx context.Context, b *v1alpha1.DriverBundle, serial int64) error
	// Forget removes copies of bundles that are not the accepted one.
	Forget(ctx context.Context, b *v1alpha1.DriverBundle) error
}

// Options of the controller. Open and Store are required.
type Options struct {
	// Open starts a session. Errors are faults.
	Open  func(ctx context.Context, b *v1alpha1.DriverBundle) (Mirror, error)
	Store Store
	Now   func() time.Time // default time.Now
	// Timeout is what one pass may take, whatever the mirror does: one that drips is never
	// silent. Default: 5 minutes.
	Timeout time.Duration
	// Floor is what every bundle has to satisfy besides the policy of its DriverBundle,
	// which whoever writes that cannot lower; nil for none. FloorID identifies it.
	Floor   *trust.Policy
	FloorID string
	// Watched has the metadata of ConfigMaps and Secrets; default: the manager's cache.
	Watched cache.Cache
}

// Reconciler is one pass. Its fields are required.
type Reconciler struct {
	Reader client.Reader // of Secrets and ConfigMaps, past the cache
	Writer condition.Writer
	Options
}

const (
	defaultInterval = 10 * time.Minute
	defaultTimeout  = 5 * time.Minute
	// concurrent is how many DriverBundles are looked at at once: one whose mirror drips holds up
	// itself alone.
	concurrent = 4
)

// SetupWithManager adds the controller for DriverBundles to a manager. Its cache needs
// DriverBundles of the operator's namespace.
func SetupWithManager(mgr manager.Manager, o Options) error {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Watched == nil {
		o.Watched = mgr.GetCache()
	}
	r := &Reconciler{
		Reader:  mgr.GetAPIReader(),
		Writer:  condition.Writer{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("vdo-operator")},
		Options: o,
	}
	changed := predicate.ResourceVersionChangedPredicate{}
	watch := func(kind string, k kind) source.Source {
		users := handler.EnqueueRequestsFromMapFunc(users(mgr.GetClient(), k))
		return reconciler.Watch(o.Watched, corev1.SchemeGroupVersion.WithKind(kind), users, changed)
	}
	return builder.ControllerManagedBy(mgr).
		Named("driverbundle").
		For(&v1alpha1.DriverBundle{}, builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WatchesRawSource(watch("Secret", kindSecret)).
		WatchesRawSource(watch("ConfigMap", kindConfigMap)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent}).
		Complete(reconcile.AsReconciler(mgr.GetClient(), r))
}

// Reconcile is one pass over one resource.
func (r *Reconciler) Reconcile(ctx context.Context, b *v1alpha1.DriverBundle) (reconcile.Result, error) {
	frame := reconciler.Reconciler[*v1alpha1.DriverBundle]{Controller: r, Reader: r.Reader, Writer: r.Writer, Now: r.Now}
	return frame.Reconcile(ctx, b)
}

// Pass looks at the accepted bundle and at the mirror. The highest serial is recorded
// beside the DriverBundle before its status names the bundle that has it: where that cannot
// be done it is not accepted. The status only shows it, so that an administrator corrects it in one
// place. A deletion needs nothing: the copies go with their owner.
func (r *Reconciler) Pass(ctx context.Context, b *v1alpha1.DriverBundle) (reconciler.Outcome[*v1alpha1.DriverBundle], error) {
	recorded, unknown := r.Store.HighestSerial(ctx, b)
	known := b.DeepCopy()
	if unknown == nil {
		known.Status.HighestSerial = recorded
		if m := b.Status.Matrix; m != nil {
			known.Status.HighestSerial = max(recorded, m.Serial)
		}
	}
	out := r.look(ctx, known, unknown)
	out.store, out.highest, out.at, out.requested = r.Store, known.Status.HighestSerial, r.Now(), v1alpha1.Asked(b, v1alpha1.AnnotationRequestedAt)
	if err := ctx.Err(); err != nil || b.Spec.Suspend || unknown != nil {
		return out, err
	}
	after := b.DeepCopy()
	out.Record(after)
	if after.Status.HighestSerial > recorded {
		err := r.Store.RecordSerial(ctx, after, after.Status.HighestSerial)
		switch {
		case err != nil && (ctx.Err() != nil || condition.Outdated(err) || fault.ReasonOf(err) == fault.Internal):
			return nil, err
		case err != nil: // a person has to hear of it
			out.accepted, out.fault = nil, fault.Join(out.fault, err)
		}
	}
	return out, nil
}
