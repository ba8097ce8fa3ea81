package vdoconfig_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
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
