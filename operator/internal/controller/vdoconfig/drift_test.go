package vdoconfig_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drift"
)

const csiController = "vsphere-csi-controller"

// scale sets the replicas of the storage driver's controller, as another tool does.
func (w *world) scale(replicas int32) {
	w.t.Helper()
	d := get(w, &appsv1.Deployment{}, "vmware-system-csi", csiController)
	patch := client.MergeFrom(d.DeepCopy())
	d.Spec.Replicas = &replicas
	require.NoError(w.t, w.Patch(context.Background(), d, patch, client.FieldOwner("scaler")))
}

func (w *world) scaled() int32 {
	w.t.Helper()
	return *get(w, &appsv1.Deployment{}, "vmware-system-csi", csiController).Spec.Replicas
}

// Under Warn what differs is shown and stays, under Off nobody looks, what is left to others stays, whoever has set it,
// and else it is repaired. A driver that is scaled to 0 so is not ready.
func TestDriftIsShownOrLeftAsTheVDOConfigSays(t *testing.T) {
	w, v := installed(t)
	w.healthy(v)
	was := w.scaled()
	ignores := func(path string) *v1alpha1.DriftPolicy {
		return &v1alpha1.DriftPolicy{Ignore: []v1alpha1.DriftIgnore{
			{Kind: "Deployment", Name: csiController, Paths: []string{path}}}}
	}
	shown := v1alpha1.DriftStatus{Driver: "csi", Kind: "Deployment", Namespace: "vmware-system-csi",
		Name: csiController, Fields: "spec.replicas", Manager: "scaler"}
	for _, c := range []struct {
		policy *v1alpha1.DriftPolicy
		shown  []v1alpha1.DriftStatus
	}{
		{&v1alpha1.DriftPolicy{Mode: v1alpha1.DriftWarn}, []v1alpha1.DriftStatus{shown}},
		{&v1alpha1.DriftPolicy{Mode: v1alpha1.DriftOff}, nil},
		{ignores("/spec/replicas"), nil},
	} {
		w.change(v, func() { v.Spec.Drift = c.policy })
		w.look(v)
		w.writes = 0
		for _, replicas := range []int32{was + 1, 0} {
			w.scale(replicas)
			for range 3 {
				w.look(v)
			}
			require.Equal(t, replicas, w.scaled())
			require.Zero(t, w.writes)
			require.Equal(t, c.shown, v.Status.Drift, describe(v))
		}
		require.Equal(t, "Incomplete", cond(t, v, "CSIReady").Reason, describe(v))
		require.False(t, isTrue(v, "Ready"), describe(v))
	}
	d := get(w, &appsv1.Deployment{}, "vmware-system-csi", csiController)
	w.change(d, func() { d.Spec.Template.Spec.Containers[0].Image = "changed"; d.Labels["vdo.vmware.com/version"] = "0" })
	w.look(v)
	d = get(w, d, "vmware-system-csi", csiController)
	require.NotEqual(t, "changed", d.Spec.Template.Spec.Containers[0].Image, "all else is repaired")
	for _, f := range d.ManagedFields {
		if f.Manager == "vdo-operator" {
			require.NotContains(t, f.FieldsV1.GetRawString(), `"f:replicas"`, "it is the other manager's alone")
		}
	}

	w.change(v, func() { v.Spec.Drift = ignores("/spec/template/spec/containers/0/image") })
	w.look(v)
	require.Equal(t, "InvalidInput", cond(t, v, "Applied").Reason)
	require.Equal(t, was, w.scaled(), "what is no longer left to others is ours again")
	w.change(v, func() { v.Spec.Drift = nil })
	w.ready(v)
	require.NotContains(t, describe(v), "Drifted=")
}

// Two managers of one field would write for ever: the other one is named, and the object is
// left alone for a while, also by an operator that starts anew.
func TestAManagerThatChangesAFieldEachTimeIsNamedAndLeft(t *testing.T) {
	w, v := installed(t)
	was := w.scaled()
	again := func(want int32) {
		t.Helper()
		w.scale(was + 1)
		w.look(v)
		require.Equal(t, want, w.scaled())
	}
	for range drift.Repairs {
		require.Empty(t, v.Status.Drift)
		again(was)
	}
	again(was + 1)
	require.Equal(t, "DriftContested", cond(t, v, "Drifted").Reason)
	require.Equal(t, "scaler", v.Status.Drift[0].Manager)
	w.restart()
	again(was + 1)
	written := v.ResourceVersion
	w.look(v)
	require.Equal(t, written, v.ResourceVersion, "nor is the status written again and again")
	w.ahead += drift.Pause
	again(was)
}

// A patch that makes no sense changes nothing and stops no repair: what runs is repaired
// with the settings that it was last rendered with.
func TestAPatchIsAppliedAndABadOneKeepsWhatRunsAndRepairsIt(t *testing.T) {
	w, v := installed(t)
	node := v1alpha1.PatchTarget{Driver: "csi", Kind: "DaemonSet", Name: "vsphere-csi-node"}
	owner := func() string {
		return get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").Annotations["site.example/owner"]
	}
	w.change(v, func() {
		v.Spec.Patches = []v1alpha1.Patch{{Target: node, Patch: "metadata: {annotations: {site.example/owner: storage}}"}}
		v.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "cpi", LogLevel: v1alpha1.LogDebug}}
	})
	w.ready(v)
	require.Equal(t, "storage", owner())
	cpi := func() []string {
		return get(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager").Spec.Template.Spec.Containers[0].Args
	}
	require.Contains(t, cpi(), "--v=6")

	w.change(v, func() {
		v.Spec.Patches[0].Patch = "spec: {template: {spec: {hostPID: true}}}"
		v.Spec.Drivers = nil
	})
	w.destroyed(v)
	require.Equal(t, "storage", owner(), "as it was last rendered")
	require.NotContains(t, cpi(), "--v=6", "nothing is wrong with it")
	require.False(t, isTrue(v, "Ready"))
	require.Contains(t, cond(t, v, "Resolved").Message, "spec.patches[0] of DaemonSet vmware-system-csi/vsphere-csi-node: sees the node's processes")

	w.change(v, func() { v.Spec.Patches = nil })
	w.ready(v)
	require.Empty(t, owner())
	require.NotContains(t, cpi(), "--v=6")
}
