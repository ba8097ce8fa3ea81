package deploy_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// The account that finds the operator's pods, and the one that scrapes them.
const finds, scrapes = "system:serviceaccount:monitoring:prometheus-k8s", "system:serviceaccount:" + namespace + ":vdo-operator-scrape"

// monitoring returns the object of a kind in the files of monitoring/.
func monitoring(t *testing.T, file, kind string, into any) {
	t.Helper()
	for _, u := range read(t, "monitoring/"+file) {
		if u.GetKind() == kind {
			data := must.Have(sigsyaml.Marshal(u.Object))(t)
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

	selector := must.Have(metav1.LabelSelectorAsSelector(&m.Spec.Selector))(t)
	require.Equal(t, namespace, m.Namespace)
	for _, u := range read(t, "operator.yaml") {
		if u.GetKind() != "Service" {
			continue
		}
		var s corev1.Service
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &s))
		require.True(t, selector.Matches(labels.Set(s.Labels)))
		require.Equal(t, m.Spec.Endpoints[0].Port, s.Spec.Ports[0].Name)
	}
}

func TestPrometheusMayScrapeAndNoMore(t *testing.T) {
	admin, _ := install(t)
	for _, u := range read(t, "monitoring/scrape.yaml") {
		if u.GetKind() != "ServiceMonitor" { // which is not built in
			require.NoError(t, apply(t.Context(), admin, u), "%s %s", u.GetKind(), u.GetName())
		}
	}
	for name, c := range map[string]struct {
		resource    *authorizationv1.ResourceAttributes
		nonResource *authorizationv1.NonResourceAttributes
		want        string // the account that may; "" for none
	}{
		"the metrics":                   {nonResource: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}, want: scrapes},
		"another path":                  {nonResource: &authorizationv1.NonResourceAttributes{Path: "/logs", Verb: "get"}},
		"the operator's pods":           {resource: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "pods"}, want: finds},
		"the operator's EndpointSlices": {resource: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "watch", Group: "discovery.k8s.io", Resource: "endpointslices"}, want: finds},
		"pods elsewhere":                {resource: &authorizationv1.ResourceAttributes{Namespace: "kube-system", Verb: "list", Resource: "pods"}},
		"the operator's Secrets":        {resource: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "get", Resource: "secrets"}},
		"the operator's resources":      {resource: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Group: "vdo.vmware.com", Resource: "vdoconfigs"}},
	} {
		for _, account := range []string{finds, scrapes} {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: account, Groups: []string{"system:serviceaccounts", "system:authenticated"},
				ResourceAttributes: c.resource, NonResourceAttributes: c.nonResource}}
			require.NoError(t, admin.Create(t.Context(), review))
			require.Equal(t, c.want == account, review.Status.Allowed, "%s: %s", name, account)
		}
	}
}

// A Prometheus that may read no file takes a ServiceMonitor all the same: its token is in a Secret.
func TestScrapesReadNoFile(t *testing.T) {
	for _, file := range []string{"scrape.yaml", "../sip/monitoring/scrape.yaml"} {
		var m monitoringv1.ServiceMonitor
		monitoring(t, file, "ServiceMonitor", &m)
		var token corev1.Secret
		monitoring(t, file, "Secret", &token)
		var who rbacv1.ClusterRoleBinding
		monitoring(t, file, "ClusterRoleBinding", &who)
		require.Equal(t, token.Name, m.Spec.Endpoints[0].Authorization.Credentials.Name)
		require.Equal(t, who.Subjects[0].Name, token.Annotations[corev1.ServiceAccountNameKey])
		require.Equal(t, []string{m.Namespace, m.Namespace}, []string{token.Namespace, who.Subjects[0].Namespace})
	}
}

// What `kubectl apply -k` applies: every file, and the dashboard word by word.
func TestTheMonitoringKustomization(t *testing.T) {
	out := must.Have(exec.Command(toolchain.Path(t, "kubectl"), "kustomize", "monitoring").Output())(t)
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
	require.ElementsMatch(t, []string{"ServiceMonitor", "ServiceAccount", "Secret", "ClusterRoleBinding", "Role", "RoleBinding", "NetworkPolicy", "PrometheusRule", "ConfigMap"}, kinds)
	require.Equal(t, "1", dashboard.GetLabels()["grafana_dashboard"])
	text, _, err := unstructured.NestedString(dashboard.Object, "data", "dashboard.json")
	require.NoError(t, err)
	want := must.Have(os.ReadFile("monitoring/dashboard.json"))(t)
	require.Equal(t, string(want), text)
}

// A cluster whose nodes are NotReady, for want of a network plug-in: the operator that is
// to install one starts there, as it is not without the variant for it.
func TestTheOperatorStartsOnNodesWithoutANetwork(t *testing.T) {
	c := cluster.New(t, cluster.Options{Kubelets: true}) // none joins but this one's Node
	admin := cluster.Client(t, c.Config())
	node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{
		{Key: cluster.TaintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule},
	}}}
	node.Name = "cp-1"
	node.Status.Allocatable = corev1.ResourceList{
		"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110"),
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	require.NoError(t, admin.Create(t.Context(), node))
	put := func(change func([]byte) ([]byte, error)) {
		for _, m := range append([]deploy.Manifest{deploy.DriverNamespaces()}, deploy.Manifests()...) {
			if m.Name == "networkpolicy.yaml" || m.Name == deploy.AntreaRights {
				continue
			}
			data, err := change(m.Data)
			require.NoError(t, err, m.Name)
			for _, u := range decode(t, m.Name, data) {
				require.NoError(t, apply(t.Context(), admin, u), "%s: %s %s", m.Name, u.GetKind(), u.GetName())
			}
		}
	}
	pods := func() []corev1.Pod {
		var list corev1.PodList
		require.NoError(t, admin.List(context.Background(), &list, client.InNamespace(namespace)))
		return list.Items
	}
	put(func(data []byte) ([]byte, error) { return data, nil })
	var ns corev1.Namespace
	require.NoError(t, admin.Get(t.Context(), client.ObjectKey{Name: namespace}, &ns))
	require.Equal(t, "restricted", ns.Labels["pod-security.kubernetes.io/enforce"])
	require.Eventually(t, func() bool {
		all := pods()
		return len(all) == 1 && len(all[0].Status.Conditions) > 0 && all[0].Status.Conditions[0].Reason == corev1.PodReasonUnschedulable
	}, time.Minute, 50*time.Millisecond, "without the variant there is no node for it")

	put(deploy.OnHostNetwork)
	require.Eventually(t, func() bool {
		for _, p := range pods() {
			if p.Spec.HostNetwork && p.Spec.NodeName != "" && p.DeletionTimestamp.IsZero() {
				return true // its kubelet needs no network to start it
			}
		}
		return false
	}, time.Minute, 50*time.Millisecond, "no node for the variant either")
	var d appsv1.Deployment
	require.NoError(t, admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "vdo-operator"}, &d))
	require.Equal(t, "0", d.Spec.Strategy.RollingUpdate.MaxSurge.String(), "on one node, the new pod needs the ports of the old one")
}
