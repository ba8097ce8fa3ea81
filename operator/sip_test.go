package operator_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
// tenant cluster its hosts and services, grows it, and takes all of it down.
func TestTenantClusterByTheAccountOfDeploySIP(t *testing.T) {
	cfg := cluster.Config(t)
	admin := sipClient(t, cfg)
	metal3.Install(t, cfg)
	for _, ns := range []string{"metal3", "tenants"} { // as bindings.yaml has them
		require.NoError(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})))
	}
	for _, f := range []string{
		"namespace.yaml", "rbac.yaml", "policy.yaml", "operator.yaml", "networkpolicy.yaml", "bindings.yaml",
	} {
		applyFile(t, admin, filepath.Join("deploy", "sip", f))
	}
	for _, h := range []metal3.Host{{Name: "cp-1", Address: "10.0.0.1"}, {Name: "cp-2", Address: "10.0.0.2"}, {Name: "w-1", Address: "10.0.1.1"}, {Name: "w-2"}, {Name: "w-3", Address: "10.0.1.3"}} {
		h.Namespace, h.Allowed, h.Labels = "metal3", "tenants", map[string]string{"flavor": h.Name[:1]}
		require.NoError(t, metal3.Create(t.Context(), admin, h))
	}
	sip := &airship.SIPCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "one"}, Spec: airship.SIPClusterSpec{
		Nodes: map[airship.Role]airship.NodeSet{
			airship.RoleControlPlane: {LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"flavor": "c"}}, Count: &airship.NodeCount{Active: 1}},
			airship.RoleWorker:       {LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"flavor": "w"}}, Count: &airship.NodeCount{Active: 2}},
		},
		Services: airship.Services{
			LoadBalancerControlPlane: []airship.LoadBalancerControlPlane{{Service: airship.Service{Image: "site/haproxy:3", NodeInterfaceID: "oam"}, NodePort: 32000}},
			LoadBalancerWorker:       []airship.LoadBalancerWorker{{Service: airship.Service{Image: "site/haproxy:3", NodeInterfaceID: "oam"}, NodePortRange: airship.PortRange{Start: 32001, End: 32003}}},
		},
	}}
	require.NoError(t, admin.Create(t.Context(), sip))

	as := rest.CopyConfig(cfg)
	as.Impersonate = rest.ImpersonationConfig{UserName: sipAccount,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:vmware-system-sip", "system:authenticated"}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- operator.Run(ctx, as, operator.Options{
			Controllers: operator.SIP, SIP: operator.SIPOptions{AllowOtherImages: true}, LeaderElect: true, Log: logr.Discard(), SeveralInProcess: true,
		})
	}()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })

	labels := client.MatchingLabels{airship.LabelClusterName: "one", airship.LabelClusterNamespace: "tenants"}
	eventually(t, admin, func() string { return readiness(t, admin, airship.ReasonSucceeded) })
	require.Equal(t, []string{"cp-1", "w-1", "w-2"}, labelledHosts(t, admin, labels), "also without network data")

	require.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(sip), sip))
	sip.Spec.Nodes[airship.RoleControlPlane].Count.Active = 2
	require.NoError(t, admin.Update(t.Context(), sip))
	eventually(t, admin, func() string {
		if got := labelledHosts(t, admin, labels); len(got) != 4 {
			return "hosts are labelled: " + readiness(t, admin, "")
		}
		return readiness(t, admin, airship.ReasonSucceeded)
	})
	require.NoError(t, admin.Delete(t.Context(), sip))
	eventually(t, admin, func() string {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(sip), &airship.SIPCluster{}); !apierrors.IsNotFound(err) {
			return readiness(t, admin, "")
		}
		return ""
	})
	require.Empty(t, labelledHosts(t, admin, labels))
	var left appsv1.DeploymentList
	require.NoError(t, admin.List(t.Context(), &left, client.InNamespace("tenants")))
	require.Empty(t, left.Items)
}

// No account can read both vCenters' credentials and those of hosts.
func TestNoAccountReadsCredentialsOfVCentersAndOfHosts(t *testing.T) {
	admin := sipClient(t, cluster.Config(t))
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

// The sample is accepted as it is.
func TestTheSIPSampleApplies(t *testing.T) {
	admin := sipClient(t, cluster.Config(t))
	for _, ns := range []string{"vmware-system-sip", "tenants"} {
		require.NoError(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})))
	}
	applyFile(t, admin, filepath.Join("deploy", "sip", "sample.yaml"), client.DryRunAll)
}

func sipClient(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s), airship.AddToScheme(s)))
	c, err := client.New(cfg, client.Options{Scheme: s})
	require.NoError(t, err)
	return c
}

func applyFile(t *testing.T, c client.Client, path string, opts ...client.ApplyOption) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(toolchain.Root(), path))
	require.NoError(t, err)
	for dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		u := &unstructured.Unstructured{}
		err := dec.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err, path)
		if len(u.Object) == 0 {
			continue
		}
		require.NoError(t, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), append(opts, client.FieldOwner("test"), client.ForceOwnership)...), "%s: %s", path, u.GetName())
	}
}

// readiness says what Ready says, or "" where its reason is the one wanted.
func readiness(t *testing.T, c client.Client, want string) string {
	t.Helper()
	var sip airship.SIPCluster
	require.NoError(t, client.IgnoreNotFound(c.Get(t.Context(), types.NamespacedName{Namespace: "tenants", Name: "one"}, &sip)))
	ready := meta.FindStatusCondition(sip.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return "no condition"
	case ready.Reason == want && ready.ObservedGeneration == sip.Generation:
		return ""
	}
	return ready.Reason + ": " + ready.Message
}

func labelledHosts(t *testing.T, c client.Client, labels client.MatchingLabels) []string {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(metal3.Kind)
	require.NoError(t, c.List(t.Context(), list, client.InNamespace("metal3"), labels))
	var names []string
	for _, h := range list.Items {
		names = append(names, h.GetName())
	}
	return names
}

// eventually plays the controllers that the API server lacks until a condition holds, which
// says what is missing.
func eventually(t *testing.T, c client.Client, missing func() string) {
	t.Helper()
	why := ""
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		rollOut(t, c)
		if why = missing(); why == "" {
			return
		}
	}
	t.Fatal(why)
}

func rollOut(t *testing.T, c client.Client) {
	t.Helper()
	var deployments appsv1.DeploymentList
	require.NoError(t, c.List(t.Context(), &deployments, client.InNamespace("tenants")))
	for i := range deployments.Items {
		d := &deployments.Items[i]
		n := *d.Spec.Replicas
		if d.DeletionTimestamp.IsZero() && d.Status.ObservedGeneration != d.Generation {
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
			if err := c.Status().Update(t.Context(), d); !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				require.NoError(t, err)
			}
		}
	}
	for _, kind := range []schema.GroupVersionKind{
		{Group: "apps", Version: "v1", Kind: "Deployment"}, {Version: "v1", Kind: "Service"}, {Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"},
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}, {Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		require.NoError(t, c.List(t.Context(), list, client.InNamespace("tenants")))
		for i := range list.Items {
			if o := &list.Items[i]; !o.DeletionTimestamp.IsZero() && len(o.Finalizers) > 0 {
				patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
				require.NoError(t, client.IgnoreNotFound(c.Patch(t.Context(), o, patch)))
			}
		}
	}
}
