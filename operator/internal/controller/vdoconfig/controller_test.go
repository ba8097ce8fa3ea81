package vdoconfig_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// planned are the steps of status.plan, as "action kind/name".
func planned(v *v1alpha1.VDOConfig) []string {
	if v.Status.Plan == nil {
		return nil
	}
	var all []string
	for _, s := range v.Status.Plan.Steps {
		all = append(all, s.Action+" "+s.Kind+"/"+s.Name)
	}
	return all
}

// A dry run shows the whole of an installation and writes nothing of it, no finalizer either; then
// the same VDOConfig installs, and nothing is left to do. Nor is anything written while it is suspended.
func TestInstallsThePairAndThenWritesNothing(t *testing.T) {
	w := start(t, pair)
	v := &v1alpha1.VDOConfig{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "site"}, Spec: pairSpec()}
	v.Spec.DryRun = true
	w.create(v)
	for range 3 {
		w.look(v)
	}
	require.Zero(t, w.writes)
	require.Empty(t, w.ours())
	require.Empty(t, v.Finalizers)
	require.Contains(t, planned(v), "create DaemonSet/"+ccm, describe(v))
	require.Contains(t, planned(v), "create Deployment/"+csiController)
	require.Equal(t, strings.Fields(pair), v.Status.Plan.Releases)
	require.Equal(t, "spec.dryRun is set", v.Status.Plan.Held)
	require.Equal(t, "DryRun", cond(t, v, "Suspended").Reason)
	require.False(t, isTrue(v, "Ready"))
	require.NotContains(t, describe(v)+strings.Join(planned(v), ""), "secret-1")

	w.change(v, func() { v.Spec.DryRun = false })
	w.ready(v)
	require.Empty(t, planned(v), describe(v))
	require.NotContains(t, describe(v), "Suspended=")
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
	ds := get(w, &appsv1.DaemonSet{}, "kube-system", ccm)
	require.Contains(t, ds.Spec.Template.Spec.Containers[0].Image, repository+"@sha256:")
	require.Equal(t, int32(1), w.scaled(), "no more replicas than control-plane nodes")
	require.NotZero(t, w.inventory(v).Len())
	require.Contains(t, w.events.all(), "Installed: DaemonSet kube-system/"+ccm+" of cpi@1.33.1: create")
	require.Contains(t, w.events.all(), "is healthy: snapshot-controller@8.2.0, csi@3.5.1")

	before, told, version := w.writes, w.events.all(), v.ResourceVersion
	w.look(v)
	require.Equal(t, before, w.writes, "a pass over what is in order writes nothing")
	require.Equal(t, told, w.events.all(), "and says nothing")
	require.Equal(t, version, v.ResourceVersion)

	w.change(v, func() { v.Spec.DryRun = true })
	drifted := get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")
	w.change(drifted, func() { drifted.Labels["vdo.vmware.com/version"] = "0.0.1" })
	w.writes = 0
	w.look(v)
	require.Equal(t, []string{"change ServiceAccount/cloud-controller-manager"}, planned(v))
	require.Equal(t, "drift", v.Status.Plan.Steps[0].Cause)
	w.change(v, func() { v.Spec.DryRun, v.Spec.Suspend = false, true })
	w.discard(get(w, &storagev1.CSIDriver{}, "", drivers.CSIDriver))
	w.look(v)
	require.Zero(t, w.writes)
	require.Contains(t, cond(t, v, "CSIReady").Message, "CSIDriver csi.vsphere.vmware.com: is not there", "health is assessed all the same")
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
	require.Contains(t, news, "Updated: DaemonSet kube-system/"+ccm+" of cpi@1.33.1: change")
	require.Contains(t, news, "Repaired: ServiceAccount kube-system/cloud-controller-manager of cpi@1.33.1: create: was deleted")
	require.NotContains(t, news, "Repaired: DaemonSet")
	require.Equal(t, was, controller(), "not before the cloud provider is rolled out")

	w.ready(v)
	require.Equal(t, "3.7.3", driver(v, "csi").Version)
	require.NotEqual(t, was, controller())
	require.Equal(t, made, get(w, &storagev1.CSIDriver{}, "", drivers.CSIDriver).UID, "the CSIDriver is never made anew")
	require.NotContains(t, states().Data, "listview-tasks", "feature states are replaced whole")
	require.Contains(t, w.events.all(), "DaemonSet vmware-system-csi/vsphere-csi-node")
}

// The network is installed where it is asked for, in one pass with the cloud provider since each waits for the
// other: no node is ready before the one runs there, and none is initialised before the other runs. It stays
// where the VDOConfig is deleted: all pods need it.
func TestTheNetworkIsInstalledWithTheCloudProvider(t *testing.T) {
	w := start(t, "cpi@1.33.1 cni@2.7.0")
	w.allow(deploy.AntreaRights)
	v := w.config("site")
	w.change(v, func() {
		v.Spec.StorageProvider, v.Spec.Drivers = nil, []v1alpha1.DriverPolicy{{Driver: "cni", Policy: "latest"}}
	})
	written, tried := map[string]int{}, "" // the pass in which
	w.deny = func(_, name string) error { tried = name; return nil }
	w.fail = func(int) error {
		if written[tried] == 0 {
			written[tried] = w.passes
		}
		return nil
	}
	w.ready(v)
	require.Equal(t, written[ccm], written["antrea-agent"])
	require.Equal(t, "2.7.0", driver(v, "cni").Version)
	require.Equal(t, metav1.ConditionTrue, cond(t, v, v1alpha1.ConditionCNI).Status)
	agent := get(w, &appsv1.DaemonSet{}, "kube-system", "antrea-agent")
	for _, c := range append(agent.Spec.Template.Spec.InitContainers, agent.Spec.Template.Spec.Containers...) {
		require.Contains(t, c.Image, repository+"@sha256:")
	}
	require.Contains(t, w.events.all(), "Installed: DaemonSet kube-system/antrea-agent of cni@2.7.0: create")

	require.NoError(t, w.Delete(t.Context(), v))
	w.removed(v)
	require.True(t, gone(w, &appsv1.DaemonSet{}, "kube-system", ccm))
	require.Equal(t, agent.UID, get(w, &appsv1.DaemonSet{}, "kube-system", "antrea-agent").UID)
}
