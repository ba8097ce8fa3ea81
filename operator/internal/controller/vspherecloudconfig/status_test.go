package vspherecloudconfig

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

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
			found: vcenter.Report{Version: "8.0.3", Build: "42", InstanceUUID: "a", Datacenters: []string{"/a", "/b"}}, state: condition.StateReady,
			message: "vCenter 8.0.3 build 42, datacenters seen: 2",
			config:  "verified", verified: "new", remaining: "8.0.3", uuids: "a ",
		},
		"can be used, with a warning": {
			found: vcenter.Report{Version: "8.0.3", Build: "42"}, user: "vdo", state: condition.StateReady,
			message: "vCenter 8.0.3 build 42, datacenters seen: 0; the storage driver from 3.1 on takes a user name only as NAME@DOMAIN, " +
				"of letters, digits, dots, underscores and hyphens", config: "verified", verified: "new", remaining: "8.0.3",
		},
		"is away":          {err: away, state: condition.StateFault, message: "connect to vc.site: timeout", config: "failed", verified: "old", remaining: "7.0.3"},
		"refuses":          {err: refused, state: condition.StateFault, message: "log in to vc.site: wrong password", config: "failed", verified: "", remaining: "7.0.3"},
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
				InstanceUUID: "a", UnacceptedInstanceUUID: "z"}
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
			require.Equal(t, []string{c.config, c.verified, c.remaining}, []string{v.Status.Config, v.Status.VerifiedCredentials, v.Status.Version})
			if c.uuids != "" {
				require.Equal(t, c.uuids, v.Status.InstanceUUID+" "+v.Status.UnacceptedInstanceUUID)
			}
			require.Equal(t, "before", v.Status.HandledReconcileAt, "a pass that was asked for since is still to come")
		})
	}
}
