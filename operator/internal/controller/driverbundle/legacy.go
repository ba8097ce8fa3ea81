package driverbundle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
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

// Keys of the predecessor's matrix ConfigMap, and the field of its CompatibilityConfig.
const (
	fieldURL       = "spec.matrixURL"
	keyURL         = "versionConfigURL"     // oci://HOST/PATH:TAG
	keyContent     = "versionConfigContent" // JSON, which is imported elsewhere
	keyAutoUpgrade = "auto-upgrade"         // enabled or disabled
)

// annotationMessage on either says what keeps it from being in effect; it is
// absent where it is. On the DriverBundle it says why that keeps its reference.
const annotationMessage = "vdo.vmware.com/message"

// legacyNames of the ConfigMap, in order of precedence where both are there.
var legacyNames = []string{v1alpha1.LegacyMatrixName, v1alpha1.LegacyMatrixOtherName}

// legacy turns the predecessor's matrix ConfigMap, or the CompatibilityConfig that its
// last version had instead, into the DriverBundle that it means: its reference is
// the URL's, its annotation vdo.vmware.com/upgrade is Manual where auto-upgrade is
// disabled. Another host or repository needs v1alpha1.AnnotationAcceptRepository on the
// DriverBundle. Other fields of the DriverBundle are the user's. Of several the first counts:
// ConfigMaps, then CompatibilityConfigs by name. One that cannot be honoured (a URL of
// another kind, a matrix as JSON) gets an event and an annotation that say what to do, and
// changes nothing: what was accepted goes on serving. When it goes, its DriverBundle does.
type legacy struct {
	reader   client.Reader // past the cache
	client   client.Client
	recorder condition.Recorder
}

// SetupLegacyWithManager adds the controller for the predecessor's matrix ConfigMap to the
// manager of VDOConfigs, whose namespace had it. Its cache needs DriverBundles and VDOConfigs of that
// namespace, watched the metadata of ConfigMaps and CompatibilityConfigs.
func SetupLegacyWithManager(mgr manager.Manager, watched cache.Cache) error {
	r := &legacy{reader: mgr.GetAPIReader(), client: mgr.GetClient(), recorder: mgr.GetEventRecorder("vdo-operator")}
	toOne := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		one := types.NamespacedName{Namespace: o.GetNamespace(), Name: v1alpha1.LegacyMatrixName}
		return []reconcile.Request{{NamespacedName: one}}
	})
	configMap := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	compatibility := v1alpha1.GroupVersion.WithKind(kindCompatibility)
	named := predicate.NewPredicateFuncs(func(o client.Object) bool { return slices.Contains(legacyNames, o.GetName()) })
	return builder.ControllerManagedBy(mgr).
		Named("matrix-configmap").
		WatchesRawSource(reconciler.Watch(watched, configMap, toOne, named)).
		Watches(&v1alpha1.DriverBundle{}, toOne, builder.WithPredicates(
			// another one may have been in the way
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&v1alpha1.VDOConfig{}, toOne, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(reconciler.Watch(watched, compatibility, toOne)).
		Complete(r)
}

const kindCompatibility = "CompatibilityConfig"

// request is a resource of the predecessor's that asks for a DriverBundle.
type request struct {
	object   client.Object
	kind     string
	url      string
	urlField string
	content  string // a matrix as JSON
	auto     string // auto-upgrade
}

// String returns "ConfigMap compat-matrix-config".
func (q request) String() string { return q.kind + " " + q.object.GetName() }

func fromConfigMap(c *corev1.ConfigMap) request {
	return request{object: c, kind: "ConfigMap", url: c.Data[keyURL], urlField: keyURL, content: c.Data[keyContent], auto: c.Data[keyAutoUpgrade]}
}

func fromCompatibility(c *v1alpha1.CompatibilityConfig) request {
	return request{object: c, kind: kindCompatibility, url: c.Spec.MatrixURL, urlField: fieldURL}
}

// Reconcile is one pass over a namespace's matrix ConfigMaps and CompatibilityConfigs.
func (r *legacy) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	requests, err := r.observe(ctx, req.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(requests) == 0 {
		return reconcile.Result{}, r.remove(ctx, req.NamespacedName)
	}
	first := requests[0]
	for _, other := range requests[1:] {
		if err := r.tell(ctx, other, shadowed(other, first)); err != nil {
			return reconcile.Result{}, err
		}
	}
	want, problem := wish(first)
	if problem == nil {
		problem, err = r.apply(ctx, first, want)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.tell(ctx, first, problem)
}

// observe reads the resources that are there, in order of precedence.
func (r *legacy) observe(ctx context.Context, namespace string) (out []request, err error) {
	for _, name := range legacyNames {
		var c corev1.ConfigMap
		switch err := r.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &c); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, err
		}
		if c.DeletionTimestamp.IsZero() {
			out = append(out, fromConfigMap(&c))
		}
	}
	var list v1alpha1.CompatibilityConfigList
	if err := r.reader.List(ctx, &list, client.InNamespace(namespace), client.Limit(maxCompatibility)); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.CompatibilityConfig) int { return strings.Compare(a.Name, b.Name) })
	for i := range list.Items {
		if c := &list.Items[i]; c.DeletionTimestamp.IsZero() {
			out = append(out, fromCompatibility(c))
		}
	}
	return out, nil
}

