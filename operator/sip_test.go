package operator_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/metal3"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

const (
	sipAccount    = "system:serviceaccount:vmware-system-sip:vdo-operator-sip"
	driverAccount = "system:serviceaccount:vmware-system-vdo:vdo-operator"
)

// The program, with the rights that deploy/sip gives its account and no others, gives a
// tenant cluster its hosts, and its services a namespace. What it does then is tested with the controller.
func TestTenantClusterByTheAccountOfDeploySIP(t *testing.T) {
	cfg := cluster.Config(t)
	admin := cluster.Client(t, cluster.Config(t))
	metal3.Install(t, cfg)
	for _, ns := range []string{"metal3", "tenants"} { // as bindings.yaml has them
		require.NoError(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})))
	}
	for _, f := range []string{
		"namespace.yaml", "rbac.yaml", "policy.yaml", "operator.yaml", "networkpolicy.yaml", "bindings.yaml",
	} {
		applyFile(t, admin, filepath.Join("deploy", "sip", f))
	}
	for _, h := range []metal3.Host{{Name: "cp-1", Address: "10.0.0.1"}, {Name: "w-1", Address: "10.0.1.1"}} {
		h.Namespace, h.Allowed, h.Labels = "metal3", "tenants", map[string]string{"flavor": h.Name[:1]}
		require.NoError(t, metal3.Create(t.Context(), admin, h))
	}
	var hosts apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal([]byte(metal3.CRD), &hosts))
	beta := hosts.Spec.Versions[0]
	beta.Name = "v1beta1"
	hosts.Spec.Versions[0].Served, hosts.Spec.Versions[0].Storage = false, false // as Metal3 plans
	hosts.Spec.Versions = append(hosts.Spec.Versions, beta)
	install := envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{&hosts}}
	_, err := envtest.InstallCRDs(cfg, install)
	require.NoError(t, err)
	sip := &airship.SIPCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "one"}, Spec: airship.SIPClusterSpec{
		Nodes: map[airship.Role]airship.NodeSet{
			airship.RoleControlPlane: {LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"flavor": "c"}}, Count: &airship.NodeCount{Active: 1}},
			airship.RoleWorker:       {LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"flavor": "w"}}, Count: &airship.NodeCount{Active: 1}},
		},
		Services: airship.Services{
			LoadBalancerWorker: []airship.LoadBalancerWorker{{Service: airship.Service{NodeInterfaceID: "oam"}, NodePortRange: airship.PortRange{Start: 32001, End: 32003}}},
		},
	}}
	require.NoError(t, admin.Create(t.Context(), sip))

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- operator.Run(ctx, cluster.SIPOperator.Config(cfg), operator.Options{
			Controllers: operator.SIP, LeaderElect: true, Log: logr.Discard(), SeveralInProcess: true,
		})
	}()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })

	var ready metav1.Condition
	for begun := time.Now(); ready.Reason != airship.ReasonInfraServiceFailure || sip.Status.Namespace == ""; time.Sleep(50 * time.Millisecond) {
		require.Less(t, time.Since(begun), 3*time.Minute, ready.Message)
		require.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(sip), sip))
		is := meta.FindStatusCondition(sip.Status.Conditions, v1alpha1.ConditionReady)
		ready = ptr.Deref(is, metav1.Condition{Message: "no condition"})
	}
	require.Contains(t, ready.Message, "find DriverBundle", "services need the bundle, hosts do not")
	require.NoError(t, admin.Get(t.Context(), client.ObjectKey{Name: sip.Status.Namespace}, &corev1.Namespace{}))
}

func TestNoAccountReadsCredentialsOfVCentersAndOfHosts(t *testing.T) {
	admin := cluster.Client(t, cluster.Config(t))
	for _, ns := range []string{"metal3", "tenants"} {
		require.NoError(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})))
	}
	for _, f := range []string{"driver-namespaces.yaml", "namespaces.yaml", "rbac.yaml", "sip/namespace.yaml", "sip/rbac.yaml", "sip/bindings.yaml"} {
		applyFile(t, admin, filepath.Join("deploy", f))
	}
	for _, c := range []struct {
		account, namespace string
		allowed            bool
	}{
		{sipAccount, "metal3", true}, {sipAccount, "tenants", true}, {sipAccount, "vmware-system-sip", true},
		{sipAccount, "vmware-system-vdo", false}, {sipAccount, "kube-system", false}, {sipAccount, "vmware-system-csi", false}, {sipAccount, "default", false},
		{driverAccount, "vmware-system-vdo", true}, {driverAccount, "metal3", false}, {driverAccount, "tenants", false}, {driverAccount, "vmware-system-sip", false},
	} {
		for _, verb := range []string{"get", "list", "watch"} {
			if c.allowed && verb != "get" {
				continue
			}
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: c.account, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.namespace, Verb: verb, Resource: "secrets"},
			}}
			require.NoError(t, admin.Create(t.Context(), review))
			require.Equal(t, c.allowed, review.Status.Allowed, "%s %s in %s", c.account, verb, c.namespace)
		}
	}
}

// The sample is accepted with a key, and refused while it has the placeholder.
func TestTheSIPSampleApplies(t *testing.T) {
	admin := cluster.Client(t, cluster.Config(t))
	for _, ns := range []string{"vmware-system-sip", "tenants"} {
		require.NoError(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})))
	}
	sample, err := os.ReadFile(filepath.Join(toolchain.Root(), "deploy", "sip", "sample.yaml"))
	require.NoError(t, err)
	require.ErrorContains(t, applied(t, admin, sample, client.DryRunAll), "spec.services.jumpHost[0].sshAuthorizedKeys[0]")
	yours := bytes.ReplaceAll(sample, []byte("YOUR-PUBLIC-KEY"), []byte("AAAA"))
	require.NoError(t, applied(t, admin, yours, client.DryRunAll))
}

func applyFile(t *testing.T, c client.Client, path string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(toolchain.Root(), path))
	require.NoError(t, err)
	require.NoError(t, applied(t, c, data), path)
}

func applied(t *testing.T, c client.Client, data []byte, opts ...client.ApplyOption) error {
	t.Helper()
	objects, err := cluster.Objects(data)
	require.NoError(t, err)
	opts = append(opts, client.FieldOwner("test"), client.ForceOwnership)
	var errs []error
	for _, u := range objects {
		errs = append(errs, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), opts...))
	}
	return errors.Join(errs...)
}
