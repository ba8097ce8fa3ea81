package deploy_test

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

const prometheus = "system:serviceaccount:monitoring:prometheus-k8s"

// monitoring returns the object of a kind in the files of monitoring/.
func monitoring(t *testing.T, file, kind string, into any) {
	t.Helper()
	for _, u := range read(t, "monitoring/"+file) {
		if u.GetKind() == kind {
			data, err := sigsyaml.Marshal(u.Object)
			require.NoError(t, err)
			require.NoError(t, sigsyaml.UnmarshalStrict(data, into), "%s %s", file, kind)
			return
		}
	}
	t.Fatalf("%s has no %s", file, kind)
}

// The types of the prometheus-operator know every field, and the ServiceMonitor finds
// the Service's port.
func TestTheMonitoringResourcesAreWhatThePrometheusOperatorReads(t *testing.T) {
	var m monitoringv1.ServiceMonitor
	monitoring(t, "scrape.yaml", "ServiceMonitor", &m)
	var r monitoringv1.PrometheusRule
	monitoring(t, "rules.yaml", "PrometheusRule", &r)
	require.NotEmpty(t, r.Spec.Groups)

	selector, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
	require.NoError(t, err)
	require.Equal(t, namespace, m.Namespace)
	var ports []string
	var container int32
	for _, u := range read(t, "operator.yaml") {
		switch u.GetKind() {
		case "Service":
			var s corev1.Service
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &s))
			require.True(t, selector.Matches(labels.Set(s.Labels)))
			for _, p := range s.Spec.Ports {
				ports = append(ports, p.Name)
			}
		case "Deployment":
			var d appsv1.Deployment
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &d))
			for _, p := range d.Spec.Template.Spec.Containers[0].Ports {
				if p.Name == "metrics" {
					container = p.ContainerPort
				}
			}
		}
	}
	for _, e := range m.Spec.Endpoints {
		require.Contains(t, ports, e.Port)
	}
	var policy networkingv1.NetworkPolicy
	monitoring(t, "scrape.yaml", "NetworkPolicy", &policy)
	require.Equal(t, container, policy.Spec.Ingress[0].Ports[0].Port.IntVal)
}

// monitored applies what is built in, beside the install manifests.
func monitored(t *testing.T) client.Client {
	t.Helper()
	admin, _ := install(t)
	for _, u := range read(t, "monitoring/scrape.yaml") {
		if u.GetKind() != "ServiceMonitor" {
			require.NoError(t, apply(t.Context(), admin, u), "%s %s", u.GetKind(), u.GetName())
		}
	}
	return admin
}

func TestPrometheusMayScrapeAndNoMore(t *testing.T) {
	admin := monitored(t)
	for name, c := range map[string]struct {
		resource    *authorizationv1.ResourceAttributes
		nonResource *authorizationv1.NonResourceAttributes
		want        bool
	}{
		"the metrics":                   {nonResource: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}, want: true},
		"another path":                  {nonResource: &authorizationv1.NonResourceAttributes{Path: "/logs", Verb: "get"}},
		"the operator's pods":           {resource: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "pods"}, want: true},
		"the operator's EndpointSlices": {resource: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "watch", Group: "discovery.k8s.io", Resource: "endpointslices"}, want: true},
		"pods elsewhere":                {resource: &authorizationv1.ResourceAttributes{Namespace: "kube-system", Verb: "list", Resource: "pods"}},
		"the operator's Secrets":        {resource: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "get", Resource: "secrets"}},
		"the operator's resources":      {resource: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Group: "vdo.vmware.com", Resource: "vdoconfigs"}},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: prometheus, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:monitoring", "system:authenticated"},
			ResourceAttributes: c.resource, NonResourceAttributes: c.nonResource}}
		require.NoError(t, admin.Create(t.Context(), review))
		require.Equal(t, c.want, review.Status.Allowed, name)
	}
}

// ingress tells whether policies let a pod of a namespace reach a port of the operator's
// pod, as policy engines judge it: a pod that any policy selects for ingress is reached by
// what one of them allows.
func ingress(t *testing.T, all []networkingv1.NetworkPolicy, from, pod labels.Set, port int32) bool {
	t.Helper()
	matches := func(s *metav1.LabelSelector, of labels.Set) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		require.NoError(t, err)
		return s == nil || selector.Matches(of)
	}
	selected := false
	for _, p := range all {
		if !matches(&p.Spec.PodSelector, labels.Set{"app.kubernetes.io/name": "vdo-operator"}) || !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			continue
		}
		selected = true
		for _, rule := range p.Spec.Ingress {
			peer := len(rule.From) == 0 || slices.ContainsFunc(rule.From, func(f networkingv1.NetworkPolicyPeer) bool {
				return matches(f.NamespaceSelector, from) && matches(f.PodSelector, pod)
			})
			to := len(rule.Ports) == 0 || slices.ContainsFunc(rule.Ports, func(q networkingv1.NetworkPolicyPort) bool { return q.Port.IntVal == port })
			if peer && to {
				return true
			}
		}
	}
	return !selected
}

func TestOnlyPrometheusReachesTheOperator(t *testing.T) {
	admin := monitored(t)
	var with networkingv1.NetworkPolicyList
	require.NoError(t, admin.List(t.Context(), &with, client.InNamespace(namespace)))
	without := slices.DeleteFunc(slices.Clone(with.Items), func(p networkingv1.NetworkPolicy) bool { return p.Name == "vdo-operator-scrape" })
	require.Len(t, without, len(with.Items)-1)
	from, pod := labels.Set{"kubernetes.io/metadata.name": "monitoring"}, labels.Set{"app.kubernetes.io/name": "prometheus"}
	require.True(t, ingress(t, with.Items, from, pod, 8443))
	require.False(t, ingress(t, with.Items, from, pod, 8081), "no other port")
	require.False(t, ingress(t, with.Items, from, labels.Set{"app.kubernetes.io/name": "grafana"}, 8443), "no other pod")
	require.False(t, ingress(t, with.Items, labels.Set{"kubernetes.io/metadata.name": "tenant"}, pod, 8443), "no pod elsewhere that says it is one")
	require.False(t, ingress(t, without, from, pod, 8443), "without monitoring nobody")
}

// What `kubectl apply -k` applies: every file, and the dashboard word by word.
func TestTheMonitoringKustomization(t *testing.T) {
	out, err := exec.Command(toolchain.Path(t, "kubectl"), "kustomize", "monitoring").Output()
	require.NoError(t, err)
	path := t.TempDir() + "/all.yaml"
	require.NoError(t, os.WriteFile(path, out, 0o600))
	var kinds []string
	var dashboard *unstructured.Unstructured
	for _, u := range read(t, path) {
		kinds = append(kinds, u.GetKind())
		if u.GetKind() == "ConfigMap" {
			dashboard = u
		}
	}
	require.ElementsMatch(t, []string{"ServiceMonitor", "ClusterRoleBinding", "Role", "RoleBinding", "NetworkPolicy", "PrometheusRule", "ConfigMap"}, kinds)
	require.Equal(t, "1", dashboard.GetLabels()["grafana_dashboard"])
	text, _, err := unstructured.NestedString(dashboard.Object, "data", "dashboard.json")
	require.NoError(t, err)
	want, err := os.ReadFile("monitoring/dashboard.json")
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}
