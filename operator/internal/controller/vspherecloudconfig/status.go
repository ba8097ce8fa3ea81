package vspherecloudconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// Values of status.config, as the earlier operator wrote them.
const (
	configVerified = "verified"
	configFailed   = "failed"
)

// maxListed is how many datacenters the status lists; the message of Ready counts all.
const maxListed = 100

// begin records the question that the vCenter is about to be asked. It always changes the status, so the API server
// refuses the write to a stale state. An answer clears the question; without one it stays for over a second.
func begin(vcc *v1alpha1.VsphereCloudConfig, version string, now time.Time) {
	vcc.Status.AskedWith = askedWith(vcc, version)
	vcc.Status.AskedAt = &metav1.Time{Time: now.Truncate(time.Second)}
}

// askedWith identifies a question: the spec, and the Secret and CA.
func askedWith(vcc *v1alpha1.VsphereCloudConfig, version string) string {
	return fmt.Sprintf("%d %s", vcc.Generation, version)
}

// answer is the outcome of a check.
type answer struct {
	version   string // of the Secret and the CA that were used
	requested string // the requested reconcile that this answers; a later request is still to come
	user      string // the account that was used
	found     vcenter.Report
	err       error
	at        time.Time
	wait      time.Duration // until a delayed login; 0 if none is delayed
}

// Next returns the interval, or more after a refused password.
func (a answer) Next(vcc *v1alpha1.VsphereCloudConfig) reconciler.Next {
	return reconciler.Next{Interval: pause(vcc), AtMost: a.wait}
}

// Record writes the answer into the status.
func (a answer) Record(vcc *v1alpha1.VsphereCloudConfig) {
	st := &vcc.Status
	if unchecked(vcc) {
		forget(st) // it may be another vCenter
	}
	st.ObservedGeneration = vcc.Generation
	st.CredentialsVersion = a.version
	st.HandledReconcileAt = a.requested
	st.AskedWith = ""
	st.CheckedAt = &metav1.Time{Time: a.at.Truncate(time.Second)}
	remember(vcc, a.found)
	switch {
	case a.err == nil:
		st.Config, st.VerifiedCredentials = configVerified, a.version+credentials.Checked(vcc)
		st.InstanceUUID = cmp.Or(a.found.InstanceUUID, st.InstanceUUID) // of a vCenter that accepted the account
	case condition.Passing(a.err): // a vCenter that is away for a moment refuses nothing
		st.Config = configFailed
	default:
		st.Config, st.VerifiedCredentials = configFailed, ""
	}
	report := a.conditions(&vcc.Spec)
	report.Set(&st.Conditions, vcc.Generation, a.at)
	if st.Message = report.Phase.Message; a.err != nil {
		st.Message = condition.False(v1alpha1.ConditionReady, a.err).Message // no grace, as in the earlier operator
	}
}

// conditions returns the condition that an answer results in.
func (a answer) conditions(spec *v1alpha1.VsphereCloudConfigSpec) condition.Report {
	if a.err != nil {
		return condition.Report{Phase: condition.Phase{State: condition.StateFault, Err: a.err}}
	}
	text := summary(spec, a.user, a.found)
	return condition.Report{Phase: condition.Phase{State: condition.StateReady, Message: text}}
}

// forget clears the facts about a vCenter, except its instance UUID.
func forget(st *v1alpha1.VsphereCloudConfigStatus) {
	st.Version, st.Build, st.APIVersion = "", "", ""
	st.Thumbprint, st.User, st.VerifiedCredentials = "", "", ""
	st.Datacenters, st.MissingDatacenters = nil, nil
}

// remember keeps earlier facts that a failed check did not reach: a vCenter that is away for a moment still has its
// version. From another, unaccepted vCenter it keeps only the instance UUID.
func remember(vcc *v1alpha1.VsphereCloudConfig, f vcenter.Report) {
	st := &vcc.Status
	if uuids := vcc.InstanceUUIDs(); f.InstanceUUID != "" && uuids != nil && !slices.Contains(uuids, f.InstanceUUID) {
		st.UnacceptedInstanceUUID = f.InstanceUUID
		return
	}
	if f.InstanceUUID != "" {
		st.UnacceptedInstanceUUID = ""
	}
	st.Version, st.Build = cmp.Or(f.Version, st.Version), cmp.Or(f.Build, st.Build)
	st.APIVersion, st.User = cmp.Or(f.APIVersion, st.APIVersion), cmp.Or(f.User, st.User)
	st.Thumbprint = cmp.Or(f.Thumbprint, st.Thumbprint)
	if f.Datacenters != nil {
		st.Datacenters, st.MissingDatacenters = f.Datacenters[:min(len(f.Datacenters), maxListed)], f.Missing[:min(len(f.Missing), maxListed)]
	}
}

