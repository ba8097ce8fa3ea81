package vdoctl_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// operator makes the operator's Deployment, with pods that are ready.
func (s *shop) operator(ready int32) *appsv1.Deployment {
	s.t.Helper()
	labels := map[string]string{"app": "vdo-operator"}
	d := &appsv1.Deployment{ObjectMeta: s.meta("vdo-operator"), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "operator", Image: "registry.site/vdo/operator:1.2.3"}}}}}}
	require.NoError(s.t, s.k.Create(s.t.Context(), d))
	d.Status.Replicas, d.Status.ReadyReplicas = 1, ready
	require.NoError(s.t, s.k.Status().Update(s.t.Context(), d))
	return d
}

// The operator's own state is on the screen: nothing else there is worth more than it.
func TestStatusShowsTheOperator(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	out, code := s.run("describe")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "operator  not installed in namespace "+s.ns+"\n")
	out = strings.Join(strings.Fields(out), " ")
	require.Contains(t, out, "there is no operator in namespace "+s.ns+": `vdoctl deploy BUNDLE` installs one; where it")
	require.Equal(t, 2, strings.Count(out, "in another namespace, name that with -n; "), out)

	d := s.operator(0)
	out, code = s.run("describe")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "operator  1.2.3, 0/1 ready, none leads\n")
	require.Contains(t, out, "0 of 1 pods of the operator are ready")

	holder, at := "vdo-operator-abc_0c2f", metav1.NewMicroTime(time.Now().Add(-time.Hour))
	require.NoError(t, s.k.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: s.meta("vdo-operator"), Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at}}))
	d.Status.ReadyReplicas = 1
	require.NoError(t, s.k.Status().Update(t.Context(), d))
	patch := client.MergeFrom(d.DeepCopy())
	d.Annotations = map[string]string{"vdo.vmware.com/operator-version": "1.2.4"}
	require.NoError(t, s.k.Patch(t.Context(), d, patch))
	out, _ = s.run("describe")
	require.Regexp(t, `operator  1\.2\.4, 1/1 ready, vdo-operator-abc leads \(last said 1h\d+m\d+s ago\)\n`, out)
	require.NotContains(t, out, "Deployment")
	out, _ = s.run("status", "-o", "json")
	require.Contains(t, out, `"leader": "vdo-operator-abc"`)

	patch = client.MergeFrom(d.DeepCopy())
	d.Spec.Replicas = new(int32)
	require.NoError(t, s.k.Patch(t.Context(), d, patch))
	out, code = s.run("describe")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "the operator is scaled to 0")
}

// Of a VDOConfig that is being deleted nothing is ready, whatever its status says still.
func TestStatusSaysWhatIsBeingRemoved(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.operator(1)
	v := &v1alpha1.VDOConfig{ObjectMeta: s.meta("vdo"), Spec: v1alpha1.VDOConfigSpec{StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "east"}}}
	v.Finalizers = []string{"vdo.vmware.com/drivers"}
	require.NoError(t, s.k.Create(t.Context(), v))
	t.Cleanup(func() {
		require.NoError(t, s.k.Patch(context.Background(), v, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
	})
	s.status(func(st *v1alpha1.VDOConfigStatus) {
		st.Drivers = []v1alpha1.DriverStatus{{Driver: "csi", Version: "3.5.1", Ready: true}}
		st.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Succeeded", LastTransitionTime: metav1.Now()}}
	})
	require.Contains(t, s.ok("describe"), "csi     3.5.1    -       true")

	require.NoError(t, s.k.Delete(t.Context(), v))
	out, code := s.run("describe")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "csi     3.5.1    -       false  the VDOConfig is being deleted")
	require.Contains(t, out, "VDOConfig vdo (Deleting)")
	require.Contains(t, strings.Join(strings.Fields(out), " "), ", and its drivers are taken down")

	s.status(func(st *v1alpha1.VDOConfigStatus) {
		st.Drivers = []v1alpha1.DriverStatus{{Driver: "csi", Version: "3.5.1", Message: "is being removed: 9 of its objects are left"}}
	})
	out, code = s.run("describe")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "is being removed: 9 of its objects are left")
	require.Contains(t, out, "VDOConfig vdo (Deleting)")
}

