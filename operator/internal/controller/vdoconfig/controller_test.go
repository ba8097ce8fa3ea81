package vdoconfig_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vdoconfig"
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

func TestUpgradesInPlaceWhenTheBundleBringsANewerRelease(t *testing.T) {
	w, v := installed(t)
	csiDriver := get(w, &storagev1.CSIDriver{}, "", "csi.vsphere.vmware.com").UID
	states := get(w, &corev1.ConfigMap{}, "vmware-system-csi", "internal-feature-states.csi.vsphere.vmware.com")
	w.change(states, func() { states.Data["listview-tasks"] = "stale" })

	w.store.contents = bundleOf(t, "cpi@1.33.1", "snapshot-controller@8.2.0", "csi@3.5.1", "csi@3.7.3")
	w.look(v)
	require.Equal(t, "3.7.3", driver(v, "csi").Wanted)
	w.ready(v)
	require.Equal(t, "3.7.3", driver(v, "csi").Version)
	require.Equal(t, csiDriver, get(w, &storagev1.CSIDriver{}, "", "csi.vsphere.vmware.com").UID, "the CSIDriver is never made anew")
	states = get(w, &corev1.ConfigMap{}, "vmware-system-csi", "internal-feature-states.csi.vsphere.vmware.com")
	require.NotContains(t, states.Data, "listview-tasks", "feature states are replaced whole")
	require.Contains(t, w.events.all(), "Deployment vmware-system-csi/vsphere-csi-controller was changed from csi@3.5.1 to csi@3.7.3")
	require.Contains(t, w.events.all(), "csi@3.7.3 is rolled out")
}

// A control plane of three is upgraded one by one, and whichever answers speaks for
// itself: the cloud provider follows the last, once, and does not go back.
func TestTheCloudProviderFollowsTheLastAPIServerAndStays(t *testing.T) {
	w := start(t, "cpi@1.33.1 cpi@1.34.0")
	plane := &plane{Cluster: w.r.Cluster}
	w.r.Cluster = plane
	plane.are("v1.34.2", "v1.33.4", "v1.33.4")
	v := w.config("site")
	w.change(v, func() { v.Spec.StorageProvider = nil })
	w.ready(v)
	require.Equal(t, "1.33.1", driver(v, "cpi").Version)
	require.Equal(t, "v1.33.4", v.Status.Kubernetes)
	require.Contains(t, cond(t, v, "Resolved").Message, "the API servers are of Kubernetes v1.33.4 to v1.34.2")

	plane.servers[1] = assess.APIServer{Address: "10.0.0.2:6443", Err: errors.New("connection refused")} // it is being upgraded
	plane.servers[2].Version = "v1.34.2"
	w.look(v)
	require.Equal(t, "1.33.1", driver(v, "cpi").Wanted)
	require.Contains(t, cond(t, v, "Resolved").Message, "10.0.0.2:6443: connection refused")

	w.restart()
	w.ahead += time.Hour // nothing older has answered: a load balancer does for all of them
	w.look(v)
	require.Equal(t, "1.34.0", driver(v, "cpi").Wanted, describe(v))
	require.Contains(t, cond(t, v, "Resolved").Message, "10.0.0.2:6443: connection refused; drivers are chosen for Kubernetes v1.34.2")
	require.True(t, w.inventory(v).Memory().NewerSince.IsZero())

	plane.are("v1.34.2", "v1.34.2", "v1.34.2")
	w.ready(v)
	require.Equal(t, "1.34.0", driver(v, "cpi").Version)

	plane.are("v1.33.4", "v1.34.2", "v1.34.2")
	w.look(v)
	require.Equal(t, "1.34.0", driver(v, "cpi").Wanted)
	require.True(t, isTrue(v, "Ready"), describe(v))
	require.Contains(t, cond(t, v, "Resolved").Message, "older than v1.34.2")
}

// plane is a control plane of several API servers.
type plane struct {
	vdoconfig.Cluster
	servers []assess.APIServer
}

func (p *plane) are(versions ...string) {
	p.servers = nil
	for i, v := range versions {
		p.servers = append(p.servers, assess.APIServer{Address: fmt.Sprintf("10.0.0.%d:6443", i+1), Version: v})
	}
}

