package sipcluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// Labels that anybody can set start no pass for another namespace, and take no memory.
func TestLabelsOfOthersStartNothing(t *testing.T) {
	home := services.Namespace(types.NamespacedName{Namespace: "tenants", Name: "one"})
	ours := metav1.ObjectMeta{Namespace: home, Name: "d", ResourceVersion: "1", Labels: map[string]string{
		render.LabelManagedBy: render.ManagedBy, airship.LabelClusterNamespace: "tenants", airship.LabelClusterName: "one", "x": "y",
	}, Annotations: map[string]string{"x": strings.Repeat("x", 1<<20)}}
	trimmed := &metav1.PartialObjectMetadata{ObjectMeta: ours}
	_, err := trimOurs(trimmed)
	require.NoError(t, err)
	require.Less(t, len(mustJSON(t, trimmed)), 1024)
	require.Equal(t, []reconcile.Request{request("tenants", "one")}, ofLabels(t.Context(), trimmed))
	trimmed.SetNamespace("tenants")
	require.Empty(t, ofLabels(t.Context(), trimmed))
}

// The holder of a host hears of it, or who lacks one, or has one that failed.
func TestWhoHearsOfAHost(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, airship.AddToScheme(scheme))
	now := metav1.Now()
	of := func(name string, st airship.SIPClusterStatus) *airship.SIPCluster {
		return &airship.SIPCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "t", Name: name}, Status: st}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		of("lacks", airship.SIPClusterStatus{Missing: []airship.MissingHosts{{Role: airship.RoleWorker, Count: 1}}}),
		of("failed", airship.SIPClusterStatus{Hosts: []airship.HostStatus{{Name: "h", FailedSince: &now}}}),
		of("content", airship.SIPClusterStatus{}),
	).Build()
	hear := users{c}.ofHost
	require.ElementsMatch(t, []reconcile.Request{request("t", "lacks"), request("t", "failed")}, hear(t.Context(), hostIn("h", "", "OK")))
	require.Equal(t, []reconcile.Request{request("t", "content")}, hear(t.Context(), hostIn("h", "Worker t/content", "OK")))
}

// The management API is where its Service is, and behind that.
func TestTheManagementAPIIsFound(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(corev1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme)))
	meta, port := metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, int32(6443)
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			ClusterIPs: []string{"10.96.0.1", "fd00:96::1"}, Ports: []corev1.ServicePort{{Port: 443}},
		}},
		&discoveryv1.EndpointSlice{
			ObjectMeta: meta, Ports: []discoveryv1.EndpointPort{{Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.11"}}, {Addresses: []string{"10.0.0.12"}}},
		},
	).Build()
	p := &pass{Reconciler: &Reconciler{Reader: reader}}
	require.NoError(t, p.findAPIServers(t.Context()))
	require.Equal(t, "[10.96.0.1:443 [fd00:96::1]:443 10.0.0.11:6443 10.0.0.12:6443]", fmt.Sprint(p.apiServers))
}

// What never ends is looked at ever less often.
func TestTheWaitForWhatNeverEndsGrows(t *testing.T) {
	now := time.Now()
	after := func(age time.Duration) time.Duration {
		return soon([]metav1.Condition{
			{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-age))},
		}, now)
	}
	require.Equal(t, reconciler.Soon, soon(nil, now))
	require.Equal(t, reconciler.Soon, after(0))
	require.Equal(t, reconciler.Soon, after(-time.Hour), "clocks differ")
	require.Equal(t, 10*time.Second, after(80*time.Second))
	require.Equal(t, maxSoon, after(24*time.Hour))
}

// Whose a host is says which namespaces may take it, and names no Secret of another namespace.
func TestHostsOfOtherNamespaces(t *testing.T) {
	w, r := start(t)
	w.hosts("a", "b", "c", "d")
	allow := func(name, namespaces string) { w.note(name, airship.AnnotationAllowedNamespaces, namespaces) }
	allow("a", "another")
	allow("b", "")
	allow("c", "another, "+w.ns)
	w.edit("d", func(o *choose.BareMetalHost) { o.Spec.NetworkData.Namespace = w.ns })
	w.sip("t", workers)
	w.settle(r, "t")
	require.Equal(t, []string{"c", "d"}, names(w.claimed("t")))
	require.Contains(t, w.get("t").Status.Hosts[1].Problem, "/d-network, of another namespace")
	require.Equal(t, []string{"c=10.1.1.99"}, w.backends("t", services.LoadBalancerWorker))
	w.edit("d", func(o *choose.BareMetalHost) { o.Spec.NetworkData.Namespace = "" })
	refused := map[string][]string{}
	for _, x := range w.get("t").Status.Missing[0].Refused {
		for _, h := range x.Hosts {
			if strings.HasPrefix(h, w.metal+"/") {
				refused[x.Reason] = append(refused[x.Reason], strings.TrimPrefix(h, w.metal+"/"))
			}
		}
	}
	require.Equal(t, map[string][]string{string(choose.ReasonNamespace): {"a", "b"}}, refused)
	allow("c", "another")
	w.use("c", true)
	w.settle(r, "t")
	w.says("t", airship.ReasonUnschedulable, "1 of 3 Worker hosts are missing", false)
	require.Contains(t, w.get("t").Status.Hosts[0].Problem, "to this namespace, and Metal3Machine t/m uses it")
	w.use("c", false)
	w.settle(r, "t")
	require.Equal(t, []string{"d"}, names(w.claimed("t")), "what is held leaves when its owner no longer permits it")
}
