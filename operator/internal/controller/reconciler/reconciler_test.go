package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

type resource = *v1alpha1.VsphereCloudConfig

// controller answers as it is told.
type controller struct {
	pass, remove func(context.Context, resource) (reconciler.Outcome[resource], error)
}

func (c controller) Pass(ctx context.Context, o resource) (reconciler.Outcome[resource], error) {
	return c.pass(ctx, o)
}

func (c controller) Remove(ctx context.Context, o resource) (reconciler.Outcome[resource], error) {
	return c.remove(ctx, o)
}

// found is an outcome with a version in it.
type found struct {
	version string
	next    reconciler.Next
}

func (f found) Record(o resource) {
	o.Status.Version = f.version
	condition.Report{Phase: condition.Phase{State: condition.StateReady, Message: "version " + f.version}}.
		Set(&o.Status.Conditions, o.Generation, time.Now())
}

func (f found) Next(resource) reconciler.Next { return f.next }

const finalizer = "vdo.vmware.com/test"

type world struct {
	t      *testing.T
	api    client.Client
	events *events.FakeRecorder
	r      *reconciler.Reconciler[resource]
	key    client.ObjectKey
}

func start(t *testing.T, c controller, edit func(resource)) *world {
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	o := &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Name: "vc", Namespace: "ns", UID: "u", Generation: 1}}
	if edit != nil {
		edit(o)
	}
	w := &world{t: t, key: client.ObjectKeyFromObject(o), events: events.NewFakeRecorder(10)}
	w.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(o).WithStatusSubresource(o).Build()
	w.r = &reconciler.Reconciler[resource]{
		Controller: c, Writer: condition.Writer{Client: w.api, Recorder: w.events}, Now: time.Now,
		Finalizer: &reconciler.Finalizer[resource]{Name: finalizer, Client: w.api, Remover: c},
	}
	return w
}

func (w *world) reconcile() (reconcile.Result, error) {
	return reconcile.AsReconciler(w.api, w.r).Reconcile(w.t.Context(), reconcile.Request{NamespacedName: w.key})
}

func (w *world) now() resource {
	o := &v1alpha1.VsphereCloudConfig{}
	require.NoError(w.t, w.api.Get(w.t.Context(), w.key, o))
	return o
}

// A write to an older state is refused without a word, and a pass follows: the state that it did not see may be the
// status that the pass before wrote, and nothing else starts one.
func TestAConflictDropsTheOutcomeAndAPassFollows(t *testing.T) {
	annotated := func(o resource) { metav1.SetMetaDataAnnotation(&o.ObjectMeta, "other", "x") }
	for name, c := range map[string]struct {
		edit       func(resource)
		out        reconciler.Outcome[resource]
		finalizers []string // of one that is being deleted
	}{
		"status":         {func(o resource) { o.Status.User = "somebody" }, found{version: "8.0.3"}, nil},
		"annotation":     {annotated, found{version: "8.0.3"}, nil},
		"its finalizer":  {annotated, reconciler.Wait[resource]{}, nil},
		"of the removal": {annotated, reconciler.Release[resource]{Note: "removed"}, []string{finalizer}},
	} {
		t.Run(name, func(t *testing.T) {
			var w *world
			pass := func(context.Context, resource) (reconciler.Outcome[resource], error) {
				o := w.now()
				c.edit(o)
				edited := o.DeepCopy()
				require.NoError(t, w.api.Update(t.Context(), o))
				edited.ResourceVersion = o.ResourceVersion
				require.NoError(t, w.api.Status().Update(t.Context(), edited)) // it is written by itself
				return c.out, nil
			}
			w = start(t, controller{pass, pass}, func(o resource) { o.Finalizers = c.finalizers })
			if c.finalizers != nil {
				require.NoError(t, w.api.Delete(t.Context(), w.now()))
			}
			result := must.Have(w.reconcile())(t)
			require.Equal(t, reconciler.Soon, result.RequeueAfter)
			require.Empty(t, w.now().Status.Version)
			require.Equal(t, c.finalizers, w.now().Finalizers)
			require.Empty(t, w.events.Events)
		})
	}
}

