// Package vspherecloudconfig checks the vCenter of each VsphereCloudConfig, and reports in its status whether the
// drivers can use it, and its version.
//
// A reconcile reads the Secret and the CA, and decides whether a check is due. It checks the vCenter, and
// package reconciler writes the answer into the status (status.go). It starts if the resource, its Secret, its CA or
// the annotation reconcile.vdo.vmware.com/requestedAt changes, and at the interval. A Secret in kube-system is not
// watched, but read each minute. A change of the status alone starts none. The vCenter is checked again only if one of
// these changed or the interval is over. So a restart of the operator, or a Secret that many resources share, causes no
// second check.
//
// The operator tries a refused password again only after an hour, or if a reconcile is requested: vCenters lock
// accounts after a few failed logins. It tries another account, password or address at once. Two records keep this,
// since either can be lost:
//
//   - The status. The operator writes what it will ask before it asks, and does not ask if it cannot write that to
//     the newest state. It also does so if the vCenter accepted the same login before: the vCenter may refuse it now,
//     and an operator that is killed there again and again would repeat the refusal at each start. If memory has the
//     answer, it neither asks nor writes. It repeats a question without a recorded answer only after a minute. So
//     neither a killed operator, nor one that may not write, nor a stale cache repeats a login.
//   - The operator's memory, while it runs (package logins). It supplies the refusal if the answer could not be
//     written, if several resources use one account and password under the same trust, or if the Secret or the
//     resource changed but not the account, password, address or trust.
//
// Several vCenters may count an account's failures together. So the operator tries a refused account and password at
// other vCenters one at a time, ten minutes after the last refusal. Until then an earlier answer of that vCenter
// holds; without one, the status names the vCenter that refused and the time of the try. A restart loses nothing:
// before the first check the operator fills memory from the statuses of all resources. It reads the account
// from the Secret if that still has the version of the refusal, so no status has to store it. A question without a
// recorded answer gates its account everywhere for that minute.
//
// status.verifiedCredentials names the version of the Secret and the CA that the vCenter accepted. The drivers are
// configured from that version alone.
package vspherecloudconfig

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// Check checks a vCenter, and logs in through the target's Turn, as [vcenter.Check] does. It returns one fault reason
// for each way to fail, with the findings until then. It never leaves a session open.
type Check func(ctx context.Context, t vcenter.Target) (vcenter.Report, error)

// Reconciler reconciles one resource. Its fields are required.
type Reconciler struct {
	Reader client.Reader // of Secrets and ConfigMaps, past the cache: their content is not kept in memory
	Writer condition.Writer
	Check  Check
	// Logins keeps accounts from being locked. All code of the operator that logs in to vCenters shares it.
	Logins *logins.Logins
	Now    func() time.Time
}

// SetupWithManager adds the controller to a manager, whose cache needs VsphereCloudConfigs of the operator's
// namespace. The other cache has the metadata of its ConfigMaps and Secrets.
func (r *Reconciler) SetupWithManager(mgr manager.Manager, watched cache.Cache) error {
	return reconciler.Mount[*v1alpha1.VsphereCloudConfig]{
		Reconciler: r, Kind: &v1alpha1.VsphereCloudConfig{}, List: &v1alpha1.VsphereCloudConfigList{},
		Watched: watched, Reads: reads,
	}.Add(mgr)
}

// Reconcile reconciles one resource.
func (r *Reconciler) Reconcile(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig) (reconcile.Result, error) {
	frame := reconciler.Reconciler[*v1alpha1.VsphereCloudConfig]{Controller: r, Writer: r.Writer, Now: r.Now}
	return frame.Reconcile(ctx, vcc)
}

// Pass checks the vCenter if that is due. The resource's deletion needs nothing.
func (r *Reconciler) Pass(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig) (reconciler.Outcome[*v1alpha1.VsphereCloudConfig], error) {
	if vcc.Spec.Suspend {
		return unasked{record: suspend}, nil
	}
	if err := r.Logins.Recall(ctx, r.Now()); err != nil {
		return nil, err // an unknown failure may be the one that locks an account
	}
	in, err := credentials.Read(ctx, r.Reader, vcc)
	if wait := due(vcc, in.Version, r.Now()); wait > 0 {
		return unasked{wait: soon(in, wait)}, nil
	}
	if err != nil {
		return answer{version: in.Version, requested: requested(vcc), err: err, at: r.Now(), wait: soon(in, 0)}, nil //nolint:nilerr // it is the answer
	}
	known := r.Logins.Known(question(vcc, in), r.Now())
	switch {
	case known != nil && known.Wait > 0 && answered(vcc, in.Version):
		return unasked{wait: soon(in, known.Wait)}, nil // its last answer holds until then
	case known != nil: // without a login nothing can be lost, so nothing is written before
		return remembered(vcc, in, known), nil
	}
	// This record keeps an operator that was killed, could not write the answer, or read a stale resource from asking
	// the same again at once.
	before := vcc.DeepCopy()
	begin(vcc, in.Version, r.Now())
	if err := r.Writer.Write(ctx, before, vcc); err != nil {
		return nil, err // without a record there is no try
	}
	return r.ask(ctx, vcc, in)
}

