package driverbundle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
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
)

// Keys of the predecessor's matrix ConfigMap.
const (
	keyURL         = "versionConfigURL"     // oci://HOST/PATH:TAG
	keyContent     = "versionConfigContent" // JSON, which is imported elsewhere
	keyAutoUpgrade = "auto-upgrade"         // enabled or disabled
)

// annotationMessage on the ConfigMap says what keeps it from being in effect; it is
// absent where it is.
const annotationMessage = "vdo.vmware.com/message"

// legacyNames in order of precedence, where both are there.
var legacyNames = []string{v1alpha1.LegacyMatrixName, v1alpha1.LegacyMatrixOtherName}

// legacy turns the predecessor's matrix ConfigMap into the DriverBundle that it
// stands for: its reference is the URL's, its annotation vdo.vmware.com/upgrade is
// Manual where auto-upgrade is disabled. Other fields of the DriverBundle are the
// user's. A ConfigMap that cannot be honoured (a URL of another kind, a matrix as
// JSON) gets an event and an annotation that say what to do, and changes nothing:
// what was accepted goes on serving. When the ConfigMap goes, its DriverBundle does.
type legacy struct {
	reader   client.Reader // past the cache
	client   client.Client
	recorder condition.Recorder
}

func setupLegacy(mgr manager.Manager, recorder condition.Recorder) error {
	r := &legacy{reader: mgr.GetAPIReader(), client: mgr.GetClient(), recorder: recorder}
	toOne := func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: v1alpha1.LegacyMatrixName}}}
	}
	named := predicate.NewPredicateFuncs(func(o client.Object) bool { return slices.Contains(legacyNames, o.GetName()) })
	own := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == v1alpha1.LegacyMatrixName })
	return builder.ControllerManagedBy(mgr).
		Named("matrix-configmap").
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(toOne), builder.WithPredicates(named)).
		Watches(&v1alpha1.DriverBundle{}, handler.EnqueueRequestsFromMapFunc(toOne), builder.WithPredicates(own, predicate.GenerationChangedPredicate{})).
		Complete(r)
}

// Reconcile is one pass over a namespace's matrix ConfigMaps.
func (r *legacy) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	maps, err := r.observe(ctx, req.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(maps) == 0 {
		return reconcile.Result{}, r.remove(ctx, req.NamespacedName)
	}
	for _, other := range maps[1:] {
		if err := r.tell(ctx, &other, shadowed(other.Name)); err != nil {
			return reconcile.Result{}, err
		}
	}
	want, problem := wish(maps[0].Data)
	if problem == nil {
		problem, err = r.apply(ctx, &maps[0], want)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.tell(ctx, &maps[0], problem)
}

// observe reads the ConfigMaps that are there, in order of precedence.
func (r *legacy) observe(ctx context.Context, namespace string) ([]corev1.ConfigMap, error) {
	var out []corev1.ConfigMap
	for _, name := range legacyNames {
		var c corev1.ConfigMap
		switch err := r.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &c); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, err
		}
		if c.DeletionTimestamp.IsZero() {
			out = append(out, c)
		}
	}
	return out, nil
}

func shadowed(name string) error {
	return &fault.Error{
		Reason: fault.Conflict, Op: "read", Subject: "ConfigMap " + name,
		Err:  fmt.Errorf("the ConfigMap %s is there too, and comes first", v1alpha1.LegacyMatrixName),
		Hint: "delete one of the two",
	}
}

// wanted is what a matrix ConfigMap asks for.
type wanted struct {
	reference string
	upgrade   v1alpha1.UpgradeMode // "" where it does not say
}

