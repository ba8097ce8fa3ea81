package vdoconfig

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// What nodes do comes in hundreds: each joins in some six steps, and with each pod of a
// DaemonSet its status changes. A pass looks at all of it at once, so that those events
// wait for each other, and passes over them take a tenth of the time at the most.

const (
	// settle is what an event about a node waits for others.
	settle = time.Second
	// share is the part of the time that passes over such events may take.
	share = 10
	// mostSettle bounds the wait after a pass that took long.
	mostSettle = 30 * time.Second
)

// pace is how long the last pass took. The zero value is ready.
type pace struct{ last atomic.Int64 }

// timed notes how long a pass takes; call what is returned at its end.
func (p *pace) timed() (done func()) {
	begun := time.Now()
	return func() { p.last.Store(int64(time.Since(begun))) }
}

// wait is how long an event about a node waits for others.
func (p *pace) wait() time.Duration {
	return min(max(settle, share*time.Duration(p.last.Load())), mostSettle)
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// soon asks for a pass over every VDOConfig that takes in what happens until then.
func (r *Reconciler) soon(ctx context.Context, q queue) {
	for _, req := range r.all(ctx, nil) {
		q.AddAfter(req, r.pace.wait())
	}
}

// coalesced handles events about nodes.
func (r *Reconciler) coalesced() handler.EventHandler {
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, _ event.CreateEvent, q queue) { r.soon(ctx, q) },
		UpdateFunc:  func(ctx context.Context, _ event.UpdateEvent, q queue) { r.soon(ctx, q) },
		DeleteFunc:  func(ctx context.Context, _ event.DeleteEvent, q queue) { r.soon(ctx, q) },
		GenericFunc: func(ctx context.Context, _ event.GenericEvent, q queue) { r.soon(ctx, q) },
	}
}

type metadata = *metav1.PartialObjectMetadata

// changedInstalled handles events about what was installed: drift starts a pass at once, and what
// only its status says of nodes is coalesced.
func (r *Reconciler) changedInstalled() handler.EventHandler {
	now := func(ctx context.Context, q queue) {
		for _, req := range r.all(ctx, nil) {
			q.Add(req)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, _ event.CreateEvent, q queue) { now(ctx, q) },
		DeleteFunc: func(ctx context.Context, _ event.DeleteEvent, q queue) { now(ctx, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			was, ok1 := e.ObjectOld.(metadata)
			is, ok2 := e.ObjectNew.(metadata)
			if ok1 && ok2 && statusOnly(was, is) {
				r.soon(ctx, q)
				return
			}
			now(ctx, q)
		},
	}
}

// statusOnly tells whether nothing but the status of an object changed. One that has no
// generation has none.
func statusOnly(was, is metadata) bool {
	a, b := was.ObjectMeta.DeepCopy(), is.ObjectMeta.DeepCopy()
	a.ResourceVersion, b.ResourceVersion = "", ""
	a.ManagedFields, b.ManagedFields = nil, nil
	return a.Generation != 0 && equality.Semantic.DeepEqual(a, b)
}

// nodeChanged drops the heartbeats of nodes: what counts is initialisation, labels,
// cordons, the kubelet's version, and whether the node is ready.
var nodeChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, ok1 := e.ObjectOld.(*corev1.Node)
	is, ok2 := e.ObjectNew.(*corev1.Node)
	return !ok1 || !ok2 || !equality.Semantic.DeepEqual(was.Spec, is.Spec) || !equality.Semantic.DeepEqual(was.Labels, is.Labels) || readiness(was) != readiness(is) ||
		was.Status.NodeInfo.KubeletVersion != is.Status.NodeInfo.KubeletVersion
}}

func readiness(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// csiNodeChanged drops what other storage drivers say: the driver registers on nodes one by
// one, and a CSINode without any says nothing.
var csiNodeChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return len(registered(e.Object)) > 0 },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(registered(e.ObjectOld), registered(e.ObjectNew))
	},
	DeleteFunc: func(e event.DeleteEvent) bool { return len(registered(e.Object)) > 0 },
}

func registered(o client.Object) []storagev1.CSINodeDriver {
	if n, ok := o.(*storagev1.CSINode); ok {
		return n.Spec.Drivers
	}
	return nil
}
