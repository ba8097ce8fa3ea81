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
// before and is not expired, takes its place. An older or expired one does only where
// spec.acceptOlder names its digest.
//
//	Ready     True: what the reference names now is the accepted bundle.
//	          False: it could not be looked at, or is refused; reason and message
//	          say why and name the refused digest. The bundle accepted before, if
//	          any, stays in status.digest and goes on serving. It is False too where
//	          a digest was accepted from the copy in the cluster, see below.
//	Verified  is the accepted bundle's signature good under the policy of now? With
//	          none accepted it is absent, or False for one that is not trusted. It gates
//	          installations and upgrades, and is judged while suspended too. Unknown where the policy
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
// that is retained for a revision of a VDOConfig is judged in its place: its
// signatures under the policies of now, its serial and time as ever, with the same
// consent. Ready stays False with the mirror's fault, and says so, since nodes pull the images from there. What
// the mirror gives and is refused is not looked for elsewhere.
package driverbundle

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/store"
)

// Options of the controller. Store is required.
type Options struct {
	Store *store.Store
	Now   func() time.Time // default time.Now
	// Timeout is what one pass may take, whatever the mirror does: one that drips is never
	// silent. Default: 5 minutes.
	Timeout time.Duration
	// Floor is what every bundle has to satisfy besides the policy of its DriverBundle,
	// which whoever writes that cannot lower; nil for none. FloorID identifies it.
	Floor   *trust.Policy
	FloorID string
	// Retained are the bundles, REPOSITORY@DIGEST, of which copies stay beside that of the accepted one;
	// default: none.
	Retained func(context.Context) ([]string, error)
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
)

// SetupWithManager adds the controller for DriverBundles to a manager. Its cache needs
// DriverBundles of the operator's namespace.
func SetupWithManager(mgr manager.Manager, o Options) error {
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Reconciler{
		Reader:  mgr.GetAPIReader(),
		Writer:  condition.Writer{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("vdo-operator")},
		Options: o,
	}
	return reconciler.Mount[*v1alpha1.DriverBundle]{
		Reconciler: r, Kind: &v1alpha1.DriverBundle{}, List: &v1alpha1.DriverBundleList{},
		Watched: o.Watched, Reads: reads,
	}.Add(mgr)
}

// Reconcile is one pass over one resource.
func (r *Reconciler) Reconcile(ctx context.Context, b *v1alpha1.DriverBundle) (reconcile.Result, error) {
	frame := reconciler.Reconciler[*v1alpha1.DriverBundle]{Controller: r, Writer: r.Writer, Now: r.Now}
	return frame.Reconcile(ctx, b)
}

// Pass looks at the accepted bundle and at the mirror. The highest serial is recorded
// beside the DriverBundle before its status names the bundle that has it: where that cannot
// be done it is not accepted. The status only shows it, so that an administrator corrects it in one
// place. A deletion needs nothing: a pass over another DriverBundle removes copies that nothing is retained of.
// Where none is left they stay until another is created, or the namespace goes.
func (r *Reconciler) Pass(ctx context.Context, b *v1alpha1.DriverBundle) (
	reconciler.Outcome[*v1alpha1.DriverBundle], error,
) {
	recorded, unknown := r.Store.HighestSerial(ctx, b)
	known := b.DeepCopy()
	if unknown == nil {
		known.Status.HighestSerial = recorded
		if m := b.Status.Matrix; m != nil && !moved(b) {
			known.Status.HighestSerial = max(recorded, m.Serial)
		}
	}
	out := r.look(ctx, known, unknown)
	switch {
	case out.accepted != nil && out.accepted.root.Digest.String() == b.Status.Digest:
		// copies of bundles before it; an old state of the resource names none that is still accepted
		out.fault = fault.Join(out.fault, r.tidy(ctx, b, r.Store.Forget))
	case out.gated.good(): // suspended, or without the mirror
		out.fault = fault.Join(out.fault, r.tidy(ctx, b, r.Store.Disown))
	}
	out.highest, out.at = known.Status.HighestSerial, r.Now()
	out.requested = v1alpha1.Asked(b, v1alpha1.AnnotationRequestedAt)
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

// tidy sees to the copies, of bundles that something is retained of and others.
func (r *Reconciler) tidy(
	ctx context.Context, b *v1alpha1.DriverBundle, by func(context.Context, *v1alpha1.DriverBundle, ...string) error,
) error {
	var retained []string
	if r.Retained != nil {
		var err error
		if retained, err = r.Retained(ctx); err != nil {
			return err
		}
	}
	return by(ctx, b, retained...)
}

// reads reports whether a DriverBundle reads a ConfigMap or Secret.
func reads(b *v1alpha1.DriverBundle, kind string, o client.Object) bool {
	pull, _ := b.PullSecretName()
	ca, _ := b.CAReference()
	all := append(b.TrustSources(), ca, v1alpha1.KeyReference{Secret: pull})
	return b.Namespace == o.GetNamespace() && slices.ContainsFunc(all, func(ref v1alpha1.KeyReference) bool {
		return kind == "Secret" && ref.Secret == o.GetName() || kind == "ConfigMap" && ref.ConfigMap == o.GetName()
	})
}
