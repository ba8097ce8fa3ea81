package clusterstate_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

func TestTheCloudProviderOfTheControllerManagerIsRead(t *testing.T) {
	c := fake.NewClientBuilder()
	pod := func(namespace, name, label string, command, args []string) {
		c.WithObjects(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{label: "kube-controller-manager"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Command: command, Args: args}}},
		})
	}
	pod("kube-system", "a", "component", []string{"kube-controller-manager", "--v=2", "--cloud-provider=vsphere"}, nil)
	pod("kube-system", "b", "k8s-app", []string{"kube-controller-manager"}, []string{"--cloud-provider", "external"})
	pod("kube-system", "c", "component", []string{"kube-controller-manager", "--cloud-provider"}, nil)
	pod("kube-system", "d", "app", nil, []string{"--cloud-provider=vsphere"})
	pod("tenant", "e", "component", nil, []string{"--cloud-provider=vsphere"})
	for name, args := range map[string]string{"k3s.io/node-args": `["server","--kubelet-arg","cloud-provider=vsphere"]`,
		"rke2.io/node-args": `["agent","--kubelet-arg","v=2","--kubelet-arg","cloud-provider","external"]`, "other": "", "bad.": "["} {
		meta := metav1.ObjectMeta{Name: name[:4], Annotations: map[string]string{name: args}}
		c.WithObjects(&corev1.Node{ObjectMeta: meta})
	}
	excluded := map[string]string{"site": "metal", "node-role.kubernetes.io/control-plane": ""}
	c.WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "e", Labels: excluded}})
	state := clusterstate.Read(t.Context(), c.Build(), map[string]string{"site": "metal"})
	require.NoError(t, state.Err)
	require.True(t, state.ControlPlane, "controllers run on an excluded node too")
	require.Equal(t, map[string]string{"a": "vsphere", "b": "external", "c": "",
		"k3s or RKE2 on node k3s.": "vsphere", "k3s or RKE2 on node rke2": "external"}, state.CloudProviders)
}

func TestTheMachineOfANodeIsRead(t *testing.T) {
	for _, key := range []string{"cluster.x-k8s.io/machine", "machine.openshift.io/machine"} {
		meta := metav1.ObjectMeta{Name: "a", Annotations: map[string]string{key: "a-x7x2m"}}
		c := fake.NewClientBuilder().WithObjects(&corev1.Node{ObjectMeta: meta}).Build()
		require.Equal(t, "a-x7x2m", clusterstate.Read(t.Context(), c, nil).Nodes[0].Machine, key)
	}
}

func TestNodesOfEtcdAloneAreNoWorkers(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "a", Labels: map[string]string{"node-role.kubernetes.io/etcd": "true"}}
	c := fake.NewClientBuilder().WithObjects(&corev1.Node{ObjectMeta: meta}).Build()
	state := clusterstate.Read(t.Context(), c, nil)
	require.True(t, state.Nodes[0].ControlPlane)
	require.False(t, state.ControlPlane, "controllers do not run there")
}

func TestStorageClassesOfTheDriverAreRead(t *testing.T) {
	zones := []corev1.TopologySelectorTerm{{
		MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"a"}}}}}
	class := func(name, provisioner string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner,
			AllowedTopologies: zones, Parameters: map[string]string{
				"StoragePolicyName": "gold", "datastoreURL": "ds:///vsan/", "csi.storage.k8s.io/fstype": "nfs4"}}
	}
	c := fake.NewClientBuilder().WithObjects(class("shared", drivers.CSIDriver), class("other", "nfs.example")).Build()
	state := clusterstate.Read(t.Context(), c, nil)
	require.NoError(t, state.Err)
	require.Equal(t, []preflight.StorageClass{
		{Name: "shared", Policy: "gold", DatastoreURL: "ds:///vsan/", FSType: "nfs4", Allowed: zones}}, state.StorageClasses)
}

func TestFaultsAreToldApart(t *testing.T) {
	terminating := apierrors.NewForbidden(corev1.Resource("secrets"), "a", errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	file := fault.Errorf(fault.Storage, "write", "a.yaml", "free some space", "%w", syscall.ENOSPC)
	plugin := &url.Error{Op: "Get", Err: errors.New("getting credentials: exec: executable a not found")}
	unknown := &apierrors.StatusError{ErrStatus: metav1.Status{Message: "unknown"}}
	anonymous := fmt.Errorf("failed to get server groups: %w", unknown)
	noPolicies := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "admissionregistration.k8s.io"}}
	for err, says := range map[error]string{
		noPolicies: "Incompatible: leave out --rbac-policy",
		&meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "vdo.vmware.com"}}: "NotFound: install the operator first",
		file:        "Storage: free some space",
		terminating: "Conflict: wait until the namespace is gone",
		plugin:      "Unauthorized: log in to the cluster again",
		anonymous:   "Unauthorized: log in to the cluster again",
		&url.Error{Err: &tls.CertificateVerificationError{Err: x509.HostnameError{}}}: "CertificateInvalid: correct certificate-authority-data or",
	} {
		err := clusterstate.Fault("write Secret ns/a", err)
		require.Contains(t, fmt.Sprintf("%s: %s", fault.ReasonOf(err), fault.HintOf(err)), says)
	}
}
