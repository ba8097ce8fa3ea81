// Package reconciler is the skeleton of the controllers of the operator's kinds. It has their common code, once and
// typed; the code of one kind is its [Controller].
//
//	get            a missing resource needs nothing
//	deletion       the [Remover] removes a resource that is being deleted, then its finalizer is removed
//	pass           the controller observes, decides and acts, and returns an [Outcome]
//	status         the outcome is recorded, in one write
//	requeue        the outcome has the latest time of the next pass
//
// If the operator's end cuts a pass short, nothing of it is written: it found out nothing.
//
// Package legacy does not use it, since it has no resource of its own with a status.
//
// # Conflicts
//
// The API server refuses a write if the resource changed since it was read. The outcome is dropped, and a pass follows
// at once, since its inputs may have changed. A controller that must not lose an outcome records it before it acts.
// Such a conflict is no error, and is not logged; one that needs a person is (see condition.Outdated).
package reconciler

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/tracing"
)

// Soon is the wait before an immediate pass: a cache has caught up by then.
const Soon = time.Second

// Object is a kind of this operator.
type Object interface{ condition.Object }

// Controller is the code of one kind.
type Controller[T Object] interface {
	// Pass makes one pass over a resource that is not being deleted. It changes o only by its own writes to the API
	// server. Faults are outcomes; an error is for what no status can report, such as a failed list of the cluster.
	Pass(ctx context.Context, o T) (Outcome[T], error)
}

// Remover is for a kind whose resources leave objects behind.
type Remover[T Object] interface {
	// Remove makes one pass over a resource that is being deleted and has the finalizer. It returns [Release] once
	// nothing is left.
	Remove(ctx context.Context, o T) (Outcome[T], error)
}

// Outcome is the result of a pass: a value, which can be recorded in any state of the resource with the same spec.
type Outcome[T Object] interface {
	// Record writes the outcome into the status, and changes nothing else. It is pure.
	Record(o T)
	// Next returns when to reconcile the resource with the recorded outcome again.
	Next(o T) Next
}

// Next is when to reconcile again. The zero value waits for a change.
type Next struct {
	Interval time.Duration // between passes: see condition.Requeue; 0: none
	AtMost   time.Duration // exact upper bound; 0: none
}

// Wait is the outcome of a pass that needs the finalizer before it changes anything. Its addition starts the next pass.
type Wait[T Object] struct{}

// Record records nothing.
func (Wait[T]) Record(T) {}

// Next returns an immediate pass.
func (Wait[T]) Next(T) Next { return Next{AtMost: time.Millisecond} }

// Release is the outcome of a finished removal: the finalizer is removed, and an event has the note.
type Release[T Object] struct{ Note string }

// Record records nothing.
func (Release[T]) Record(T) {}

// Next returns no further pass.
func (Release[T]) Next(T) Next { return Next{} }

// Reconciler makes passes over one kind.
type Reconciler[T Object] struct {
	Controller Controller[T]
	Writer     condition.Writer
	Now        func() time.Time
	Finalizer  *Finalizer[T] // nil: what was created goes with its owner, or nothing was created
}

// Finalizer keeps a resource until the objects created for it are removed.
type Finalizer[T Object] struct {
	Name    string
	Client  client.Writer
	Remover Remover[T]
}

// Reconcile makes one pass over a resource of the cache; [reconcile.AsReconciler] reads it.
func (r *Reconciler[T]) Reconcile(ctx context.Context, o T) (reconcile.Result, error) {
	ctx, end := tracing.Span(ctx, "pass", "kind", reflect.TypeOf(o).Elem().Name(), "namespace", o.GetNamespace(), "name", o.GetName())
	result, err := r.reconcile(ctx, o)
	end(err)
	return result, err
}

