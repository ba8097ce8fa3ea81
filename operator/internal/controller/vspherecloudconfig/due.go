package vspherecloudconfig

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
)

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
