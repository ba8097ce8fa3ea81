// Package legacy serves users of the earlier operator. They name the source of drivers in a ConfigMap
// comp-matrix-config or compat-matrix-config with versionConfigURL: oci://…. With its last version they use a
// CompatibilityConfig with matrixURL: oci://….
//
// Either results in a DriverBundle named compat-matrix-config in its namespace. It has the URL's reference, and the
// annotation vdo.vmware.com/upgrade: Manual if auto-upgrade is disabled. Its other fields are the user's. A URL in
// another repository takes effect once the DriverBundle has v1alpha1.AnnotationAcceptRepository. The first of several
// resources counts: ConfigMaps, then CompatibilityConfigs by name. An invalid one (a URL of another kind, a matrix as
// JSON) gets an event and an annotation with the remedy. It changes nothing: the accepted bundle stays. If the resource
// is deleted, its DriverBundle is too.
//
// The earlier operator also read its kinds in all other namespaces. Here only those in the operator's own have an
// effect: otherwise any author of one could run the drivers with their own settings.
package legacy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
)

// Keys of the ConfigMap, and the field of a CompatibilityConfig.
const (
	fieldURL       = "spec.matrixURL"
	keyURL         = "versionConfigURL"     // oci://HOST/PATH:TAG
	keyContent     = "versionConfigContent" // JSON: refused, its hint names `vdo-bundle matrix add`
	keyAutoUpgrade = "auto-upgrade"         // enabled or disabled
)

// names of the ConfigMap, in order of precedence.
var names = []string{v1alpha1.LegacyMatrixName, v1alpha1.LegacyMatrixOtherName}

var (
	configMap     = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	compatibility = v1alpha1.GroupVersion.WithKind("CompatibilityConfig")
)

// Reconciler keeps the DriverBundle of a namespace as its resources say. Its fields are required.
type Reconciler struct {
	Reader   client.Reader // without the cache
	Client   client.Client
	Recorder condition.Recorder
}

// SetupWithManager adds the controller to the manager of VDOConfigs, whose namespace had the ConfigMap. The manager's
// cache needs that namespace's DriverBundles and VDOConfigs; watched needs the metadata of ConfigMaps and
// CompatibilityConfigs.
func SetupWithManager(mgr manager.Manager, watched cache.Cache) error {
	r := &Reconciler{
		Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("vdo-operator"),
	}
	toOne := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		one := types.NamespacedName{Namespace: o.GetNamespace(), Name: v1alpha1.LegacyMatrixName}
		return []reconcile.Request{{NamespacedName: one}}
	})
	named := predicate.NewPredicateFuncs(func(o client.Object) bool { return slices.Contains(names, o.GetName()) })
	return builder.ControllerManagedBy(mgr).
		Named("matrix-configmap").
		WatchesRawSource(reconciler.Watch(watched, configMap, toOne, named)).
		WatchesRawSource(reconciler.Watch(watched, compatibility, toOne)).
		Watches(&v1alpha1.DriverBundle{}, toOne, builder.WithPredicates(
			// another DriverBundle may have been in the way
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&v1alpha1.VDOConfig{}, toOne, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}

// request is a resource that requests a DriverBundle.
type request struct {
	client.Object
	kind     schema.GroupVersionKind
	url      string
	urlField string
	content  string // a matrix as JSON
	auto     string // auto-upgrade
}

// String returns "ConfigMap compat-matrix-config".
func (q request) String() string { return q.kind.Kind + " " + q.GetName() }

// Reconcile creates, changes or deletes the DriverBundle of a namespace.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	requests, err := r.observe(ctx, req.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(requests) == 0 {
		return reconcile.Result{}, r.remove(ctx, req.NamespacedName)
	}
	first := requests[0]
	problem, err := r.apply(ctx, first)
	if err != nil {
		return reconcile.Result{}, err
	}
	errs := []error{r.emit(ctx, first, problem)}
	for _, other := range requests[1:] {
		errs = append(errs, r.emit(ctx, other, fault.Errorf(fault.Conflict, "read", other.String(),
			"delete one of the two", "%s is there too, and comes first", first)))
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// observe reads the resources, in order of precedence.
func (r *Reconciler) observe(ctx context.Context, namespace string) (all []request, err error) {
	for _, name := range names {
		var c corev1.ConfigMap
		err := r.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &c)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil {
			url, content, auto := c.Data[keyURL], c.Data[keyContent], c.Data[keyAutoUpgrade]
			all = append(all, request{&c, configMap, url, keyURL, content, auto})
		}
	}
	const most = 100 // more than one is a conflict
	var list v1alpha1.CompatibilityConfigList
	if err := r.Reader.List(ctx, &list, client.InNamespace(namespace), client.Limit(most)); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.CompatibilityConfig) int { return cmp.Compare(a.Name, b.Name) })
	for i := range list.Items {
		c := &list.Items[i]
		all = append(all, request{Object: c, kind: compatibility, url: c.Spec.MatrixURL, urlField: fieldURL})
	}
	return slices.DeleteFunc(all, func(q request) bool { return !q.GetDeletionTimestamp().IsZero() }), nil
}