func TestAConflictOfAPassIsAnErrorWhereAPersonHasToResolveIt(t *testing.T) {
	var why error
	w := start(t, controller{pass: func(context.Context, resource) (reconciler.Outcome[resource], error) {
		return nil, &fault.Error{Reason: fault.Conflict, Err: why}
	}}, nil)
	for _, why = range []error{fmt.Errorf("%w: it was removed", fault.ErrOutdated), apierrors.NewConflict(schema.GroupResource{}, "x", nil)} {
		result := must.Have(w.reconcile())(t)
		require.Equal(t, reconciler.Soon, result.RequeueAfter)
	}
	why = errors.New("somebody's finalizer holds it")
	_, err := w.reconcile()
	require.ErrorIs(t, err, why)
}

func TestNothingIsWrittenOfAPassThatWasCutShort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := start(t, controller{pass: func(context.Context, resource) (reconciler.Outcome[resource], error) {
		cancel()
		return found{version: "8.0.3"}, nil
	}}, nil)
	_, err := w.r.Reconcile(ctx, w.now())
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, w.now().Status.Version)
}

func TestTheFinalizerIsOnBeforeThePassThatNeedsIt(t *testing.T) {
	w := start(t, controller{
		pass: func(_ context.Context, o resource) (reconciler.Outcome[resource], error) {
			if len(o.Finalizers) == 0 {
				return reconciler.Wait[resource]{}, nil
			}
			return found{version: "8.0.3"}, nil
		},
		remove: func(_ context.Context, o resource) (reconciler.Outcome[resource], error) {
			if o.Status.Version == "8.0.3" {
				return found{version: "going"}, nil
			}
			return reconciler.Release[resource]{Note: "all is gone"}, nil
		},
	}, nil)
	result := must.Have(w.reconcile())(t)
	require.Equal(t, time.Millisecond, result.RequeueAfter)
	require.Equal(t, []string{finalizer}, w.now().Finalizers)
	require.Empty(t, w.now().Status.Version)
	must.Have(w.reconcile())(t)
	require.Equal(t, "8.0.3", w.now().Status.Version)
	<-w.events.Events

	require.NoError(t, w.api.Delete(t.Context(), w.now()))
	must.Have(w.reconcile())(t)
	require.Equal(t, "going", w.now().Status.Version, "what is left is told in the status")
	<-w.events.Events
	must.Have(w.reconcile())(t)
	require.True(t, apierrors.IsNotFound(w.api.Get(t.Context(), w.key, &v1alpha1.VsphereCloudConfig{})))
	require.Equal(t, "Normal Removed all is gone", <-w.events.Events)
	_, err := w.reconcile()
	require.NoError(t, err, "it is gone")
}

func TestADeletionThatSomebodyElseHoldsNeedsNothing(t *testing.T) {
	w := start(t, controller{}, func(o resource) {
		o.Finalizers, o.DeletionTimestamp = []string{"other/finalizer"}, &metav1.Time{Time: time.Now()}
	})
	result := must.Have(w.reconcile())(t)
	require.Zero(t, result)
}

func TestTheIntervalIsBoundedButNotWhereThereIsNone(t *testing.T) {
	for name, c := range map[string]struct {
		next      reconciler.Next
		low, high time.Duration
	}{
		"none":            {reconciler.Next{}, 0, 0},
		"the interval":    {reconciler.Next{Interval: time.Hour}, time.Hour, 66 * time.Minute},
		"bounded":         {reconciler.Next{Interval: time.Hour, AtMost: time.Minute}, time.Minute, time.Minute},
		"a wider bound":   {reconciler.Next{Interval: time.Hour, AtMost: 2 * time.Hour}, time.Hour, 66 * time.Minute},
		"the bound alone": {reconciler.Next{AtMost: time.Minute}, time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, controller{pass: func(context.Context, resource) (reconciler.Outcome[resource], error) {
				return found{next: c.next}, nil
			}}, nil)
			result := must.Have(w.reconcile())(t)
			require.GreaterOrEqual(t, result.RequeueAfter, c.low)
			require.LessOrEqual(t, result.RequeueAfter, c.high)
		})
	}
}

// Versions that grow, cannot be read or are none say nothing; one that goes back ends the program.
func TestTheProgramEndsWhereEtcdWasRestored(t *testing.T) {
	versions := []string{"9", "10", "10", "", "none", "10", "9", "11"}
	reader := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			list.SetResourceVersion(versions[0])
			versions = versions[1:]
			if list.GetResourceVersion() == "" {
				return errors.New("it does not answer")
			}
			return nil
		}})
	r := reconciler.Restored{Reader: reader, Namespace: "vdo", Every: time.Millisecond}
	require.ErrorContains(t, r.Start(t.Context()), "etcd was restored")
	require.Len(t, versions, 1)

	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, r.Start(stopped))
}
