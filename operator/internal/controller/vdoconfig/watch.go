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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// Sources report changes that start a pass.
type Sources struct {
	Answered        <-chan event.GenericEvent // new answers of the Reconciler's Checks
	Nodes, CSINodes cache.Informer            // changes of at least the judged fields
}

// SetupWithManager adds the controller to a manager. A cache of its own watches the metadata of installed objects, by
// label, in the drivers' namespaces. Secrets are not watched, since listing some requires a right to all. A forbidden
// watch is a fault of each pass, which does not wait for it.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, from Sources) error {
	installed, err := r.Refusals.Cache(mgr, cache.Options{
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{render.LabelManagedBy: render.ManagedBy}),
		DefaultNamespaces:    map[string]cache.Config{render.CPINamespace: {}, render.CSINamespace: {}},
		DefaultTransform:     cache.TransformStripManagedFields(),
	})
	if err != nil {
		return fmt.Errorf("watch what is installed: %w", err)
	}
	all := handler.EnqueueRequestsFromMapFunc(r.all)
	b := ctrl.NewControllerManagedBy(mgr).Named("vdoconfig").
		For(&v1alpha1.VDOConfig{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&v1alpha1.VDOConfig{}, all, builder.WithPredicates(deleted)). // the next one in line becomes active
		Watches(&v1alpha1.DriverBundle{}, all, builder.WithPredicates(bundleChanged)).
		Watches(&v1alpha1.VsphereCloudConfig{}, all, builder.WithPredicates(vcenterChanged)).
		WatchesRawSource(&source.Informer{Informer: from.Nodes, Handler: r.events(), Predicates: []predicate.Predicate{nodeChanged}}).
		WatchesRawSource(&source.Informer{Informer: from.CSINodes, Handler: r.events(), Predicates: []predicate.Predicate{csiNodeChanged}}).
		WatchesRawSource(source.Channel(r.Refusals.Reported(), all)).
		WatchesRawSource(source.Channel(from.Answered, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1})
	for _, kind := range Watched() {
		b = b.WatchesRawSource(reconciler.Watch(installed, kind, r.events()))
	}
	return b.Complete(r)
}

// Watched returns the kinds of installed objects that are watched for drift and progress; the operator needs the right
// to list and watch them.
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

// all requests a pass over every VDOConfig; one of them is active. It runs for each node at the operator's start, and
// only reads names without a copy.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var list v1alpha1.VDOConfigList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the next interval starts one
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

// bundleChanged drops changes that concern the DriverBundle alone, such as the time of its last check.
var bundleChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, ok1 := e.ObjectOld.(*v1alpha1.DriverBundle)
	is, ok2 := e.ObjectNew.(*v1alpha1.DriverBundle)
	return !ok1 || !ok2 || was.Generation != is.Generation || was.Status.Digest != is.Status.Digest ||
		was.Status.VerifiedLogin != is.Status.VerifiedLogin || was.Status.VerifiedPolicy != is.Status.VerifiedPolicy ||
		was.Annotations[v1alpha1.AnnotationUpgrade] != is.Annotations[v1alpha1.AnnotationUpgrade] ||
		!equality.Semantic.DeepEqual(was.Status.Conditions, is.Status.Conditions)
}}

// vcenterChanged passes changes of the check's outcome and of the credentials.
var vcenterChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, ok1 := e.ObjectOld.(*v1alpha1.VsphereCloudConfig)
	is, ok2 := e.ObjectNew.(*v1alpha1.VsphereCloudConfig)
	return !ok1 || !ok2 || was.Generation != is.Generation || was.Status.VerifiedCredentials != is.Status.VerifiedCredentials ||
		was.Status.Version != is.Status.Version || !equality.Semantic.DeepEqual(was.Status.Conditions, is.Status.Conditions)
}}

// settle is how long an event waits for others. Nodes cause hundreds: each joins in some six steps, and each pod
// changes its DaemonSet's status. One pass handles all of them.
const settle = 3 * time.Second

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

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

// nodeChanged drops the heartbeats of nodes. It passes initialisation, labels, cordons, the kubelet's version, and
// readiness.
var nodeChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, ok1 := e.ObjectOld.(*corev1.Node)
	is, ok2 := e.ObjectNew.(*corev1.Node)
	return !ok1 || !ok2 || !equality.Semantic.DeepEqual(was.Spec, is.Spec) ||
		!equality.Semantic.DeepEqual(was.Labels, is.Labels) || assess.Readiness(was).Status != assess.Readiness(is).Status ||
		was.Status.NodeInfo.KubeletVersion != is.Status.NodeInfo.KubeletVersion
}}

// csiNodeChanged drops the changes of other storage drivers: the driver registers on one node after the other, and a
// CSINode without any has no information.
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
