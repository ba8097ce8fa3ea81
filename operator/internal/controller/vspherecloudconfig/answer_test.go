package vspherecloudconfig

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
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
	newSecret := func(v *v1alpha1.VsphereCloudConfig) {
		v.Status.CredentialsVersion = "v0"
		unansweredAt(now)(v)
		v.Status.CheckedAt.Time = now.Add(-time.Hour)
	}
	for name, c := range map[string]struct {
		err   error
		edit  func(*v1alpha1.VsphereCloudConfig)
		after time.Duration
		asks  bool
	}{
		"before the interval": {after: 8 * time.Minute, asks: false},
		"shortened by jitter": {after: 9 * time.Minute, asks: true},
		"spec changed":        {edit: func(v *v1alpha1.VsphereCloudConfig) { v.Generation++ }, asks: true},
		"clock went back":     {after: -time.Minute, asks: true},
		"never checked":       {edit: func(v *v1alpha1.VsphereCloudConfig) { v.Status = v1alpha1.VsphereCloudConfigStatus{} }, asks: true},
		"no interval":         {edit: func(v *v1alpha1.VsphereCloudConfig) { v.Spec.Interval.Duration = 0 }, after: 8 * time.Minute, asks: false},
		"refused":             {err: refusal, after: 50 * time.Minute, asks: false},
		"refused an hour ago": {err: refusal, after: time.Hour, asks: true},
		"refused, new Secret": {err: refusal, edit: func(v *v1alpha1.VsphereCloudConfig) { v.Status.CredentialsVersion = "v0" }, asks: true},
		"refused, asked for": {err: refusal, edit: func(v *v1alpha1.VsphereCloudConfig) {
			metav1.SetMetaDataAnnotation(&v.ObjectMeta, v1alpha1.AnnotationRequestedAt, "x")
		}, asks: true},
		"away":                               {err: away, after: 0, asks: false},
		"away for ten seconds":               {err: away, after: 10 * time.Second, asks: true},
		"no answer for a minute":             {edit: unansweredAt(now.Add(time.Minute)), after: 2 * time.Minute, asks: false},
		"new Secret, no answer yet":          {edit: newSecret, after: 59 * time.Second, asks: false},
		"new Secret, no answer for a minute": {edit: newSecret, after: time.Minute, asks: true},
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

func TestWhatAnAnswerMeans(t *testing.T) {
	away := &fault.Error{Reason: fault.Unreachable, Op: "connect to", Subject: "vc.site", Err: errors.New("timeout")}
	refused := &fault.Error{Reason: fault.Unauthorized, Op: "log in to", Subject: "vc.site", Err: errors.New("wrong password")}
	another := &fault.Error{Reason: fault.Conflict, Err: errors.New("another vCenter")}
	for name, c := range map[string]struct {
		user      string
		found     vcenter.Report
		err       error
		state     condition.State
		message   string
		config    string
		verified  string
		remaining string
		accept    string // the instance UUID
		uuids     string // in use, and another one that was not accepted
	}{
		"can be used": {
			found: vcenter.Report{Version: "8.0.3", APIVersion: "8.0.3.0", Build: "42", InstanceUUID: "a",
				Thumbprint: "AA:BB", User: "vdo@site", Datacenters: []string{"/a", "/b"}}, state: condition.StateReady,
			message: "vCenter 8.0.3 build 42, datacenters seen: 2",
			config:  "verified", verified: "new", remaining: "8.0.3", uuids: "a ",
		},
		"can be used, with a warning": {
			found: vcenter.Report{Version: "8.0.3", Build: "42"}, user: "vdo", state: condition.StateReady,
			message: "vCenter 8.0.3 build 42, datacenters seen: 0; the storage driver from 3.1 on takes a user name only as NAME@DOMAIN, " +
				"of letters, digits, dots, underscores and hyphens", config: "verified", verified: "new", remaining: "8.0.3",
		},
		"is away": {err: away, state: condition.StateFault, message: "connect to vc.site: timeout", config: "failed", verified: "old", remaining: "7.0.3"},
		"is away since its spec was changed": {
			err: away, state: condition.StateFault, accept: "b", message: "connect to vc.site: timeout", config: "failed", uuids: "a z",
		},
		"refuses and told": {found: vcenter.Report{Version: "8.0.3"}, err: refused, state: condition.StateFault, message: "log in to vc.site: wrong password", config: "failed", verified: "", remaining: "8.0.3"},
		"another vCenter": {
			found: vcenter.Report{Version: "9.0.0", InstanceUUID: "b"}, err: another, state: condition.StateFault,
			message: "another vCenter", config: "failed", remaining: "7.0.3", uuids: "a b",
		},
		"another vCenter, accepted": {
			found: vcenter.Report{Version: "9.0.0", Build: "42", InstanceUUID: "b"}, state: condition.StateReady, accept: "b",
			message: "vCenter 9.0.0 build 42, datacenters seen: 0",
			config:  "verified", verified: "new", remaining: "9.0.0", uuids: "b ",
		},
		"another vCenter, accepted, refuses": {
			found: vcenter.Report{Version: "9.0.0", InstanceUUID: "b"}, err: refused, state: condition.StateFault, accept: "b",
			message: "log in to vc.site: wrong password", config: "failed", remaining: "9.0.0", uuids: "a ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
			v.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "since"}
			v.Status = v1alpha1.VsphereCloudConfigStatus{ObservedGeneration: 2, Version: "7.0.3", VerifiedCredentials: "old",
				InstanceUUID: "a", UnacceptedInstanceUUID: "z", Datacenters: []string{"/dc"}}
			if v.Spec.AcceptInstanceUUID = c.accept; c.accept != "" {
				v.Generation = 3
			}
			a := answer{version: "new", requested: "before", user: c.user, found: c.found, err: c.err, at: time.Now()}
			require.Equal(t, c.state, a.conditions(&v.Spec).Phase.State)
			a.Record(v)
			first := v.DeepCopy()
			a.Record(v)
			require.Equal(t, first, v, "recording it again changes nothing")
			require.Equal(t, c.message, meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady).Message)
			require.Equal(t, c.message, v.Status.Message)
			require.Equal(t, []string{c.found.APIVersion, c.found.Build, c.found.Thumbprint, c.found.User},
				[]string{v.Status.APIVersion, v.Status.Build, v.Status.Thumbprint, v.Status.User})
			verified := strings.TrimSuffix(v.Status.VerifiedCredentials, credentials.Checked(v))
			require.Equal(t, []string{c.config, c.verified, c.remaining}, []string{v.Status.Config, verified, v.Status.Version})
			if c.accept == "" && c.found.Datacenters == nil {
				require.Equal(t, []string{"/dc"}, v.Status.Datacenters, "they stay, as the version does")
			}
			if c.uuids != "" {
				require.Equal(t, c.uuids, v.Status.InstanceUUID+" "+v.Status.UnacceptedInstanceUUID)
			}
			require.Equal(t, "before", v.Status.HandledReconcileAt, "a pass that was asked for since is still to come")
		})
	}
}
