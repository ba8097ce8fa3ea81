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

func (w *world) drift(v *v1alpha1.VDOConfig, policy *v1alpha1.DriftPolicy) {
	w.t.Helper()
	w.change(v, func() { v.Spec.Drift = policy })
}

// scaledToNone sees that a driver whose controller somebody has scaled to 0, and that is not
// put back, is not ready, and why.
func (w *world) scaledToNone(v *v1alpha1.VDOConfig) {
	w.t.Helper()
	w.scale(0)
	w.look(v)
	require.Zero(w.t, w.scaled())
	c := cond(w.t, v, "CSIReady")
	require.Equal(w.t, "False Incomplete", string(c.Status)+" "+c.Reason, describe(v))
	require.Contains(w.t, c.Message, "Deployment vmware-system-csi/"+csiController+": is scaled to 0")
	require.False(w.t, driver(v, "csi").Ready)
	require.False(w.t, isTrue(v, "Ready"), describe(v))
}

// Under Warn what differs is shown and stays, under Off nobody looks, and else it is repaired.
func TestDriftIsShownOrLeftAsTheVDOConfigSays(t *testing.T) {
	w, v := installed(t)
	w.healthy(v)
	was := w.scaled()
	w.drift(v, &v1alpha1.DriftPolicy{Mode: v1alpha1.DriftWarn})
	w.look(v)
	w.writes = 0
	w.scale(was + 1)
	for range 3 {
		w.look(v)
	}
	require.Zero(t, w.writes)
	require.Equal(t, was+1, w.scaled())
	require.Len(t, v.Status.Drift, 1, describe(v))
	require.Equal(t, v1alpha1.DriftStatus{Driver: "csi", Kind: "Deployment", Namespace: "vmware-system-csi",
		Name: csiController, Fields: "spec.replicas", Manager: "scaler"}, v.Status.Drift[0])
	require.Equal(t, "DriftFound", cond(t, v, "Drifted").Reason)
	require.Equal(t, []string{"change Deployment/" + csiController}, planned(v))

	w.scaledToNone(v)

	w.drift(v, &v1alpha1.DriftPolicy{Mode: v1alpha1.DriftOff})
	w.scaledToNone(v)
	w.scale(was + 1)
	w.writes = 0
	w.look(v)
	require.Zero(t, w.writes)
	require.Empty(t, v.Status.Drift)
	require.NotContains(t, describe(v), "Drifted=")

	w.change(v, func() { v.Spec.Suspend = true })
	w.scaledToNone(v)
	w.change(v, func() { v.Spec.Suspend = false })

	w.drift(v, nil)
	w.look(v)
	require.Equal(t, was, w.scaled())
	require.NotContains(t, describe(v), "Drifted=")
	w.ready(v)
}

// A field that is left to others is neither repaired nor taken away, whoever has set it.
func TestAFieldIsLeftToOthers(t *testing.T) {
	w, v := installed(t)
	was := w.scaled()
	w.drift(v, &v1alpha1.DriftPolicy{Ignore: []v1alpha1.DriftIgnore{{Kind: "Deployment", Name: csiController,
		Paths: []string{"/spec/replicas"}}}})
	w.look(v)
	require.Equal(t, was, w.scaled(), "nobody else has set it: it stays")
	w.scale(was + 1)
	for range 3 {
		w.look(v)
	}
	require.Equal(t, was+1, w.scaled())
	d := get(w, &appsv1.Deployment{}, "vmware-system-csi", csiController)
	w.change(d,
		func() { d.Spec.Template.Spec.Containers[0].Image = "changed"; d.Labels["vdo.vmware.com/version"] = "0" })
	w.look(v)
	d = get(w, d, "vmware-system-csi", csiController)
	require.NotEqual(t, "changed", d.Spec.Template.Spec.Containers[0].Image, "all else is repaired")
	require.Equal(t, was+1, *d.Spec.Replicas)
	for _, f := range d.ManagedFields {
		if f.Manager == "vdo-operator" {
			require.NotContains(t, f.FieldsV1.GetRawString(), `"f:replicas"`, "it is the other manager's alone")
		}
	}

	w.change(v, func() { v.Spec.Drift.Ignore[0].Paths = []string{"/spec/template/spec/containers/0/image"} })
	w.look(v)
	require.Contains(t, cond(t, v, "Applied").Message, "path /spec/template/spec/containers/0/image: it is always repaired; of a Deployment these may be left to others: ")
	require.Equal(t, "InvalidInput", cond(t, v, "Applied").Reason)
	require.Equal(t, was, w.scaled(), "what is no longer left to others is ours again")
}

// Two managers of one field would write for ever: the other one is named, and the object is
// left alone for a while, also by an operator that starts anew.
func TestAManagerThatChangesAFieldEachTimeIsNamedAndLeft(t *testing.T) {
	w, v := installed(t)
	was := w.scaled()
	for i := range drift.Repairs {
		require.Empty(t, v.Status.Drift, "after %d", i)
		w.scale(was + 1)
		w.look(v)
		require.Equal(t, was, w.scaled())
	}
	again := func(why string, want int32) {
		t.Helper()
		w.scale(was + 1)
		w.look(v)
		require.Equal(t, want, w.scaled(), why)
	}
	again("it is left alone", was+1)
	c := cond(t, v, "Drifted")
	require.Equal(t, "DriftContested", c.Reason)
	require.Contains(t, c.Message, "field manager scaler sets spec.replicas again each time")
	w.restart()
	again("the operator has started anew", was+1)
	written := v.ResourceVersion
	w.look(v)
	require.Equal(t, written, v.ResourceVersion, "nor is the status written again and again")

	w.ahead += drift.Pause
	again("it is tried again", was)
	again("and left again", was+1)
	require.Equal(t, drift.Repairs+1, v.Status.Drift[0].Repairs)

	w.ahead += drift.Pause
	w.scale(was)
	w.look(v)
	require.Empty(t, v.Status.Drift, "it is as it shall be")
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
	w.destroy()
	w.until("repaired", func() bool {
		w.look(v)
		return !gone(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node") && !gone(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager")
	})
	require.Equal(t, "storage", owner(), "as it was last rendered")
	require.NotContains(t, cpi(), "--v=6", "nothing is wrong with it")
	require.False(t, isTrue(v, "Ready"))
	require.Contains(t, cond(t, v, "Resolved").Message, "spec.patches[0] of DaemonSet vmware-system-csi/vsphere-csi-node: sees the node's processes")

	w.change(v, func() { v.Spec.Patches = nil })
	w.ready(v)
	require.Empty(t, owner())
	require.NotContains(t, cpi(), "--v=6")
}