// summary returns the message of Ready for a usable vCenter.
func summary(spec *v1alpha1.VsphereCloudConfigSpec, user string, f vcenter.Report) string {
	n := len(spec.DatacenterNames())
	which := "asked for"
	if n == 0 {
		n, which = len(f.Datacenters), "seen"
	}
	s := fmt.Sprintf("vCenter %s build %s, datacenters %s: %d", f.Version, f.Build, which, n)
	if user != "" && !render.QualifiedAccount(user) {
		s += "; the storage driver from 3.1 on takes a user name only as NAME@DOMAIN, " +
			"of letters, digits, dots, underscores and hyphens"
	}
	return s
}

// unasked is the outcome without a check: the status keeps its facts.
type unasked struct {
	wait   time.Duration // until the next reconcile; 0: until the resource changes
	record func(*v1alpha1.VsphereCloudConfig)
}

// Next returns the wait until the next reconcile.
func (u unasked) Next(*v1alpha1.VsphereCloudConfig) reconciler.Next {
	return reconciler.Next{AtMost: u.wait}
}

// Record runs the record function, if one is set.
func (u unasked) Record(vcc *v1alpha1.VsphereCloudConfig) {
	if u.record != nil {
		u.record(vcc)
	}
}

// unchecked reports whether the spec has changed since a login was verified in what a check depends on.
func unchecked(vcc *v1alpha1.VsphereCloudConfig) bool {
	st, checked := &vcc.Status, credentials.Checked(vcc)
	return st.ObservedGeneration != vcc.Generation && !strings.HasSuffix(st.VerifiedCredentials, checked)
}

// suspend reports that reconciling is suspended. It forgets that a login was verified if what was checked has changed
// since: no vCenter was asked with this spec.
func suspend(vcc *v1alpha1.VsphereCloudConfig) {
	st, gated := &vcc.Status, ""
	if unchecked(vcc) && st.VerifiedCredentials != "" {
		gated = "spec.suspend is set: the changed spec is not checked"
		st.Config, st.VerifiedCredentials, st.Message = "", "", gated
	}
	st.ObservedGeneration = vcc.Generation
	report := condition.Report{Suspended: true, Phase: condition.Phase{State: condition.StateSuspended, Message: gated}}
	report.Set(&st.Conditions, vcc.Generation, time.Time{})
}

// Past reads earlier logins from the statuses of a namespace. It reads the account from the Secret if that still has
// the version used, so a changed Secret gates no account. It reads no Secret without refusals or lost answers.
func Past(reader client.Reader, namespace string) func(context.Context) ([]logins.Past, error) {
	return func(ctx context.Context) ([]logins.Past, error) {
		var list v1alpha1.VsphereCloudConfigList
		if err := reader.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(list.Items, func(v v1alpha1.VsphereCloudConfig) bool {
			return refused(v.Status.Conditions) || v.Status.AskedWith != ""
		}) {
			return nil, nil
		}
		var all []logins.Past
		var unread error
		for i := range list.Items {
			in, err := credentials.Read(ctx, reader, &list.Items[i])
			switch {
			case condition.Passing(err):
				unread = errors.Join(unread, err)
			case err == nil: // otherwise the current content was never tried
				all = append(all, past(&list.Items[i], in)...)
			}
		}
		return all, unread
	}
}

// past returns the logins that one status records for the current Secret and CA.
func past(vcc *v1alpha1.VsphereCloudConfig, in credentials.Credentials) (all []logins.Past) {
	st, q := &vcc.Status, question(vcc, in)
	q.Pass = st.HandledReconcileAt
	if st.AskedAt != nil && st.AskedWith == askedWith(vcc, in.Version) {
		all = append(all, logins.Past{Question: q, At: st.AskedAt.Time, Err: logins.ErrLost})
	}
	ready := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil, ready.ObservedGeneration != vcc.Generation, st.CheckedAt == nil, st.CredentialsVersion != in.Version: // of another state
	case refused(st.Conditions):
		all = append(all, logins.Past{Question: q, At: st.CheckedAt.Time,
			Err: &fault.Error{Reason: fault.Reason(ready.Reason), Err: errors.New(ready.Message)}})
	case st.Config == configVerified:
		all = append(all, logins.Past{Question: q, At: st.CheckedAt.Time})
	}
	return all
}
