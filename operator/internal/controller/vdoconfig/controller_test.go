package vdoconfig_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

func TestInstallsThePairAndThenWritesNothing(t *testing.T) {
	w := start(t, pair)
	v := w.ready(w.config("site"))
	require.Equal(t, "1.33.1", driver(v, "cpi").Version)
	require.Equal(t, "3.5.1", driver(v, "csi").Version)
	require.True(t, driver(v, "csi").Ready)
	require.NotEmpty(t, driver(v, "csi").Reasons)
	require.Equal(t, "3/3", v.Status.NodesReady)
	require.Equal(t, "v1.33.4", v.Status.Kubernetes)
	for _, typ := range []string{"Resolved", "Applied", "CPIReady", "CSIReady"} {
		require.True(t, isTrue(v, typ), "%s\n%s", typ, describe(v))
	}
	require.Equal(t, "False", string(cond(t, v, "Upgradeable").Status), "the bundle has no CPI for 1.34")
	ds := get(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager")
	require.Contains(t, ds.Spec.Template.Spec.Containers[0].Image, repository+"@sha256:")
	deploy := get(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller")
	require.Equal(t, int32(1), *deploy.Spec.Replicas, "no more replicas than control-plane nodes")
	require.NotZero(t, w.inventory(v).Len())
	require.Contains(t, w.events.all(), "DaemonSet kube-system/vsphere-cloud-controller-manager of cpi@1.33.1 was installed")
	require.Contains(t, w.events.all(), "csi@3.5.1 is rolled out")

	before, told, version := w.writes, w.events.all(), v.ResourceVersion
	w.look(v)
	require.Equal(t, before, w.writes, "a pass over what is in order writes nothing")
	require.Equal(t, told, w.events.all(), "and says nothing")
	require.Equal(t, version, v.ResourceVersion)
}

// A bundle that was built anew changes the same releases: that rolls through stage by stage as the upgrade to the
// newer one that it has does, in place, while drift is repaired at once.
func TestUpgradesInPlaceAndStageByStage(t *testing.T) {
	w, v := installed(t)
	controller := func() string {
		return get(w, &appsv1.Deployment{}, "vmware-system-csi", csiController).Spec.Template.Spec.Containers[0].Image
	}
	states := func() *corev1.ConfigMap {
		return get(w, &corev1.ConfigMap{}, "vmware-system-csi", "internal-feature-states.csi.vsphere.vmware.com")
	}
	made, was := get(w, &storagev1.CSIDriver{}, "", drivers.CSIDriver).UID, controller()
	stale := states()
	w.change(stale, func() { stale.Data["listview-tasks"] = "stale" })
	w.store.contents = rebuilt(t, strings.Fields(newer)...)
	w.discard(get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager"))
	w.look(v)
	require.Equal(t, "3.7.3", driver(v, "csi").Wanted)
	news := w.events.all()
	require.Contains(t, news, "Updated: DaemonSet kube-system/"+ccm+" of cpi@1.33.1 was changed")
	require.Contains(t, news, "Repaired: repaired ServiceAccount kube-system/cloud-controller-manager: was deleted")
	require.NotContains(t, news, "repaired DaemonSet")
	require.Equal(t, was, controller(), "not before the cloud provider is rolled out")

	w.ready(v)
	require.Equal(t, "3.7.3", driver(v, "csi").Version)
	require.NotEqual(t, was, controller())
	require.Equal(t, made, get(w, &storagev1.CSIDriver{}, "", drivers.CSIDriver).UID, "the CSIDriver is never made anew")
	require.NotContains(t, states().Data, "listview-tasks", "feature states are replaced whole")
	require.Contains(t, w.events.all(), "csi@3.7.3 is rolled out")
}
