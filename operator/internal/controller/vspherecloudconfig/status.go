package vspherecloudconfig

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
)

// The words of status.config, as the earlier operator had them.
const (
	configVerified = "verified"
	configFailed   = "failed"
)

// maxListed is how many datacenters are listed; Ready counts all of them.
const maxListed = 100

// begin notes what the vCenter is about to be asked with.
func begin(vcc *v1alpha1.VsphereCloudConfig, version string, now time.Time) {
	vcc.Status.AskedWith = askedWith(vcc, version)
	vcc.Status.AskedAt = &metav1.Time{Time: now.Truncate(time.Second)}
}

// askedWith identifies a question: the spec, and the Secret and CA.
func askedWith(vcc *v1alpha1.VsphereCloudConfig, version string) string {
	return fmt.Sprintf("%d %s", vcc.Generation, version)
}

// record puts the outcome of a check into the status.
func record(vcc *v1alpha1.VsphereCloudConfig, version string, found Found, err error, now time.Time) {
	st := &vcc.Status
	if st.ObservedGeneration != vcc.Generation {
		forget(st) // it may be another vCenter
	}
	st.ObservedGeneration = vcc.Generation
	st.CredentialsVersion = version
	st.HandledReconcileAt = vcc.Annotations[v1alpha1.AnnotationRequestedAt]
	st.CheckedAt = &metav1.Time{Time: now.Truncate(time.Second)}
	remember(st, found)
	if err != nil {
		st.Config = configFailed
		if !condition.Passing(err) {
			st.VerifiedCredentials = "" // a vCenter that is away for a moment refuses nothing
		}
		condition.Fault(&st.Conditions, vcc.Generation, err)
	} else {
		st.Config = configVerified
		st.VerifiedCredentials = version
		condition.Ready(&st.Conditions, vcc.Generation, summary(vcc, found))
	}
	st.Message = meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady).Message
}

// forget drops what was found at a vCenter.
func forget(st *v1alpha1.VsphereCloudConfigStatus) {
	st.Version, st.Build, st.APIVersion, st.InstanceUUID = "", "", "", ""
	st.Thumbprint, st.User, st.VerifiedCredentials = "", "", ""
	st.Datacenters, st.MissingDatacenters = nil, nil
}

// remember keeps what is known from before where a check did not get so far: a
// vCenter that is away for a moment still has its version.
func remember(st *v1alpha1.VsphereCloudConfigStatus, f Found) {
	for _, v := range []struct {
		to   *string
		from string
	}{
		{&st.Version, f.Version}, {&st.Build, f.Build}, {&st.APIVersion, f.APIVersion},
		{&st.InstanceUUID, f.InstanceUUID}, {&st.Thumbprint, f.Thumbprint}, {&st.User, f.User},
	} {
		if v.from != "" {
			*v.to = v.from
		}
	}
	if f.Datacenters != nil {
		st.Datacenters, st.MissingDatacenters = f.Datacenters[:min(len(f.Datacenters), maxListed)], f.Missing[:min(len(f.Missing), maxListed)]
	}
}

// summary is what Ready says of a vCenter that can be used.
func summary(vcc *v1alpha1.VsphereCloudConfig, f Found) string {
	n := len(vcc.Spec.DatacenterNames())
	which := "asked for"
	if n == 0 {
		n, which = len(f.Datacenters), "seen"
	}
	s := fmt.Sprintf("vCenter %s build %s, datacenters %s: %d", f.Version, f.Build, which, n)
	if len(f.Warnings) > 0 {
		s += "; " + strings.Join(f.Warnings, "; ")
	}
	return s
}

// suspend says that the vCenter is not asked. What was found stays.
func suspend(vcc *v1alpha1.VsphereCloudConfig) {
	vcc.Status.ObservedGeneration = vcc.Generation
	condition.Suspended(&vcc.Status.Conditions, vcc.Generation)
}