func (r *Reconciler[T]) reconcile(ctx context.Context, o T) (reconcile.Result, error) {
	out, err := r.pass(ctx, o)
	switch {
	case ctx.Err() != nil:
		return reconcile.Result{}, ctx.Err()
	case condition.Outdated(err):
		return reconcile.Result{RequeueAfter: Soon}, nil // the pass read an earlier state
	case err != nil || out == nil:
		return reconcile.Result{}, err
	}
	after, err := r.finish(ctx, o, out)
	switch {
	case condition.Outdated(err):
		return reconcile.Result{RequeueAfter: Soon}, nil
	case err != nil:
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	return r.next(out, after), nil
}

func (r *Reconciler[T]) pass(ctx context.Context, o T) (Outcome[T], error) {
	switch f := r.Finalizer; {
	case o.GetDeletionTimestamp().IsZero():
		return r.Controller.Pass(ctx, o)
	case f != nil && controllerutil.ContainsFinalizer(o, f.Name):
		return f.Remover.Remove(ctx, o)
	}
	return nil, nil
}

// finish writes the outcome of a pass, and returns the resource after it.
func (r *Reconciler[T]) finish(ctx context.Context, o T, out Outcome[T]) (T, error) {
	switch out := out.(type) {
	case Wait[T]:
		return o, r.wait(ctx, o)
	case Release[T]:
		return o, r.release(ctx, o, out.Note)
	}
	after := copyOf(o)
	out.Record(after)
	return after, r.Writer.Write(ctx, o, after)
}

func (r *Reconciler[T]) next(out Outcome[T], o T) reconcile.Result {
	next := out.Next(o)
	var result reconcile.Result
	if next.Interval > 0 {
		result = condition.Requeue(o.GetConditions(), next.Interval, r.Now())
		if left := condition.UntilGraceEnds(o.GetConditions(), r.Now()); left > 0 {
			result.RequeueAfter = min(result.RequeueAfter, left)
		}
	}
	if next.AtMost > 0 && (result.RequeueAfter == 0 || next.AtMost < result.RequeueAfter) {
		result.RequeueAfter = next.AtMost
	}
	return result
}

func (r *Reconciler[T]) wait(ctx context.Context, o T) error {
	gated := copyOf(o)
	controllerutil.AddFinalizer(gated, r.Finalizer.Name)
	return r.finalized("put on", r.patch(ctx, o, gated))
}

func (r *Reconciler[T]) release(ctx context.Context, o T, note string) error {
	released := copyOf(o)
	controllerutil.RemoveFinalizer(released, r.Finalizer.Name)
	if err := r.patch(ctx, o, released); client.IgnoreNotFound(err) != nil {
		return r.finalized("take away", err)
	}
	r.Writer.Recorder.Eventf(released, nil, corev1.EventTypeNormal, "Removed", "Delete", "%s", note)
	return nil
}

// finalized returns the fault of a write of the finalizer. A conflict needs another pass soon: the other change may
// be a status write of an earlier pass, which starts none.
func (r *Reconciler[T]) finalized(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err):
		return &fault.Error{Reason: fault.Conflict, Op: op, Subject: "finalizer " + r.Finalizer.Name, Err: err}
	}
	return fmt.Errorf("%s the finalizer: %w", op, err)
}

func (r *Reconciler[T]) patch(ctx context.Context, before, after T) error {
	return r.Finalizer.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func copyOf[T Object](o T) T {
	return o.DeepCopyObject().(T) //nolint:forcetypeassert,errcheck // a copy is of its own type
}

// Restored ends the program if etcd was restored to an earlier state. Otherwise watches would wait at their version,
// silently, until the API server reaches it again. A restarted program lists first. It runs in each replica, since
// each has caches.
type Restored struct {
	Reader    client.Reader // without a cache
	Namespace string        // of DriverBundles, which the operator may list
	Every     time.Duration
}

// NeedLeaderElection is false.
func (Restored) NeedLeaderElection() bool { return false }

// Start polls the version of a list until ctx is done. The version grows unless etcd was restored.
func (r Restored) Start(ctx context.Context) error {
	last := ""
	err := wait.PollUntilContextCancel(ctx, r.Every, true, func(ctx context.Context) (bool, error) {
		var all v1alpha1.DriverBundleList
		if r.Reader.List(ctx, &all, client.InNamespace(r.Namespace), client.Limit(1)) != nil {
			return false, nil //nolint:nilerr // it answers another time
		}
		order, err := resourceversion.CompareResourceVersion(all.ResourceVersion, last)
		if err == nil && order < 0 {
			return false, &fault.Error{Reason: fault.Interrupted, Op: "watch", Subject: "the cluster",
				Err: errors.New("resource versions went back: etcd was restored"), Hint: "the operator has to start again"}
		}
		last = all.ResourceVersion
		return false, nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it ends
	}
	return err
}

// Mount adds the controller of a kind whose resources read Secrets and ConfigMaps to a manager.
type Mount[T Object] struct {
	Reconciler reconcile.ObjectReconciler[T]
	Kind       T                 // empty
	List       client.ObjectList // empty
	Watched    cache.Cache       // of the metadata of Secrets and ConfigMaps
	// Reads reports whether a resource reads an object, which is of kind Secret or ConfigMap.
	Reads func(o T, kind string, object client.Object) bool
}

// concurrent is how many resources are reconciled at once, so that a slow vCenter or mirror delays only its own.
const concurrent = 4

// Add adds the controller. A pass starts if a resource's spec or annotations change, or an object that it reads.
func (m Mount[T]) Add(mgr manager.Manager) error {
	own := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	c := builder.ControllerManagedBy(mgr).For(m.Kind, builder.WithPredicates(own)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent})
	for _, kind := range []string{"Secret", "ConfigMap"} {
		users := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return m.users(ctx, mgr.GetClient(), kind, o)
		})
		c.WatchesRawSource(Watch(m.Watched, corev1.SchemeGroupVersion.WithKind(kind), users,
			predicate.ResourceVersionChangedPredicate{}))
	}
	return c.Complete(reconcile.AsReconciler(mgr.GetClient(), m.Reconciler))
}

// users returns the resources that read an object. It lists all, since the cache has Secrets of a namespace
// (kube-system) without resources, and a list there is an error.
func (m Mount[T]) users(ctx context.Context, c client.Reader, kind string, object client.Object) (out []reconcile.Request) {
	list := m.List.DeepCopyObject().(client.ObjectList) //nolint:forcetypeassert,errcheck // a copy is of its own type
	if err := c.List(ctx, list); err != nil {
		log.FromContext(ctx).Error(err, "list the resources that read it")
		return nil
	}
	_ = meta.EachListItem(list, func(item runtime.Object) error { //nolint:errcheck // there is none
		if o, isKind := item.(T); isKind && m.Reads(o, kind, object) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
		return nil
	})
	return out
}