// ask checks the vCenter, one question at a time for each, unless memory has its refusal.
func (r *Reconciler) ask(
	ctx context.Context, vcc *v1alpha1.VsphereCloudConfig, in credentials.Credentials,
) (reconciler.Outcome[*v1alpha1.VsphereCloudConfig], error) {
	q := question(vcc, in)
	known, leave, err := r.Logins.Enter(ctx, q, r.Now)
	if err != nil {
		return nil, err
	}
	defer leave()
	if known != nil {
		return remembered(vcc, in, known), nil
	}
	target := vcenter.TargetOf(vcc, in.Username, in.Password, in.CA)
	target.Turn = func(ctx context.Context, login func() error) (err error) {
		known, err = r.Logins.Login(ctx, q, r.Now, login)
		return err
	}
	a := answer{version: in.Version, requested: requested(vcc), user: in.Username, wait: soon(in, 0)}
	a.found, a.err = r.Check(ctx, target)
	if known != nil {
		return remembered(vcc, in, known), nil
	}
	a.at = r.Now()
	r.refresh(ctx, vcc)
	return a, nil
}

// refresh lets the answer be written though metadata changed during the check. A lost answer is asked again only after
// a minute.
func (r *Reconciler) refresh(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig) {
	var live v1alpha1.VsphereCloudConfig
	err := r.Reader.Get(ctx, client.ObjectKeyFromObject(vcc), &live)
	if err == nil && live.UID == vcc.UID && live.Generation == vcc.Generation &&
		equality.Semantic.DeepEqual(live.Status, vcc.Status) {
		vcc.ResourceVersion = live.ResourceVersion
	}
}

// remembered returns the answer that memory has.
func remembered(vcc *v1alpha1.VsphereCloudConfig, in credentials.Credentials, known *logins.Known) answer {
	wait := soon(in, known.Wait)
	return answer{version: in.Version, requested: requested(vcc), err: known.Err, at: known.At, wait: wait}
}

// question returns the vCenter, account and trust of a check, as package logins remembers it.
func question(vcc *v1alpha1.VsphereCloudConfig, in credentials.Credentials) logins.Question {
	return logins.Question{
		Host: vcc.Spec.VcIP, Port: int(vcc.Spec.Port), Username: in.Username, Password: in.Password,
		Trust: logins.TrustOf(&vcc.Spec, in.CA), Asker: string(vcc.UID), Pass: requested(vcc), Handled: vcc.Status.HandledReconcileAt,
	}
}

// answered reports whether the vCenter was checked with the current resource, Secret and CA.
func answered(vcc *v1alpha1.VsphereCloudConfig, version string) bool {
	st := &vcc.Status
	return st.CheckedAt != nil && st.ObservedGeneration == vcc.Generation && st.CredentialsVersion == version
}

// requested returns the last requested reconcile.
func requested(vcc *v1alpha1.VsphereCloudConfig) string {
	return v1alpha1.Asked(vcc, v1alpha1.AnnotationRequestedAt)
}

// soon returns the wait, bounded by a minute for a Secret that is not watched.
func soon(in credentials.Credentials, wait time.Duration) time.Duration {
	if !in.Elsewhere {
		return wait
	}
	return min(cmp.Or(wait, time.Minute), time.Minute)
}

// reads reports whether a resource reads an object of its namespace.
func reads(v *v1alpha1.VsphereCloudConfig, kind string, o client.Object) bool {
	ca := ptr.Deref(v.Spec.CA, v1alpha1.KeyReference{})
	names := map[string][]string{"Secret": {v.Spec.Credentials, ca.Secret}, "ConfigMap": {ca.ConfigMap}}[kind]
	return o.GetNamespace() == v.Namespace && slices.Contains(names, o.GetName())
}

// defaultInterval applies if the API server's default was bypassed.
const defaultInterval = 10 * time.Minute

// due returns how long to wait before the next check: 0 if an input changed since the last answer.
func due(vcc *v1alpha1.VsphereCloudConfig, version string, now time.Time) time.Duration {
	st := &vcc.Status
	ready := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady)
	if left := pending(st, askedWith(vcc, version), now); left > 0 {
		return left
	}
	switch {
	case ready == nil, st.CheckedAt == nil,
		st.ObservedGeneration != vcc.Generation,
		st.CredentialsVersion != version,
		st.HandledReconcileAt != requested(vcc),
		st.CheckedAt.After(now): // a clock that was set back
		return 0
	}
	wait := condition.Wait(st.Conditions, pause(vcc), st.CheckedAt.Time)
	if now.Sub(st.CheckedAt.Time) >= time.Duration(logins.Tolerance*float64(wait)) {
		return 0
	}
	return st.CheckedAt.Add(wait).Sub(now)
}

// pending returns how long to wait before a question without a recorded answer is repeated. An answer clears the
// question; times, which are whole seconds, do not show it.
func pending(st *v1alpha1.VsphereCloudConfigStatus, question string, now time.Time) time.Duration {
	if st.AskedAt == nil || st.AskedWith != question || st.AskedAt.After(now) {
		return 0
	}
	return st.AskedAt.Add(logins.Unanswered).Sub(now)
}

// pause returns the longest time between two checks: the interval, or more after a refused password.
func pause(vcc *v1alpha1.VsphereCloudConfig) time.Duration {
	d := vcc.Spec.Interval.Duration
	if d <= 0 {
		d = defaultInterval
	}
	if refused(vcc.Status.Conditions) {
		return max(d, logins.Guard)
	}
	return d
}

// refused reports whether the last login failed because of the password.
func refused(conds []metav1.Condition) bool {
	ready := meta.FindStatusCondition(conds, v1alpha1.ConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return false
	}
	return logins.Refusal(fault.Reason(ready.Reason))
}
