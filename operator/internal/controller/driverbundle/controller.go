// Package driverbundle reconciles DriverBundles: it resolves the reference, decides whether the bundle is
// acceptable, and reports its contents.
//
// A reconcile observes the policies from ConfigMaps and Secrets, the root in the mirror, and its
// signatures. It decides (judge.go, pure), accepts or refuses, and returns an outcome for the status
// (status.go). It runs at the interval, so that it sees a moved tag. It also runs when the resource, its
// ConfigMaps, its Secrets or the annotation reconcile.vdo.vmware.com/requestedAt change. After a
// temporary fault it runs again sooner.
//
// # Status
//
// status.digest is the accepted bundle: everything is installed and repaired from it. Another bundle
// replaces it only if it satisfies the trust policy, and its matrix the matrix policy, if any. It must
// neither be older than one accepted before nor expired, unless spec.acceptOlder has its digest.
//
//	Ready     True: the reference names the accepted bundle.
//	          False: the operator cannot read the bundle, or refuses it; reason and message
//	          say why and name the refused digest. The bundle accepted before, if any, stays
//	          in status.digest and in use. Also False if a digest was accepted from the copy
//	          in the cluster, see below.
//	Verified  True if the accepted bundle's signature satisfies the current policy. Without an
//	          accepted bundle it is absent, or False for one that is not trusted. It gates
//	          installations and upgrades, also while suspended. Unknown if the operator
//	          cannot read the policy or the accepted bundle's signatures. Keys count at the
//	          time of acceptance too, so they may expire; a revoked or removed key makes it
//	          False.
//	Fresh     False if the accepted bundle's matrix is expired or older than one accepted
//	          before. That stops neither running drivers nor their repair.
//
// A Secret stores the highest serial by repository, so that deleting the DriverBundle does not allow older
// bundles.
//
// The operator never drops an accepted bundle, whatever happens to its keys, its time or the mirror: the
// installed drivers came from it. To install another one, push another one.
//
// # Without the mirror
//
// The mirror may be unreachable or lack the bundle. Then the operator judges the copy that it retains for a
// revision of a VDOConfig. The reference must be by digest, in the repository of the accepted bundle. The
// current policies, serial, time and consent apply as ever. Ready stays False with the mirror's fault,
// since nodes pull the images from there. If the operator refuses the mirror's bundle, it tries no copy.
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

// Reconciler reconciles one DriverBundle. Reader, Writer, Store and Now are required.
type Reconciler struct {
	Reader client.Reader // of Secrets and ConfigMaps, without the cache
	Writer condition.Writer
	Store  *store.Store
	Now    func() time.Time
	// Timeout bounds one reconcile, since a slow mirror may never be silent. Default: 5 minutes.
	Timeout time.Duration
	// Floor is the operator's minimum trust policy for every bundle; authors of DriverBundles cannot lower it. It is
	// nil for none. FloorID identifies it.
	Floor   *trust.Policy
	FloorID string
	// Retained returns the bundles, REPOSITORY@DIGEST, whose copies stay in addition to the accepted one. Default:
	// none.
	Retained func(context.Context) ([]string, error)
}

const (
	defaultInterval = 10 * time.Minute
	defaultTimeout  = 5 * time.Minute
)

// SetupWithManager adds the controller to a manager, whose cache needs the DriverBundles of the operator's namespace.
// The other cache has the metadata of its ConfigMaps and Secrets.
func (r *Reconciler) SetupWithManager(mgr manager.Manager, watched cache.Cache) error {
	return reconciler.Mount[*v1alpha1.DriverBundle]{
		Reconciler: r, Kind: &v1alpha1.DriverBundle{}, List: &v1alpha1.DriverBundleList{},
		Watched: watched, Reads: reads,
	}.Add(mgr)
}

// Reconcile reconciles one DriverBundle.
func (r *Reconciler) Reconcile(ctx context.Context, b *v1alpha1.DriverBundle) (reconcile.Result, error) {
	frame := reconciler.Reconciler[*v1alpha1.DriverBundle]{Controller: r, Writer: r.Writer, Now: r.Now}
	return frame.Reconcile(ctx, b)
}

// Pass checks the accepted bundle and the mirror. It accepts a bundle only after it has stored the highest serial in
// a Secret. The status only shows it, so that an administrator corrects one place. After a deletion, a pass over
// another DriverBundle removes unretained copies; without another one they stay.
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
	if out.accepted != nil && out.accepted.root.Digest.String() == b.Status.Digest {
		// copies of earlier bundles; an outdated resource names none that is still accepted
		out.fault = fault.Join(out.fault, r.tidy(ctx, b))
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
		case err != nil: // the administrator must see it
			out.accepted, out.fault = nil, fault.Join(out.fault, err)
		}
	}
	return out, nil
}

// tidy removes copies of bundles that are not retained.
func (r *Reconciler) tidy(ctx context.Context, b *v1alpha1.DriverBundle) error {
	var retained []string
	if r.Retained != nil {
		var err error
		if retained, err = r.Retained(ctx); err != nil {
			return err
		}
	}
	return r.Store.Forget(ctx, b, retained...)
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
