// Package vspherecloudconfig keeps the status of each VsphereCloudConfig true: can
// its vCenter be used, and what is it?
//
// One pass reads the Secret and the CA (observe.go), decides whether it is time to
// ask (due.go), has the vCenter asked, and returns the answer, which package reconciler
// has put into the status (status.go). A pass starts when the resource, its Secret or its CA
// change, when the annotation reconcile.vdo.vmware.com/requestedAt changes, and at
// the interval; a change of the status alone starts none. Whatever starts it, a
// vCenter is asked again only where one of these things changed or the interval is
// over, so a restart of the operator, or a Secret that many resources share, asks
// for nothing twice.
//
// A password that the vCenter refused is not tried again for an hour, unless the
// Secret or the resource change or a pass is asked for: vCenters lock accounts
// after a few failed logins. That the vCenter is asked is written before it is, and
// where that cannot be written it is not asked: whatever becomes of the operator or of
// its right to write, a wrong password is never repeated without a pause.
//
// status.verifiedCredentials names the Secret's (and the CA's) version that the
// vCenter let in. The drivers are configured from that version alone.
package vspherecloudconfig

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
)

// Request is what to ask a vCenter with.
type Request struct {
	Spec     v1alpha1.VsphereCloudConfigSpec
	Username string
	Password Password
	CA       []byte // PEM; nil where spec.ca is not set
}

// Password is a string that does not print.
type Password string

// String hides the password.
func (Password) String() string { return "(hidden)" }

// GoString hides the password.
func (Password) GoString() string { return "(hidden)" }

// Found is what a vCenter answered. Empty fields are not known.
type Found struct {
	Version, APIVersion, Build, InstanceUUID string

	Thumbprint  string // SHA-1 of the certificate accepted
	User        string
	Datacenters []string // nil where they could not be listed
	Missing     []string // of those in the spec
	Warnings    []string // what works here and will not everywhere, each a sentence without its full stop
}

// Checker asks a vCenter. It returns a fault of one reason for each way to fail,
// and with it what was found until then. It never leaves a session open.
type Checker interface {
	Check(ctx context.Context, r Request) (Found, error)
}

// Options of the controller. Checker is required.
type Options struct {
	Checker Checker
	Now     func() time.Time // default time.Now
}

// Reconciler is one pass. Its fields are required.
type Reconciler struct {
	Reader  client.Reader // of Secrets and ConfigMaps, past the cache: their content is not kept in memory
	Writer  condition.Writer
	Checker Checker
	Now     func() time.Time
	lanes   lanes
}

// concurrent is how many vCenters are asked at once.
const concurrent = 4

// SetupWithManager adds the controller to a manager. Its cache needs
// VsphereCloudConfigs and ConfigMaps of the operator's namespace, and Secrets of
// that and of kube-system; of the latter two it keeps the metadata alone.
func SetupWithManager(mgr manager.Manager, o Options) error {
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := addIndex(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	r := &Reconciler{
		Reader:  mgr.GetAPIReader(),
		Writer:  condition.Writer{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("vdo-operator")},
		Checker: o.Checker,
		Now:     o.Now,
	}
	users := users{mgr.GetClient()}
	changed := builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})
	return builder.ControllerManagedBy(mgr).
		Named("vspherecloudconfig").
		For(&v1alpha1.VsphereCloudConfig{}, builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(users.ofSecret), changed).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(users.ofConfigMap), changed).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent}).
		Complete(reconcile.AsReconciler(mgr.GetClient(), r))
}

// Reconcile is one pass over one resource.
func (r *Reconciler) Reconcile(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig) (reconcile.Result, error) {
	frame := reconciler.Reconciler[*v1alpha1.VsphereCloudConfig]{Controller: r, Reader: r.Reader, Writer: r.Writer, Now: r.Now}
	return frame.Reconcile(ctx, vcc)
}

// Pass asks the vCenter, where that is due. The resource's deletion needs nothing.
func (r *Reconciler) Pass(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig) (reconciler.Outcome[*v1alpha1.VsphereCloudConfig], error) {
	if vcc.Spec.Suspend {
		return suspended{}, nil
	}
	in, err := observe(ctx, r.Reader, vcc)
	if wait := due(vcc, in.version, r.Now()); wait > 0 {
		return notDue{wait}, nil
	}
	answer := answer{version: in.version, requested: vcc.Annotations[v1alpha1.AnnotationRequestedAt], err: err}
	if err == nil {
		if err := r.begin(ctx, vcc, in.version); err != nil {
			return nil, err // what cannot be noted is not tried
		}
		answer.found, answer.err = r.check(ctx, in.request)
	}
	answer.at = r.Now()
	return answer, nil
}

// begin notes that the vCenter is about to be asked, and with what. An operator that
// is killed before the answer is written, or that cannot write it, or that sees an
// old state of the resource, does not ask the same again at once.
func (r *Reconciler) begin(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig, version string) error {
	after := vcc.DeepCopy()
	begin(after, version, r.Now())
	if err := r.Writer.Write(ctx, vcc, after); err != nil {
		return err
	}
	*vcc = *after
	return nil
}

// check asks the vCenter, one question at a time for each.
func (r *Reconciler) check(ctx context.Context, q Request) (Found, error) {
	leave, err := r.lanes.enter(ctx, address(q.Spec))
	if err != nil {
		return Found{}, err
	}
	defer leave()
	return r.Checker.Check(ctx, q)
}

func requests(list []v1alpha1.VsphereCloudConfig) []reconcile.Request {
	out := make([]reconcile.Request, len(list))
	for i := range list {
		out[i].NamespacedName = types.NamespacedName{Namespace: list[i].Namespace, Name: list[i].Name}
	}
	return out
}
