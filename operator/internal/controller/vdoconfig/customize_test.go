package vdoconfig_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

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
	require.Contains(t, cpi(), "--v=6")
	require.False(t, isTrue(v, "Ready"))
	require.Contains(t, cond(t, v, "Resolved").Message, "spec.patches[0] of DaemonSet vmware-system-csi/vsphere-csi-node: sees the node's processes")

	w.change(v, func() { v.Spec.Patches = nil })
	w.ready(v)
	require.Empty(t, owner())
	require.NotContains(t, cpi(), "--v=6")
}
