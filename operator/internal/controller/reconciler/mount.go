package reconciler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Mount adds the controller of a kind whose resources read Secrets and ConfigMaps to a manager.
type Mount[T Object] struct {
	Reconciler reconcile.ObjectReconciler[T]
	Kind       T                 // empty
	List       client.ObjectList // empty
	Watched    cache.Cache       // of the metadata of Secrets and ConfigMaps; default: the manager's
	// Reads reports whether a resource reads an object, which is of kind Secret or ConfigMap.
	Reads func(o T, kind string, object client.Object) bool
}

// concurrent is how many resources are reconciled at once, so that a slow vCenter or mirror delays only its own.
const concurrent = 4

// Add adds the controller. A pass starts if a resource's spec or annotations change, or an object that it reads.
func (m Mount[T]) Add(mgr manager.Manager) error {
	if m.Watched == nil {
		m.Watched = mgr.GetCache()
	}
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