// desired is the DriverBundle that a resource requests.
type desired struct {
	image.Reference
	upgrade v1alpha1.UpgradeMode // "" if not set
}

func (q request) parse() (w desired, err error) {
	bad := func(field, hint string, why error) (desired, error) {
		return desired{}, &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: field, Hint: hint, Err: why}
	}
	deliver := "on a connected host make a bundle (`vdo-bundle pull`; with releases of your own `vdo-bundle matrix add`, then `vdo-bundle pull --matrix FILE`), " +
		"push it to the site's registry, and set " + q.urlField +
		": oci://HOST/PATH:TAG, or spec.reference: HOST/PATH:TAG of a DriverBundle"
	url := strings.TrimSpace(q.url)
	reference, isOCI := strings.CutPrefix(url, "oci://")
	switch {
	case url == "" && strings.TrimSpace(q.content) != "":
		return bad(keyContent, deliver, errors.New("a matrix without its drivers cannot be installed from"))
	case url == "":
		return bad(q.urlField, deliver, errors.New("it is not there"))
	case !isOCI:
		return bad(q.urlField, deliver, fmt.Errorf("%.200q is no oci:// reference, and nothing is downloaded from elsewhere", url))
	}
	if w.Reference, err = image.ParseReference(reference); err != nil {
		return bad(q.urlField, fault.HintOf(err), err)
	}
	switch strings.ToLower(strings.TrimSpace(q.auto)) {
	case "":
	case "enabled":
		w.upgrade = v1alpha1.UpgradeAutomatic
	case "disabled":
		w.upgrade = v1alpha1.UpgradeManual
	default:
		return bad(keyAutoUpgrade, "write enabled or disabled", fmt.Errorf("%.100q is neither", q.auto))
	}
	return w, nil
}

// apply creates or changes the DriverBundle. It returns a problem if the DriverBundle cannot be as requested.
func (r *Reconciler) apply(ctx context.Context, q request) (problem, err error) {
	w, problem := q.parse()
	if problem != nil {
		return problem, nil
	}
	b := &v1alpha1.DriverBundle{
		ObjectMeta: metav1.ObjectMeta{Namespace: q.GetNamespace(), Name: v1alpha1.LegacyMatrixName},
	}
	switch err := r.Client.Get(ctx, client.ObjectKeyFromObject(b), b); {
	case apierrors.IsNotFound(err):
		if problem, err := r.beside(ctx, q); problem != nil || err != nil {
			return problem, err
		}
	case err != nil:
		return nil, err
	case !isOurs(b):
		return conflict(b.Name, "delete one of the two", "there is one that does not belong to this "+q.kind.Kind), nil
	}
	_, err = controllerutil.CreateOrPatch(ctx, r.Client, b, func() error {
		problem = w.put(b, q)
		return nil
	})
	if apierrors.IsInvalid(err) {
		return fault.Errorf(fault.InvalidInput, "make", "DriverBundle "+b.Name, "correct "+q.urlField, "%w",
			err), nil
	}
	return problem, err
}

func conflict(name, hint, why string) error {
	f := &fault.Error{Reason: fault.Conflict, Op: "make", Subject: "DriverBundle " + name, Hint: hint}
	f.Err = errors.New(why)
	return f
}