// Findings of checks from before the drivers were rolled out are told as that, and a revision
// that is not healthy yet with why, and until when.
func TestStatusSaysHowOldItsFindingsAre(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.operator(1)
	s.upgraded()
	rolledOut := time.Now().Add(-30 * time.Minute).Truncate(time.Second)
	checkedAt := func(at time.Time) string {
		s.status(func(st *v1alpha1.VDOConfigStatus) {
			st.Revisions[1].Since = metav1.NewTime(rolledOut)
			checked := metav1.NewTime(at)
			st.Preflight = &v1alpha1.PreflightStatus{CheckedAt: &checked, Passed: 12, Results: []v1alpha1.PreflightResult{{ID: "node-vm", Action: "Warn", Found: "no node is there"}}}
		})
		out, _ := s.run("describe")
		return out
	}
	early, late := rolledOut.Add(-10*time.Minute), rolledOut.Add(10*time.Minute)
	out := strings.Join(strings.Fields(checkedAt(early)), " ")
	require.Contains(t, out, "checks 12 passed, at "+early.UTC().Format(time.RFC3339)+" (40m ago), before the roll-out of r2-22222222 ended at "+rolledOut.UTC().Format(time.RFC3339)+"; to look now: vdoctl check")
	out = checkedAt(late)
	require.Contains(t, out, "checks  12 passed, at "+late.UTC().Format(time.RFC3339)+" (20m ago)\n")
	out, _ = s.run("status", "-o", "json")
	require.Contains(t, out, `"rolledOut": {`)

	s.status(func(st *v1alpha1.VDOConfigStatus) {
		st.Preflight = &v1alpha1.PreflightStatus{Results: []v1alpha1.PreflightResult{{ID: "image-platform", Action: "BlockInstall", Found: "for other nodes"}}}
	})
	out, _ = s.run("describe")
	require.Contains(t, strings.Join(strings.Fields(out), " "), "checks 0 passed, of what the bundle holds alone: cluster and vCenters were not looked at block image-platform: for other nodes")

	why := "revision r2-22222222 is not healthy yet: all is well since T, and it counts as healthy where that stays so until U"
	s.status(func(st *v1alpha1.VDOConfigStatus) {
		st.Revisions[1].Outcome = "Progressing"
		st.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionUpgraded, Status: metav1.ConditionUnknown, Reason: "Progressing", Message: why, LastTransitionTime: metav1.Now()}}
	})
	for _, command := range [][]string{{"describe"}, {"upgrade", "list"}} {
		out, _ = s.run(command...)
		require.Contains(t, strings.Join(strings.Fields(out), " "), why)
	}
}

// An upgrade that waits may do so for weeks, in which what runs is ready; one that failed, or
// waits while something is not ready, has the status end with 8.
func TestAnUpgradeThatOnlyWaitsLeavesTheStatusReady(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.operator(1)
	s.upgraded()
	bundle := s.bundle()
	bundle.Status.ObservedGeneration = bundle.Generation
	bundle.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Succeeded", LastTransitionTime: metav1.Now()}}
	require.NoError(t, s.k.Status().Update(t.Context(), bundle))
	status := func(ready metav1.ConditionStatus, why string) (string, int) {
		s.status(func(st *v1alpha1.VDOConfigStatus) {
			st.Conditions = []metav1.Condition{
				{Type: v1alpha1.ConditionUpgraded, Status: "False", Reason: why, Message: "because of it", LastTransitionTime: metav1.Now()},
				{Type: v1alpha1.ConditionReady, Status: ready, Reason: "Says", LastTransitionTime: metav1.Now()}}
		})
		return s.run("describe")
	}
	for _, why := range []string{"NotApproved", "WindowClosed", "Interlocked"} {
		out, code := status("True", why)
		require.Zero(t, code, out)
		require.Contains(t, out, "ahead\n  VDOConfig vdo ("+why+")\n    Upgraded: because of it\n\neverything is ready")
		out, code = status("False", why)
		require.Equal(t, 8, code, out)
		require.Contains(t, out, "waits\n  VDOConfig vdo ("+why+")")
	}
	for _, why := range []string{"RolledBack", "Failed", "DowngradeRefused"} {
		out, code := status("True", why)
		require.Equal(t, 8, code, out)
		require.Contains(t, out, "waits\n  VDOConfig vdo ("+why+")")
	}
}
