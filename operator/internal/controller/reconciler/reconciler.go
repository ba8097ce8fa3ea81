// Package reconciler is the skeleton of the controllers of the operator's kinds. What
// all of them do is here, once and typed; what one kind adds is its [Controller].
//
//	get            a resource that is gone needs nothing
//	deletion       one that is being deleted is removed by its [Remover], then its finalizer is taken off
//	pass           the controller looks, decides and acts, and returns an [Outcome]
//	status         the outcome is recorded, in one write
//	requeue        the outcome says when to look again at the latest
//
// Nothing is written of a pass that the operator's end cut short: nothing was found out.
//
// Package legacy is not on it, having no resource of its own with a status.
//
// # Conflicts
//
// A write is refused where the resource changed since it was read: the outcome is dropped and a
// pass follows at once, since what it was computed from may be another one. A controller whose
// outcome must not be lost notes before what it does. Such a conflict is no error, and is not
// logged; one that a person has to resolve is (see condition.Outdated).
package reconciler

import (
	"context"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/tracing"
)

// Soon is the wait before a pass that follows at once: a cache has caught up by then.
const Soon = time.Second

// Object is a kind of this operator.
type Object interface{ condition.Object }

// Controller is what one kind adds.
type Controller[T Object] interface {
	// Pass is one pass over a resource that is not being deleted. It leaves in o what
	// the API server has: it changes o only by a write of its own. An error is for what
	// no status can tell, such as that the cluster cannot be listed; faults are outcomes.
	Pass(ctx context.Context, o T) (Outcome[T], error)
}

// Remover is for a kind whose resources leave something behind.
type Remover[T Object] interface {
	// Remove is one pass over a resource that is being deleted and has the finalizer. It
	// ends in [Release] when nothing is left.
	Remove(ctx context.Context, o T) (Outcome[T], error)
}

// Outcome is what a pass found out: a value, which can be recorded in any state of the
// resource that has the same spec.
type Outcome[T Object] interface {
	// Record puts the outcome into the status, and changes nothing else: pure.
	Record(o T)
	// Next says when to look again at the resource that the outcome was recorded in.
	Next(o T) Next
}

// Next is when to look again. The zero value is: when something changes.
type Next struct {
	Interval time.Duration // between passes: see condition.Requeue; 0: there is none
	AtMost   time.Duration // bounds it, exactly; 0: there is no bound
}

// Wait is the outcome of a pass that needs the finalizer on before it changes anything.
// It is put on, which starts the pass that goes on.
type Wait[T Object] struct{}

// Record records nothing.
func (Wait[T]) Record(T) {}

// Next is at once.
func (Wait[T]) Next(T) Next { return Next{AtMost: time.Millisecond} }

// Release is the outcome of a removal that is done: the finalizer is taken off, and an
// event tells the note.
type Release[T Object] struct{ Note string }

// Record records nothing.
func (Release[T]) Record(T) {}

// Next is never.
func (Release[T]) Next(T) Next { return Next{} }

// Reconciler makes passes over one kind.
type Reconciler[T Object] struct {
	Controller Controller[T]
	Writer     condition.Writer
	Now        func() time.Time
	Finalizer  *Finalizer[T] // nil: what was made goes with its owner, or nothing is
}

// Finalizer keeps a resource until what was made for it is removed.
type Finalizer[T Object] struct {
	Name    string
	Client  client.Writer
	Remover Remover[T]
}

// Reconcile is one pass over a resource as a cache has it; [reconcile.AsReconciler] gets it.
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
		return reconcile.Result{RequeueAfter: Soon}, nil // it was seen as it was before
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

// finish makes what a pass ended in true, and returns the resource as it is then.
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

// next is the one rule of when to look again.
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

// finalized is the fault of a write of the finalizer. After a conflict there is another pass,
// soon: the change may have been the status that a pass wrote a moment ago, and such a change
// starts none.
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