func (p *plane) APIServers(context.Context) ([]assess.APIServer, error) { return p.servers, nil }

func TestDriftIsRepaired(t *testing.T) {
	w, v := installed(t)
	deploy := get(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller")
	was := deploy.Spec.Template.Spec.Containers[0].Image
	w.change(deploy, func() { deploy.Spec.Template.Spec.Containers[0].Image = "evil.example/x:1" })
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.ServiceAccount{}, "vmware-system-csi", "vsphere-csi-node")))
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret")))
	w.look(v)
	require.Equal(t, was, get(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller").Spec.Template.Spec.Containers[0].Image)
	get(w, &corev1.ServiceAccount{}, "vmware-system-csi", "vsphere-csi-node")
	get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret")
	require.Contains(t, w.events.all(), "repaired ServiceAccount vmware-system-csi/vsphere-csi-node: was deleted")
	w.ready(v)
}

// A bundle that was built anew changes the same releases: that rolls through stage by
// stage as an upgrade does, while drift is repaired at once.
func TestARebuiltBundleWaitsForGatesAndIsNoRepair(t *testing.T) {
	w, v := installed(t)
	controller := func() string {
		return get(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller").Spec.Template.Spec.Containers[0].Image
	}
	was, told := controller(), len(w.events.all())
	rebuilt := bundleOf(t, strings.Fields(pair)...)
	for i := range rebuilt.Lock.Images {
		rebuilt.Lock.Images[i].Digest = image.DigestOf([]byte("rebuilt " + rebuilt.Lock.Images[i].Reference.String()))
	}
	w.store.contents = rebuilt
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.ServiceAccount{}, "vmware-system-csi", "vsphere-csi-node")))
	w.look(v)
	news := w.events.all()[told:]
	require.Contains(t, news, "Updated: DaemonSet kube-system/vsphere-cloud-controller-manager of cpi@1.33.1 was changed to what bundle, mirror and operator make of it now")
	require.Contains(t, news, "Repaired: repaired ServiceAccount vmware-system-csi/vsphere-csi-node: was deleted")
	require.NotContains(t, news, "repaired DaemonSet")
	require.Equal(t, was, controller(), "not before the cloud provider is rolled out")
	w.ready(v)
	require.NotEqual(t, was, controller())
}

func TestManualUpgradesWaitAndAreListed(t *testing.T) {
	w, v := installed(t)
	b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	w.change(b, func() { b.Annotations = map[string]string{v1alpha1.AnnotationUpgrade: "Manual"} })
	w.verified(b, metav1.ConditionTrue, "Succeeded", "") // the update writes durations anew
	w.store.contents = bundleOf(t, "cpi@1.33.1", "snapshot-controller@8.2.0", "csi@3.5.1", "csi@3.7.3")
	w.look(v)
	require.Equal(t, "3.5.1", driver(v, "csi").Wanted)
	require.True(t, isTrue(v, "Ready"), describe(v))
	require.Equal(t, "NotApproved", v.Status.Candidate.Gates[0].Reason)
	w.change(v, func() { v.Spec.Upgrade = v1alpha1.UpgradeAutomatic })
	w.ready(v)
	require.Equal(t, "3.7.3", driver(v, "csi").Version)
	require.Nil(t, v.Status.Candidate)
}

func TestUnsupportedCombinationKeepsWhatRunsAndRepairsIt(t *testing.T) {
	w, v := installed(t)
	w.change(v, func() { v.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "csi", Version: "2.7.3"}} })
	w.look(v)
	resolved := cond(t, v, "Resolved")
	require.Equal(t, "Incompatible", resolved.Reason)
	require.Contains(t, resolved.Message, "2.7.3")
	require.True(t, isTrue(v, "Stalled"))
	require.True(t, isTrue(v, "CSIReady"), describe(v))
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.ServiceAccount{}, "vmware-system-csi", "vsphere-csi-node")))
	w.look(v)
	get(w, &corev1.ServiceAccount{}, "vmware-system-csi", "vsphere-csi-node")
	require.Equal(t, "3.5.1", driver(v, "csi").Version)
}
