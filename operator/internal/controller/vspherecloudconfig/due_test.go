package vspherecloudconfig

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// checked is a resource whose check at now ended with err.
func checked(now time.Time, err error) *v1alpha1.VsphereCloudConfig {
	v := &v1alpha1.VsphereCloudConfig{}
	v.Generation = 3
	v.Spec.Interval = metav1.Duration{Duration: 10 * time.Minute}
	answer{version: "v1", found: vcenter.Report{Version: "8.0.3"}, err: err, at: now}.Record(v)
	return v
}

// unansweredAt is a resource that a question was noted at, for the Secret's version v1.
func unansweredAt(at time.Time) func(*v1alpha1.VsphereCloudConfig) {
	return func(v *v1alpha1.VsphereCloudConfig) { begin(v, "v1", at) }
}

func TestWhenToAskAgain(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	refusal := &fault.Error{Reason: fault.Unauthorized, Err: errors.New("refused")}
	away := &fault.Error{Reason: fault.Unreachable, Err: errors.New("away")}

	for name, c := range map[string]struct {
		err   error
		edit  func(*v1alpha1.VsphereCloudConfig)
		after time.Duration
		asks  bool
	}{
		"at once":             {after: 0, asks: false},
		"before the interval": {after: 8 * time.Minute, asks: false},
		"at the interval":     {after: 10 * time.Minute, asks: true},
		"shortened by jitter": {after: 9 * time.Minute, asks: true},
		"spec changed":        {edit: func(v *v1alpha1.VsphereCloudConfig) { v.Generation++ }, asks: true},
		"Secret changed":      {edit: func(v *v1alpha1.VsphereCloudConfig) { v.Status.CredentialsVersion = "v0" }, asks: true},
		"asked for": {edit: func(v *v1alpha1.VsphereCloudConfig) {
			metav1.SetMetaDataAnnotation(&v.ObjectMeta, v1alpha1.AnnotationRequestedAt, "x")
		}, asks: true},
		"clock went back":     {after: -time.Minute, asks: true},
		"never checked":       {edit: func(v *v1alpha1.VsphereCloudConfig) { v.Status = v1alpha1.VsphereCloudConfigStatus{} }, asks: true},
		"no interval":         {edit: func(v *v1alpha1.VsphereCloudConfig) { v.Spec.Interval.Duration = 0 }, after: 8 * time.Minute, asks: false},
		"refused":             {err: refusal, after: 50 * time.Minute, asks: false},
		"refused an hour ago": {err: refusal, after: time.Hour, asks: true},
		"refused, new Secret": {err: refusal, edit: func(v *v1alpha1.VsphereCloudConfig) { v.Status.CredentialsVersion = "v0" }, asks: true},
		"refused, asked for": {err: refusal, edit: func(v *v1alpha1.VsphereCloudConfig) {
			metav1.SetMetaDataAnnotation(&v.ObjectMeta, v1alpha1.AnnotationRequestedAt, "x")
		}, asks: true},
		"away":                     {err: away, after: 0, asks: false},
		"away for ten seconds":     {err: away, after: 10 * time.Second, asks: true},
		"asked, no answer written": {edit: unansweredAt(now.Add(time.Minute)), after: 90 * time.Second, asks: false},
		"no answer for a minute":   {edit: unansweredAt(now.Add(time.Minute)), after: 2 * time.Minute, asks: false},
		"new Secret, no answer yet": {edit: func(v *v1alpha1.VsphereCloudConfig) {
			v.Status.CredentialsVersion = "v0"
			unansweredAt(now)(v)
			v.Status.CheckedAt.Time = now.Add(-time.Hour)
		}, after: 59 * time.Second, asks: false},
		"new Secret, no answer for a minute": {edit: func(v *v1alpha1.VsphereCloudConfig) {
			v.Status.CredentialsVersion = "v0"
			unansweredAt(now)(v)
			v.Status.CheckedAt.Time = now.Add(-time.Hour)
		}, after: time.Minute, asks: true},
		"another Secret since the question": {edit: func(v *v1alpha1.VsphereCloudConfig) {
			v.Status.CredentialsVersion = "v0"
			unansweredAt(now)(v)
			v.Status.AskedWith = "3 v0"
		}, asks: true},
	} {
		t.Run(name, func(t *testing.T) {
			v := checked(now, c.err)
			if c.edit != nil {
				c.edit(v)
			}
			wait := due(v, "v1", now.Add(c.after))
			require.Equal(t, c.asks, wait == 0, "wait %s", wait)
			require.LessOrEqual(t, wait, time.Hour)
		})
	}
}

func TestAnotherVCenterDoesNotInheritWhatWasFound(t *testing.T) {
	v := checked(time.Now(), nil)
	require.Equal(t, "8.0.3", v.Status.Version)
	v.Generation++
	answer{version: "v1", err: errors.New("away"), at: time.Now()}.Record(v)
	require.Empty(t, v.Status.Version)
}
