package vdoconfig

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// Options of the controller.
type Options struct {
	// Answered tells that the Reconciler's Checks found out; default: nothing does.
	Answered <-chan event.GenericEvent
	// Nodes and CSINodes tell of their changes; at least those fields that are judged. Required.
	Nodes, CSINodes cache.Informer
	Refusals        *reconciler.Refusals // of what is watched; default: its own
}

// SetupWithManager adds a controller whose client, and by default recorder and clock, are the manager's. What the
// operator installed is watched through a cache of its own, with metadata alone and by its label, in the drivers'
// namespaces, so that no one else's starts a pass or fills the memory. Secrets are not watched, since to list some is
// a right to all: a change of one is seen at the next interval. No pass waits for an informer of another kind than the
// operator's own: what may not be watched is a fault of each pass.
func SetupWithManager(mgr ctrl.Manager, r *Reconciler, o Options) error {
	r.Client, r.Reader, r.refusals = mgr.GetClient(), mgr.GetAPIReader(), o.Refusals
	if r.refusals == nil {
		r.refusals = reconciler.NewRefusals()
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("vdo-operator")
	}
	if r.Now == nil {
		r.Now = time.Now
	}
	installed, err := cache.New(cluster.ForWatches(mgr.GetConfig()), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{render.LabelManagedBy: render.ManagedBy}),
		DefaultNamespaces:    map[string]cache.Config{render.CPINamespace: {}, render.CSINamespace: {}},
		DefaultTransform:     cache.TransformStripManagedFields(),

		DefaultWatchErrorHandler: r.refusals.Handle,
	})
	if err != nil {
		return fmt.Errorf("watch what is installed: %w", err)
	}
	if err := mgr.Add(installed); err != nil {
		return fmt.Errorf("watch what is installed: %w", err)
	}
	all := handler.EnqueueRequestsFromMapFunc(r.all)
	b := ctrl.NewControllerManagedBy(mgr).Named("vdoconfig").
		For(&v1alpha1.VDOConfig{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&v1alpha1.VDOConfig{}, all, builder.WithPredicates(deleted)). // the next one in line comes into force
		Watches(&v1alpha1.DriverBundle{}, all, builder.WithPredicates(bundleChanged)).
		Watches(&v1alpha1.VsphereCloudConfig{}, all, builder.WithPredicates(vcenterChanged)).
		WatchesRawSource(&source.Informer{Informer: o.Nodes, Handler: r.events(), Predicates: []predicate.Predicate{nodeChanged}}).
		WatchesRawSource(&source.Informer{Informer: o.CSINodes, Handler: r.events(), Predicates: []predicate.Predicate{csiNodeChanged}}).
		WatchesRawSource(source.Channel(r.refusals.Reported(), all)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1})
	if o.Answered != nil {
		b = b.WatchesRawSource(source.Channel(o.Answered, &handler.EnqueueRequestForObject{}))
	}
	for _, kind := range Watched() {
		b = b.WatchesRawSource(reconciler.Watch(installed, kind, r.events()))
	}
	return b.Complete(r)
}

// Watched are the kinds of installed objects that are watched for drift and
// progress; the operator needs the right to list and watch them.
func Watched() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Group: "apps", Version: "v1", Kind: "DaemonSet"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Version: "v1", Kind: "ConfigMap"},
		{Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "ServiceAccount"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		{Group: "storage.k8s.io", Version: "v1", Kind: "CSIDriver"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"},
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
	}
}

// all asks for a pass over every VDOConfig: there is one that counts. It is asked about each node
// when the operator starts, and only reads names: nothing is copied.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var list v1alpha1.VDOConfigList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the interval comes round
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

var deleted = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	UpdateFunc:  func(event.UpdateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// bundleChanged drops what concerns the DriverBundle alone, such as when it was looked at.
var bundleChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, ok1 := e.ObjectOld.(*v1alpha1.DriverBundle)
	is, ok2 := e.ObjectNew.(*v1alpha1.DriverBundle)
	return !ok1 || !ok2 || was.Generation != is.Generation || was.Status.Digest != is.Status.Digest ||
		was.Status.VerifiedLogin != is.Status.VerifiedLogin || was.Status.VerifiedPolicy != is.Status.VerifiedPolicy ||
		was.Annotations[v1alpha1.AnnotationUpgrade] != is.Annotations[v1alpha1.AnnotationUpgrade] ||
		!equality.Semantic.DeepEqual(was.Status.Conditions, is.Status.Conditions)
}}

// vcenterChanged lets changes of the check's outcome and of the credentials pass.
var vcenterChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, ok1 := e.ObjectOld.(*v1alpha1.VsphereCloudConfig)
	is, ok2 := e.ObjectNew.(*v1alpha1.VsphereCloudConfig)
	return !ok1 || !ok2 || was.Generation != is.Generation || was.Status.VerifiedCredentials != is.Status.VerifiedCredentials ||
		was.Status.Version != is.Status.Version || !equality.Semantic.DeepEqual(was.Status.Conditions, is.Status.Conditions)
}}

// settle is what an event waits for others. What nodes do comes in hundreds: each joins in some six steps, and with each
// pod of a DaemonSet its status changes. A pass looks at all of it at once.
const settle = 3 * time.Second

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// events asks for a pass over every VDOConfig that takes in what happens until then.
func (r *Reconciler) events() handler.EventHandler {
	add := func(ctx context.Context, q queue) {
		for _, req := range r.all(ctx, nil) {
			q.AddAfter(req, settle)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, _ event.CreateEvent, q queue) { add(ctx, q) },
		UpdateFunc: func(ctx context.Context, _ event.UpdateEvent, q queue) { add(ctx, q) },
		DeleteFunc: func(ctx context.Context, _ event.DeleteEvent, q queue) { add(ctx, q) },
	}
}

// nodeChanged drops the heartbeats of nodes: what counts is initialisation, labels,
// cordons, the kubelet's version, and whether the node is ready.
var nodeChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, ok1 := e.ObjectOld.(*corev1.Node)
	is, ok2 := e.ObjectNew.(*corev1.Node)
	return !ok1 || !ok2 || !equality.Semantic.DeepEqual(was.Spec, is.Spec) ||
		!equality.Semantic.DeepEqual(was.Labels, is.Labels) || assess.Readiness(was).Status != assess.Readiness(is).Status ||
		was.Status.NodeInfo.KubeletVersion != is.Status.NodeInfo.KubeletVersion
}}

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
