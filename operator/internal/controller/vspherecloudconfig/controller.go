// Package vspherecloudconfig keeps the status of each VsphereCloudConfig true: can
// its vCenter be used, and what is it?
//
// One pass reads the Secret and the CA, decides whether it is time to
// ask (due.go), has the vCenter asked, and returns the answer, which package reconciler
// has put into the status (status.go). A pass starts when the resource, its Secret or its CA
// change, when the annotation reconcile.vdo.vmware.com/requestedAt changes, and at
// the interval; a change of the status alone starts none. Whatever starts it, a
// vCenter is asked again only where one of these things changed or the interval is
// over, so a restart of the operator, or a Secret that many resources share, asks
// for nothing twice.
//
// A password that the vCenter refused is not tried again for an hour, unless a pass is
// asked for: vCenters lock accounts after a few failed logins. Another account, password
// or address is tried at once. Two records keep this, since either can be lost:
//
//   - The status. That the vCenter is asked, and with what, is written before it is; where
//     that cannot be written, or was not written to the newest state, it is not asked. So it
//     is also where the vCenter let in the same before: it may refuse now what it let in then,
//     and an operator that is killed again and again at that place would repeat the refusal
//     at each start. Where memory has the answer no one is asked, and nothing is written before.
//     What has no answer on record is left alone for a minute. So neither an operator that
//     was killed, nor one that may not write, nor an old cache repeats a login.
//   - The operator's memory, as long as it runs (package logins). Where the answer could not
//     be written, where several resources use one account and password under the same
//     trust, and where the Secret or the resource changed and none of these did, the
//     refusal is the answer, and the vCenter is not asked.
//
// Several vCenters may count an account's failures together. So an account and password
// that one refused is tried at others one at a time, five minutes after the last refusal. Where the
// vCenter was asked with it before, that answer holds until then; else the status says who
// refused it, and when it is tried here. A restart forgets none of it: before anything is
// asked, memory is filled from the statuses of all resources (past.go). The Secret, in the
// version that a refusal names, tells the account, so that no status has to. What was asked
// and has no answer on record gates its account everywhere for that minute.
//
// status.verifiedCredentials names the Secret's (and the CA's) version that the
// vCenter let in. The drivers are configured from that version alone.
package vspherecloudconfig