// maxCompatibility bounds what is looked at: one counts.
const maxCompatibility = 100

func shadowed(q, first request) error {
	return &fault.Error{
		Reason: fault.Conflict, Op: "read", Subject: q.String(),
		Err:  fmt.Errorf("%s is there too, and comes first", first),
		Hint: "delete one of the two",
	}
}

// wanted is what such a resource asks for.
type wanted struct {
	reference string
	upgrade   v1alpha1.UpgradeMode // "" where it does not say
}

// wish reads what a resource asks for.
func wish(q request) (wanted, error) {
	var w wanted
	bad := func(field string, hint string, why string) (wanted, error) {
		return wanted{}, &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: field, Hint: hint, Err: errors.New(why)}
	}
	make := "on a connected host make a bundle (`vdo-bundle matrix import FILE`, `vdo-bundle pull --matrix FILE`), push it to the site's registry, and set " +
		q.urlField + ": oci://HOST/PATH:TAG, or spec.reference: HOST/PATH:TAG of a DriverBundle"
	url := strings.TrimSpace(q.url)
	reference, isOCI := strings.CutPrefix(url, "oci://")
	switch {
	case url == "" && strings.TrimSpace(q.content) != "":
		return bad(keyContent, make, "a matrix without its drivers cannot be installed from")
	case url == "":
		return bad(q.urlField, make, "it is not there")
	case !isOCI:
		return bad(q.urlField, make, fmt.Sprintf("%.200q is no oci:// reference, and nothing is downloaded from elsewhere", url))
	}
	ref, err := image.ParseReference(reference)
	if err != nil {
		return wanted{}, &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: q.urlField, Hint: fault.HintOf(err), Err: err}
	}
	w.reference = ref.String()
	switch auto := strings.ToLower(strings.TrimSpace(q.auto)); auto {
	case "":
	case "enabled":
		w.upgrade = v1alpha1.UpgradeAutomatic
	case "disabled":
		w.upgrade = v1alpha1.UpgradeManual
	default:
		return bad(keyAutoUpgrade, "write enabled or disabled", fmt.Sprintf("%.100q is neither", auto))
	}
	return w, nil
}

// apply makes or changes the DriverBundle. One that somebody else made is left alone.
func (r *legacy) apply(ctx context.Context, q request, w wanted) (problem, err error) {
	b := &v1alpha1.DriverBundle{ObjectMeta: metav1.ObjectMeta{Namespace: q.object.GetNamespace(), Name: v1alpha1.LegacyMatrixName}}
	err = r.client.Get(ctx, client.ObjectKeyFromObject(b), b)
	if err == nil && !ours(b) {
		return &fault.Error{
			Reason: fault.Conflict, Op: "make", Subject: "DriverBundle " + b.Name,
			Err:  errors.New("there is one that does not belong to this " + q.kind),
			Hint: "delete one of the two",
		}, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err != nil {
		if problem, err := r.beside(ctx, q); problem != nil || err != nil {
			return problem, err
		}
	}
	_, err = controllerutil.CreateOrPatch(ctx, r.client, b, func() error {
		problem = w.put(b, q)
		return nil
	})
	if apierrors.IsInvalid(err) {
		return &fault.Error{Reason: fault.InvalidInput, Op: "make", Subject: "DriverBundle " + b.Name, Err: err, Hint: "correct " + q.urlField}, nil
	}
	return problem, err
}

// beside refuses a second DriverBundle, but where each VDOConfig names the one that it means: one
// that names none would not know.
func (r *legacy) beside(ctx context.Context, q request) (problem, err error) {
	namespace := client.InNamespace(q.object.GetNamespace())
	var all v1alpha1.DriverBundleList
	if err := r.client.List(ctx, &all, namespace); err != nil {
		return nil, err
	}
	var configs v1alpha1.VDOConfigList
	if err := r.client.List(ctx, &configs, namespace); err != nil {
		return nil, err
	}
	if len(all.Items) == 0 || (len(configs.Items) > 0 && !slices.ContainsFunc(configs.Items, namesNone)) {
		return nil, nil
	}
	return &fault.Error{
		Reason: fault.Conflict, Op: "make", Subject: "DriverBundle " + v1alpha1.LegacyMatrixName,
		Err:  fmt.Errorf("DriverBundle %s is there already", all.Items[0].Name),
		Hint: "delete this " + q.kind + ", or name the DriverBundle that is meant in spec.bundle.name of each VDOConfig first",
	}, nil
}

func namesNone(c v1alpha1.VDOConfig) bool { return c.Spec.Bundle == nil }

// put puts what is wanted into a DriverBundle; without consent not another repository, and says so.
func (w wanted) put(b *v1alpha1.DriverBundle, q request) error {
	problem := w.unaccepted(b, q)
	if problem == nil {
		b.Spec.Reference = w.reference
	}
	version := "v1"
	if q.kind == kindCompatibility {
		version = v1alpha1.GroupVersion.String()
	}
	b.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: version, Kind: q.kind, Name: q.object.GetName(), UID: q.object.GetUID(), Controller: ptr.To(true),
	}}
	for key, text := range map[string]string{
		v1alpha1.AnnotationUpgrade: string(w.upgrade), annotationMessage: fault.Text(problem),
	} {
		if delete(b.Annotations, key); text != "" {
			metav1.SetMetaDataAnnotation(&b.ObjectMeta, key, text)
		}
	}
	return problem
}