// beside refuses a second DriverBundle unless each VDOConfig names its own.
func (r *Reconciler) beside(ctx context.Context, q request) (problem, err error) {
	namespace := client.InNamespace(q.GetNamespace())
	var all v1alpha1.DriverBundleList
	var configs v1alpha1.VDOConfigList
	if err := errors.Join(r.Client.List(ctx, &all, namespace), r.Client.List(ctx, &configs, namespace)); err != nil {
		return nil, err
	}
	namesNone := func(c v1alpha1.VDOConfig) bool { return c.Spec.Bundle == nil }
	if len(all.Items) == 0 || (len(configs.Items) > 0 && !slices.ContainsFunc(configs.Items, namesNone)) {
		return nil, nil
	}
	hint := "delete this " + q.kind.Kind + ", or name the DriverBundle that is meant in spec.bundle.name of each VDOConfig first"
	why := "DriverBundle " + all.Items[0].Name + " is there already"
	return conflict(v1alpha1.LegacyMatrixName, hint, why), nil
}

// put writes the request into a DriverBundle. It returns a problem for another repository without approval.
func (w desired) put(b *v1alpha1.DriverBundle, q request) error {
	problem := w.unaccepted(b, q)
	if problem == nil {
		b.Spec.Reference = w.String()
	}
	b.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(q, q.kind)}
	b.OwnerReferences[0].BlockOwnerDeletion = nil
	for key, text := range map[string]string{
		v1alpha1.AnnotationUpgrade: string(w.upgrade), v1alpha1.AnnotationMessage: fault.Text(problem),
	} {
		if delete(b.Annotations, key); text != "" {
			metav1.SetMetaDataAnnotation(&b.ObjectMeta, key, text)
		}
	}
	return problem
}

// unaccepted returns why a DriverBundle keeps its reference: a changed URL alone must not change the repository.
func (w desired) unaccepted(b *v1alpha1.DriverBundle, q request) error {
	was, err := image.ParseReference(b.Spec.Reference)
	if err != nil {
		return nil //nolint:nilerr // it has no reference yet
	}
	if is := w.Repository(); is == was.Repository() || is == b.Annotations[v1alpha1.AnnotationAcceptRepository] {
		return nil
	}
	return &fault.Error{
		Reason: fault.Refused, Op: "follow", Subject: q.String(),
		Err: fmt.Errorf("its repository %s is not %s, which the DriverBundle keeps", w.Repository(), was.Repository()),
		Hint: fmt.Sprintf("to accept it: kubectl annotate driverbundle -n %s %s %s=%s --overwrite",
			b.Namespace, b.Name, v1alpha1.AnnotationAcceptRepository, w.Repository()),
	}
}

// isOurs reports whether a DriverBundle was created for such a resource.
func isOurs(b *v1alpha1.DriverBundle) bool {
	owner := metav1.GetControllerOf(b)
	return owner != nil &&
		(owner.Kind == compatibility.Kind || owner.Kind == configMap.Kind && slices.Contains(names, owner.Name))
}

// remove deletes the DriverBundle of a deleted resource, before the garbage collector does.
func (r *Reconciler) remove(ctx context.Context, name types.NamespacedName) error {
	var b v1alpha1.DriverBundle
	if err := r.Client.Get(ctx, name, &b); err != nil || !isOurs(&b) {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(r.Client.Delete(ctx, &b, client.Preconditions{UID: &b.UID}))
}

// emit sets or removes the annotation with a problem of the resource, with an event if it changes.
func (r *Reconciler) emit(ctx context.Context, q request, problem error) error {
	text := fault.Text(problem)
	if q.GetAnnotations()[v1alpha1.AnnotationMessage] == text {
		return nil
	}
	value := &text
	if text == "" {
		value = nil
	}
	annotations := map[string]any{"annotations": map[string]any{v1alpha1.AnnotationMessage: value}}
	patch, err := json.Marshal(map[string]any{"metadata": annotations})
	if err != nil {
		return err
	}
	if err := r.Client.Patch(ctx, q.Object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return client.IgnoreNotFound(err)
	}
	if text == "" {
		r.Recorder.Eventf(q.Object, nil, corev1.EventTypeNormal, condition.ReasonSucceeded, "Reconcile",
			"Configured DriverBundle %s from this %s", v1alpha1.LegacyMatrixName, q.kind.Kind)
		return nil
	}
	r.Recorder.Eventf(q.Object, nil, corev1.EventTypeWarning, string(fault.ReasonOf(problem)), "Reconcile", "%s",
		condition.Cut(text, condition.MaxNote))
	return nil
}
