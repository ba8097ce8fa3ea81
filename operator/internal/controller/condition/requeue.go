package condition

import (
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// minBackoff is the shortest wait after a fault that can pass.
const minBackoff = 5 * time.Second

// jitter is the share of an interval by which it varies, so that resources made
// together do not ask together for ever.
const jitter = 0.1

// Requeue returns when to look again after a pass that set conds: after the
// interval where it is Ready or Stalled (a change of what it depends on comes
// sooner, as an event), and with a growing wait, at most the interval, while it is
// Reconciling. The wait grows with the time that this has lasted, which the
// condition knows: nothing is kept in memory, and a restart forgets nothing.
//
// A pass returns Requeue's result and no error: a fault that is in the status has
// been told, and is not told again in the log at each retry.
func Requeue(conds []metav1.Condition, interval time.Duration, now time.Time) reconcile.Result {
	return reconcile.Result{RequeueAfter: spread(Wait(conds, interval, now), rand.Float64())} //nolint:gosec // jitter is no secret
}

// Wait is the time that [Requeue] waits, before it is spread.
func Wait(conds []metav1.Condition, interval time.Duration, now time.Time) time.Duration {
	since := Since(conds, v1alpha1.ConditionReconciling)
	if since.IsZero() {
		return interval
	}
	return min(max(now.Sub(since), minBackoff), interval)
}

// spread moves d by up to the jitter, at for r in [0,1).
func spread(d time.Duration, r float64) time.Duration {
	return time.Duration(float64(d) * (1 - jitter + 2*jitter*r))
}