// unaccepted says why a DriverBundle keeps its reference: a changed URL alone does not move the site
// to another repository.
func (w wanted) unaccepted(b *v1alpha1.DriverBundle, q request) error {
	was, err := image.ParseReference(b.Spec.Reference)
	if err != nil {
		return nil //nolint:nilerr // there is none yet
	}
	is, err := image.ParseReference(w.reference)
	accepted := b.Annotations[v1alpha1.AnnotationAcceptRepository]
	if err != nil || is.Repository() == was.Repository() || is.Repository() == accepted {
		return err
	}
	return &fault.Error{
		Reason: fault.Refused, Op: "follow", Subject: q.String(),
		Err: fmt.Errorf("its repository %s is not %s, which the DriverBundle keeps", is.Repository(), was.Repository()),
		Hint: fmt.Sprintf("to accept it: kubectl annotate driverbundle -n %s %s %s=%s --overwrite",
			b.Namespace, b.Name, v1alpha1.AnnotationAcceptRepository, is.Repository()),
	}
}

// ours reports whether a DriverBundle was made for such a resource.
func ours(b *v1alpha1.DriverBundle) bool {
	owner := metav1.GetControllerOf(b)
	return owner != nil && (owner.Kind == kindCompatibility || (owner.Kind == "ConfigMap" && slices.Contains(legacyNames, owner.Name)))
}

// remove deletes the DriverBundle of a resource that is gone, where the garbage
// collector has not yet.
func (r *legacy) remove(ctx context.Context, name types.NamespacedName) error {
	var b v1alpha1.DriverBundle
	if err := r.client.Get(ctx, name, &b); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !ours(&b) {
		return nil
	}
	return client.IgnoreNotFound(r.client.Delete(ctx, &b, client.Preconditions{UID: &b.UID}))
}

// tell puts a problem into the resource's annotation, or takes it away, with an
// event when it changes.
func (r *legacy) tell(ctx context.Context, q request, problem error) error {
	text := fault.Text(problem)
	was := q.object.GetAnnotations()
	if was[annotationMessage] == text {
		return nil
	}
	after, ok := q.object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%s is no object", q)
	}
	is := maps.Clone(was)
	if is == nil {
		is = map[string]string{}
	}
	if is[annotationMessage] = text; text == "" {
		delete(is, annotationMessage)
	}
	after.SetAnnotations(is)
	if err := r.client.Patch(ctx, after, client.MergeFrom(q.object)); err != nil {
		return client.IgnoreNotFound(err)
	}
	if text == "" {
		r.recorder.Eventf(q.object, nil, corev1.EventTypeNormal, condition.ReasonSucceeded, "Reconcile", "DriverBundle %s follows this %s", v1alpha1.LegacyMatrixName, q.kind)
		return nil
	}
	r.recorder.Eventf(q.object, nil, corev1.EventTypeWarning, string(fault.ReasonOf(problem)), "Reconcile", "%s", condition.Cut(text, condition.MaxNote))
	return nil
}