import (
	"context"
	"slices"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// Check asks a vCenter, and logs in by the target's Turn, as [vcenter.Check] does: it returns a
// fault of one reason for each way to fail, and with it what was found until then. It never leaves
// a session open.
type Check func(ctx context.Context, t vcenter.Target) (vcenter.Report, error)

// Options of the controller. Check is required.
type Options struct {
	Check Check
	// Logins keeps accounts from being locked; default: its own, with no past, see [Past]. It is shared
	// with whoever else in the operator logs in to vCenters.
	Logins *logins.Logins
	Now    func() time.Time // default time.Now
	// Watched has the metadata of ConfigMaps of the operator's namespace, and of Secrets of that and
	// of kube-system; default: the manager's cache.
	Watched cache.Cache
}

// Reconciler is one pass. Its fields are required.
type Reconciler struct {
	Reader client.Reader // of Secrets and ConfigMaps, past the cache: their content is not kept in memory
	Writer condition.Writer
	Options
}

// SetupWithManager adds the controller to a manager. Its cache needs
// VsphereCloudConfigs of the operator's namespace.
func SetupWithManager(mgr manager.Manager, o Options) error {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logins == nil {
		o.Logins = &logins.Logins{}
	}
	r := &Reconciler{
		Reader:  mgr.GetAPIReader(),
		Writer:  condition.Writer{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("vdo-operator")},
		Options: o,
	}
	return reconciler.Mount[*v1alpha1.VsphereCloudConfig]{
		Reconciler: r, Kind: &v1alpha1.VsphereCloudConfig{}, List: &v1alpha1.VsphereCloudConfigList{},
		Watched: o.Watched, Reads: reads,
	}.Add(mgr)
}

// Reconcile is one pass over one resource.
func (r *Reconciler) Reconcile(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig) (reconcile.Result, error) {
	frame := reconciler.Reconciler[*v1alpha1.VsphereCloudConfig]{Controller: r, Writer: r.Writer, Now: r.Now}
	return frame.Reconcile(ctx, vcc)
}

// Pass asks the vCenter, where that is due. The resource's deletion needs nothing.
func (r *Reconciler) Pass(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig) (reconciler.Outcome[*v1alpha1.VsphereCloudConfig], error) {
	if vcc.Spec.Suspend {
		return unasked{record: suspend}, nil
	}
	if err := r.Logins.Recall(ctx, r.Now()); err != nil {
		return nil, err // an account may be locked by what is not known
	}
	in, err := observe(ctx, r.Reader, vcc)
	if wait := due(vcc, in.version, r.Now()); wait > 0 {
		return unasked{wait: wait}, nil
	}
	if err != nil {
		return answer{version: in.version, requested: requested(vcc), err: err, at: r.Now()}, nil //nolint:nilerr // it is the answer
	}
	known := r.Logins.Known(question(vcc, in), r.Now())
	switch {
	case known != nil && known.Wait > 0 && answered(vcc, in.version):
		return unasked{wait: known.Wait}, nil // its last answer holds until then
	case known != nil: // which is no login that could be lost, and needs no note before it
		return remembered(vcc, in, known), nil
	}
	// An operator that is killed before the answer is written, or that cannot write it, or that sees an old
	// state of the resource, does not ask the same again at once.
	before := vcc.DeepCopy()
	begin(vcc, in.version, r.Now())
	if err := r.Writer.Write(ctx, before, vcc); err != nil {
		return nil, err // what cannot be noted is not tried
	}
	return r.ask(ctx, vcc, in)
}

// ask asks the vCenter, one question at a time for each, unless it is known to refuse.
func (r *Reconciler) ask(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig, in inputs) (reconciler.Outcome[*v1alpha1.VsphereCloudConfig], error) {
	q := question(vcc, in)
	known, leave, err := r.Logins.Enter(ctx, q, r.Now)
	if err != nil {
		return nil, err
	}
	defer leave()
	if known != nil {
		return remembered(vcc, in, known), nil
	}
	target := in.target
	target.Turn = func(ctx context.Context, login func() error) (err error) {
		known, err = r.Logins.Login(ctx, q, r.Now, login)
		return err
	}
	a := answer{version: in.version, requested: requested(vcc), user: in.target.Username}
	a.found, a.err = r.Check(ctx, target)
	if known != nil {
		return remembered(vcc, in, known), nil
	}
	a.at = r.Now()
	return a, nil
}

// remembered is the answer that is known without asking.
func remembered(vcc *v1alpha1.VsphereCloudConfig, in inputs, known *logins.Known) answer {
	return answer{version: in.version, requested: requested(vcc), err: known.Err, at: known.At, wait: known.Wait}
}

// question is what a vCenter is asked with, as package logins remembers it.
func question(vcc *v1alpha1.VsphereCloudConfig, in inputs) logins.Question {
	return logins.Question{
		Host: in.target.Host, Port: in.target.Port, Username: in.target.Username, Password: string(in.target.Password),
		Trust: logins.TrustOf(&vcc.Spec, in.target.Trust.CA), Asker: string(vcc.UID), Pass: requested(vcc), Handled: vcc.Status.HandledReconcileAt,
	}
}

// answered says whether the vCenter was asked with what is there now.
func answered(vcc *v1alpha1.VsphereCloudConfig, version string) bool {
	st := &vcc.Status
	return st.CheckedAt != nil && st.ObservedGeneration == vcc.Generation && st.CredentialsVersion == version
}

// requested names the pass that was requested last.
func requested(vcc *v1alpha1.VsphereCloudConfig) string {
	return v1alpha1.Asked(vcc, v1alpha1.AnnotationRequestedAt)
}

// inputs are what a resource refers to.
type inputs struct {
	target  vcenter.Target
	version string // identifies the objects read, whatever is in them
}

// observe reads the Secret and the CA.
func observe(ctx context.Context, c client.Reader, vcc *v1alpha1.VsphereCloudConfig) (inputs, error) {
	read, err := credentials.Read(ctx, c, vcc)
	return inputs{version: read.Version, target: vcenter.TargetOf(vcc, read.Username, read.Password, read.CA)}, err
}

// reads reports whether a resource reads an object of its namespace, or of kube-system.
func reads(v *v1alpha1.VsphereCloudConfig, kind string, o client.Object) bool {
	ca := ptr.Deref(v.Spec.CA, v1alpha1.KeyReference{})
	names := map[string][]string{"Secret": {v.Spec.Credentials, ca.Secret}, "ConfigMap": {ca.ConfigMap}}[kind]
	near := o.GetNamespace() == v.Namespace || o.GetNamespace() == credentials.Fallback
	return near && slices.Contains(names, o.GetName())
}
