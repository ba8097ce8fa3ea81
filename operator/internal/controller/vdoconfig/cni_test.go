package vdoconfig_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// The network is installed where it is asked for, in one stage with the cloud
// provider since each waits for the other, and stays where the VDOConfig is deleted: all pods need it.
func TestTheNetworkIsInstalledOnlyWhereItIsAskedFor(t *testing.T) {
	w := start(t, "cpi@1.33.1 cni@2.7.0")
	w.allow(deploy.AntreaRights)
	v := w.config("site")
	w.change(v, func() { v.Spec.StorageProvider = nil })
	w.ready(v)
	require.Empty(t, driver(v, "cni").Version)
	require.True(t, apierrors.IsNotFound(w.Get(context.Background(), client.ObjectKey{Namespace: "kube-system", Name: "antrea-agent"}, &appsv1.DaemonSet{})))

	w.change(v, func() { v.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "cni", Policy: "latest"}} })
	w.ready(v)
	require.Equal(t, "2.7.0", driver(v, "cni").Version)
	require.Equal(t, metav1.ConditionTrue, cond(t, v, v1alpha1.ConditionCNI).Status)
	agent := get(w, &appsv1.DaemonSet{}, "kube-system", "antrea-agent")
	for _, c := range append(agent.Spec.Template.Spec.InitContainers, agent.Spec.Template.Spec.Containers...) {
		require.Contains(t, c.Image, repository+"@sha256:")
	}
	require.Contains(t, w.events.all(), "DaemonSet kube-system/antrea-agent of cni@2.7.0 was installed")

	require.NoError(t, w.Delete(t.Context(), v))
	w.until("the VDOConfig is deleted", func() bool {
		w.pass(client.ObjectKeyFromObject(v))
		return gone(w, &v1alpha1.VDOConfig{}, v.Namespace, v.Name)
	})
	require.True(t, gone(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager"))
	require.Equal(t, agent.UID, get(w, &appsv1.DaemonSet{}, "kube-system", "antrea-agent").UID)
}

// On a cluster without a network no node is ready before Antrea's agent runs there, and none is
// initialised before the cloud provider runs; Antrea's controller has a place on a node that is
// both, and all of storage comes after. Whichever of the two the operator waits for before it
// installs the other, it waits for ever.
func TestANetworkIsInstalledWhereNoNodeIsReadyOrInitialized(t *testing.T) {
	tier.Later(t, tier.All) // it needs a control plane of its own
	c := cluster.New(t, cluster.Options{Nodes: cluster.DefaultNodes()[:2], NoNetwork: true})
	w := worldOn(t, newAccess(t, c.Config()), pair+" cni@2.7.0")
	w.ns = cluster.Namespace(t, c.Config())
	require.NoError(t, cluster.Operator.Grant(t.Context(), w.Client))
	require.NoError(t, cluster.Operator.Grant(t.Context(), w.Client, deploy.AntreaRights))
	require.NoError(t, cluster.Operator.GrantIn(t.Context(), w.Client, w.ns))
	w.surroundings()
	v := w.config("site")
	w.change(v, func() { v.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "cni", Policy: "latest"}} })

	agents, clouds := client.MatchingLabels{"app": "antrea", "component": "antrea-agent"}, client.MatchingLabels{"name": "vsphere-cloud-controller-manager"}
	w.until("both run, before either has done its work", func() bool {
		w.look(v)
		return len(w.running("kube-system", agents)) == 2 && len(w.running("kube-system", clouds)) == 1
	})
	w.look(v)
	require.False(t, isTrue(v, "Ready"), describe(v))
	require.Equal(t, "0/2", v.Status.NodesReady, describe(v))
	require.Empty(t, w.running("kube-system", client.MatchingLabels{"app": "antrea", "component": "antrea-controller"}), "it has no place yet")
	require.True(t, gone(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller"), "it needs a node that the cloud provider has initialised")

	w.until("Ready", func() bool {
		for node := range w.running("kube-system", agents) {
			w.connect(node)
		}
		w.play()
		w.look(v)
		return isTrue(v, "Ready") && v.Status.ObservedGeneration == v.Generation
	})
	for _, d := range []string{"cni", "cpi", "csi", "snapshot-controller"} {
		require.True(t, driver(v, d).Ready, "%s\n%s", d, describe(v))
	}
	require.Equal(t, "2/2", v.Status.NodesReady, describe(v))
}

// connect makes a node ready, as its kubelet does once a network plug-in has put its
// configuration there.
func (w *world) connect(name string) {
	w.t.Helper()
	n := get(w, &corev1.Node{}, "", name)
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			c.Status, c.Reason, c.Message, c.LastTransitionTime = corev1.ConditionTrue, "KubeletReady", "", metav1.Now()
			if err := w.Status().Update(w.t.Context(), n); !apierrors.IsConflict(err) {
				require.NoError(w.t, err)
			}
		}
	}
}