// wish reads a matrix ConfigMap.
func wish(data map[string]string) (wanted, error) {
	var w wanted
	bad := func(key string, hint string, why string) (wanted, error) {
		return wanted{}, &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: key, Hint: hint, Err: errors.New(why)}
	}
	const make = "on a connected host make a bundle (`vdo-bundle matrix import FILE`, `vdo-bundle pull --matrix FILE`), push it to the site's registry, and set " +
		keyURL + ": oci://HOST/PATH:TAG"
	url := strings.TrimSpace(data[keyURL])
	reference, isOCI := strings.CutPrefix(url, "oci://")
	switch {
	case url == "" && strings.TrimSpace(data[keyContent]) != "":
		return bad(keyContent, make, "a matrix without its drivers cannot be installed from")
	case url == "":
		return bad(keyURL, make, "it is not there")
	case !isOCI:
		return bad(keyURL, make, fmt.Sprintf("%.200q is no oci:// reference, and nothing is downloaded from elsewhere", url))
	}
	ref, err := image.ParseReference(reference)
	if err != nil {
		return wanted{}, &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: keyURL, Hint: fault.HintOf(err), Err: err}
	}
	w.reference = ref.String()
	switch auto := strings.ToLower(strings.TrimSpace(data[keyAutoUpgrade])); auto {
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
func (r *legacy) apply(ctx context.Context, c *corev1.ConfigMap, w wanted) (problem, err error) {
	b := &v1alpha1.DriverBundle{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: v1alpha1.LegacyMatrixName}}
	err = r.client.Get(ctx, client.ObjectKeyFromObject(b), b)
	if err == nil && !ours(b) {
		return &fault.Error{
			Reason: fault.Conflict, Op: "make", Subject: "DriverBundle " + b.Name,
			Err:  errors.New("there is one that does not belong to this ConfigMap"),
			Hint: "delete one of the two",
		}, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	_, err = controllerutil.CreateOrPatch(ctx, r.client, b, func() error {
		w.put(b, c)
		return nil
	})
	if apierrors.IsInvalid(err) {
		return &fault.Error{Reason: fault.InvalidInput, Op: "make", Subject: "DriverBundle " + b.Name, Err: err, Hint: "correct " + keyURL}, nil
	}
	return nil, err
}

// put puts what is wanted into a DriverBundle.
func (w wanted) put(b *v1alpha1.DriverBundle, c *corev1.ConfigMap) {
	b.Spec.Reference = w.reference
	b.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "ConfigMap", Name: c.Name, UID: c.UID, Controller: ptr.To(true),
	}}
	if w.upgrade == "" {
		delete(b.Annotations, v1alpha1.AnnotationUpgrade)
		return
	}
	if b.Annotations == nil {
		b.Annotations = map[string]string{}
	}
	b.Annotations[v1alpha1.AnnotationUpgrade] = string(w.upgrade)
}

// ours reports whether a DriverBundle was made for a matrix ConfigMap.
func ours(b *v1alpha1.DriverBundle) bool {
	owner := metav1.GetControllerOf(b)
	return owner != nil && owner.Kind == "ConfigMap" && slices.Contains(legacyNames, owner.Name)
}

// remove deletes the DriverBundle of a ConfigMap that is gone, where the garbage
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

// tell puts a problem into the ConfigMap's annotation, or takes it away, with an
// event when it changes.
func (r *legacy) tell(ctx context.Context, c *corev1.ConfigMap, problem error) error {
	text := fault.Text(problem)
	if c.Annotations[annotationMessage] == text {
		return nil
	}
	after := c.DeepCopy()
	if text == "" {
		delete(after.Annotations, annotationMessage)
	} else {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, annotationMessage, text)
	}
	if err := r.client.Patch(ctx, after, client.MergeFrom(c)); err != nil {
		return client.IgnoreNotFound(err)
	}
	if text == "" {
		r.recorder.Eventf(c, nil, corev1.EventTypeNormal, condition.ReasonSucceeded, "Reconcile", "DriverBundle %s follows this ConfigMap", v1alpha1.LegacyMatrixName)
		return nil
	}
	r.recorder.Eventf(c, nil, corev1.EventTypeWarning, string(fault.ReasonOf(problem)), "Reconcile", "%s", text)
	return nil
}
