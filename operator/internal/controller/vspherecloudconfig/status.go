package vspherecloudconfig

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// The words of status.config, as the earlier operator had them.
const (
	configVerified = "verified"
	configFailed   = "failed"
)

// maxListed is how many datacenters are listed; Ready counts all of them.
const maxListed = 100

// begin notes what the vCenter is about to be asked with. It always changes the status, so
// that to write it is refused wherever the state is not the newest: an answer takes the
// question away, and one without an answer is left alone for longer than a second.
func begin(vcc *v1alpha1.VsphereCloudConfig, version string, now time.Time) {
	vcc.Status.AskedWith = askedWith(vcc, version)
	vcc.Status.AskedAt = &metav1.Time{Time: now.Truncate(time.Second)}
}

// askedWith identifies a question: the spec, and the Secret and CA.
func askedWith(vcc *v1alpha1.VsphereCloudConfig, version string) string {
	return fmt.Sprintf("%d %s", vcc.Generation, version)
}

// answer is what came of asking: the outcome of a pass.
type answer struct {
	version   string // of the Secret and the CA that it was asked with
	requested string // the pass that was requested; one asked for since is still to come
	user      string // that it was asked with
	found     vcenter.Report
	err       error
	at        time.Time
	wait      time.Duration // until a login that is delayed; 0 where it is not
}

// Next is at the interval, or later after a password was refused.
func (a answer) Next(vcc *v1alpha1.VsphereCloudConfig) reconciler.Next {
	return reconciler.Next{Interval: pause(vcc), AtMost: a.wait}
}

// Record puts the answer into the status.
func (a answer) Record(vcc *v1alpha1.VsphereCloudConfig) {
	st := &vcc.Status
	if st.ObservedGeneration != vcc.Generation {
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
		st.Config, st.VerifiedCredentials = configVerified, a.version
		st.InstanceUUID = cmp.Or(a.found.InstanceUUID, st.InstanceUUID) // of one that let the account in
	case condition.Passing(a.err): // a vCenter that is away for a moment refuses nothing
		st.Config = configFailed
	default:
		st.Config, st.VerifiedCredentials = configFailed, ""
	}
	report := a.conditions(&vcc.Spec)
	report.Set(&st.Conditions, vcc.Generation, a.at)
	if st.Message = report.Phase.Message; a.err != nil {
		st.Message = condition.False(v1alpha1.ConditionReady, a.err).Message // as the earlier operator had it: without a grace
	}
}

// conditions says what an answer means.
func (a answer) conditions(spec *v1alpha1.VsphereCloudConfigSpec) condition.Report {
	if a.err != nil {
		return condition.Report{Phase: condition.Phase{State: condition.StateFault, Err: a.err}}
	}
	text := summary(spec, a.user, a.found)
	return condition.Report{Phase: condition.Phase{State: condition.StateReady, Message: text}}
}

// forget drops what was found at a vCenter, but for which one it is.
func forget(st *v1alpha1.VsphereCloudConfigStatus) {
	st.Version, st.Build, st.APIVersion = "", "", ""
	st.Thumbprint, st.User, st.VerifiedCredentials = "", "", ""
	st.Datacenters, st.MissingDatacenters = nil, nil
}

// remember keeps what is known from before where a check did not get so far: a
// vCenter that is away for a moment still has its version. Of another vCenter, which was
// not accepted, it keeps the instance UUID alone.
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

// summary is what Ready says of a vCenter that can be used.
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

// unasked is the outcome where the vCenter is not asked: what was found stays.
type unasked struct {
	wait   time.Duration // until a pass; 0: until the resource changes
	record func(*v1alpha1.VsphereCloudConfig)
}

// Next is when it is due.
func (u unasked) Next(*v1alpha1.VsphereCloudConfig) reconciler.Next {
	return reconciler.Next{AtMost: u.wait}
}

// Record changes what has to be, most often nothing.
func (u unasked) Record(vcc *v1alpha1.VsphereCloudConfig) {
	if u.record != nil {
		u.record(vcc)
	}
}

// suspend says that nothing is being done.
func suspend(vcc *v1alpha1.VsphereCloudConfig) {
	vcc.Status.ObservedGeneration = vcc.Generation
	report := condition.Report{Suspended: true, Phase: condition.Phase{State: condition.StateSuspended}}
	report.Set(&vcc.Status.Conditions, vcc.Generation, time.Time{})
}
