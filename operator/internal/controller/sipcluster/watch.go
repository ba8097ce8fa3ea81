package sipcluster

import (
	"context"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// CacheOptions bound a manager's cache for this controller: the needed fields of BareMetalHosts, and the metadata of
// the operator's Deployments and Services.
func CacheOptions() map[client.Object]cache.ByObject {
	ours := cache.ByObject{
		Namespaces: everywhere, Label: labels.SelectorFromSet(labels.Set{render.LabelManagedBy: render.ManagedBy}),
		Transform: cache.TransformStripManagedFields(),
	}
	return map[client.Object]cache.ByObject{
		&choose.BareMetalHost{}: {Namespaces: everywhere, Transform: cache.TransformStripManagedFields()},
		&airship.SIPCluster{}:   {Namespaces: everywhere},
		&airship.HostAction{}:   {Namespaces: everywhere},
		&appsv1.Deployment{}:    ours,
		&corev1.Service{}:       ours,
	}
}

const (
	// passTimeout bounds a reconcile of one SIPCluster. The operator retries it later, with a longer wait each time.
	passTimeout = 2 * time.Minute
	// grace is how long a host has to be in error before another replaces it: BMCs restart.
	grace = 10 * time.Minute
)

var everywhere = map[string]cache.Config{metav1.NamespaceAll: {}}

// SetupWithManager adds the controllers to a manager, whose cache has [CacheOptions] and DriverBundles. A SIPCluster,
// its hosts, Deployments or Services, and the bundle start a reconcile when they change. So does a host that a
// SIPCluster without enough hosts could take.
func SetupWithManager(mgr manager.Manager, o Options) error {
	r := &Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Hosts: mgr.GetCache(), Options: o,
		Now: time.Now, Grace: grace,
		Writer:  condition.Writer{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("vdo-operator")},
		Cluster: &cluster.Cluster{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Records: inventory.SIPClusters},
	}
	options := controller.Options{MaxConcurrentReconciles: 1, ReconciliationTimeout: passTimeout}
	err := builder.ControllerManagedBy(mgr).
		Named("hostaction").
		For(&airship.HostAction{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(options).
		Complete(reconcile.AsReconciler(mgr.GetClient(), &actions{r}))
	if err != nil {
		return err
	}
	users := users{mgr.GetClient()}
	changed := builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})
	each := handler.EnqueueRequestsFromMapFunc
	return builder.ControllerManagedBy(mgr).
		Named("sipcluster").
		For(&airship.SIPCluster{}, builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&choose.BareMetalHost{}, each(users.ofHost), builder.WithPredicates(hostChanged())).
		WatchesMetadata(&appsv1.Deployment{}, each(ofLabels), changed).
		WatchesMetadata(&corev1.Service{}, each(ofLabels), changed).
		Watches(&v1alpha1.DriverBundle{}, each(users.all), changed).
		WithOptions(options).
		Complete(reconcile.AsReconciler(mgr.GetClient(), r))
}

// hostChanged passes on changes of relevant fields: Metal3 records the time of each check of a host, which would
// start reconciles forever.
func hostChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isBefore := e.ObjectOld.(*choose.BareMetalHost)
		now, isNow := e.ObjectNew.(*choose.BareMetalHost)
		if !isBefore || !isNow {
			return true
		}
		a, b := *before, *now
		a.ResourceVersion, b.ResourceVersion, a.Generation, b.Generation = "", "", 0, 0
		return !reflect.DeepEqual(a, b)
	}}
}

// users finds the SIPClusters that a change concerns.
type users struct{ client.Reader }

// ofHost returns the holder of a host, or for a free one all that could take it, also to replace a failed host.
func (u users) ofHost(ctx context.Context, o client.Object) []reconcile.Request {
	h, ok := o.(*choose.BareMetalHost)
	if !ok {
		return nil
	}
	if by, _ := h.Holder(); by.Namespace != "" && by.Name != "" {
		return []reconcile.Request{{NamespacedName: by}}
	}
	return u.each(ctx, func(s object) bool {
		failed := func(h airship.HostStatus) bool { return h.FailedSince != nil }
		return len(s.Status.Missing) > 0 || slices.ContainsFunc(s.Status.Hosts, failed)
	})
}

func (u users) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return u.each(ctx, func(object) bool { return true })
}

func (u users) each(ctx context.Context, wanted func(object) bool) []reconcile.Request {
	var list airship.SIPClusterList
	if err := u.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "list SIPClusters")
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		if wanted(&list.Items[i]) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}

// ofLabels returns the SIPCluster of an object. In namespaces other than the services', any user may write such
// labels.
func ofLabels(_ context.Context, o client.Object) []reconcile.Request {
	by, _ := choose.HolderByLabels(o.GetLabels())
	if by.Name == "" || o.GetNamespace() != services.Namespace(by) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: by}}
}
