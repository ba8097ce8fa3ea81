package sipcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// pod makes a pod of a service that runs.
func (w *world) pod(name, service string) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: services.PodLabels(service), Finalizers: []string{"test.site/runs"}, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: service, UID: "u", Controller: new(true)},
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	require.NoError(w, w.Create(w.Context(), pod))
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, "10.9.0.7", []corev1.PodIP{{IP: "10.9.0.7"}}
	require.NoError(w, w.Status().Update(w.Context(), pod))
	return pod
}

// A host is given back when the pods that lead there have ended: not when the API server has the
// configuration.
func TestAHostIsGivenBackWhenNoPodLeadsThere(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c")
	const spec = `
nodes: {Worker: {FLAVOR, count: {active: N}}}
services:
  loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]
  jumpHost: [{nodePort: PORT2, nodeInterfaceId: oam, bmc: {}}]
`
	w.sip("t", replace(spec, "N", "3"))
	r := w.operator(w.own)
	r.Render, r.Rand = services.Render, rand.Reader
	w.settle(r, "t")
	for _, service := range []string{services.Name("t", services.JumpHost, 0), services.Name("t", services.LoadBalancerWorker, 0)} {
		leads := w.pod("old", service)
		require.NoError(t, w.Delete(t.Context(), leads))
		w.change("t", replace(spec, "N", "2"))
		w.settle(r, "t")
		require.Equal(t, []string{"a", "b", "c"}, names(w.claimed("t")))
		require.Equal(t, []string{"a", "b", "c"}, names(w.labelled("t")))
		require.Contains(t, w.ready("t").Message, "hosts leave: "+w.metal+"/c; pod old is ending")
		w.ended(leads)
		w.settle(r, "t")
		require.Equal(t, []string{"a", "b"}, names(w.claimed("t")))
		require.Equal(t, []string{"a", "b"}, names(w.labelled("t")))
		require.Equal(t, metav1.ConditionTrue, w.ready("t").Status)
		w.change("t", replace(spec, "N", "3"))
		w.settle(r, "t")
	}
}

// ended has a pod end.
func (w *world) ended(pod *corev1.Pod) {
	w.Helper()
	require.NoError(w, client.IgnoreNotFound(w.Delete(w.Context(), pod)))
	require.NoError(w, w.Patch(w.Context(), pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}

// waits has an operator make passes, and looks that hosts stay and what Ready says.
func (w *world) waits(r *Reconciler, why string) {
	w.Helper()
	for range 10 {
		require.NoError(w, w.pass(r, "t"))
		w.play()
	}
	require.Equal(w, []string{"a", "b"}, names(w.claimed("t")), "hosts were given back while a pod leads there")
	require.Contains(w, w.ready("t").Message, why)
}

// Deployments that go otherwise than by the operator (the deletion of the namespace, kubectl delete,
// which waits for no pods, or with --cascade=orphan) leave their pods: hosts are kept for as long, also
// when the namespace's deletion has taken the RoleBinding.
func TestHostsOfADeletedSIPClusterWaitForPods(t *testing.T) {
	w := start(t)
	s, r := w.served()
	balancer := services.Name("t", services.LoadBalancerWorker, 0)
	ends, orphan := w.pod("ends", balancer), w.pod("orphan", services.Name("t", services.JumpHost, 7))
	require.NoError(t, w.Delete(t.Context(), s))
	for _, o := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}} {
		require.NoError(t, w.Get(t.Context(), types.NamespacedName{Namespace: w.ns, Name: balancer}, o))
		require.NoError(t, w.Delete(t.Context(), o))
	}
	require.NoError(t, w.Delete(t.Context(), ends))
	w.waits(r, "services are removed, hosts are not given back yet: pod ends is ending")
	require.NoError(t, w.DeleteAllOf(t.Context(), &rbacv1.RoleBinding{}, client.InNamespace(w.ns)))
	w.ended(ends)
	w.waits(r, "pod orphan runs on though its Deployment is gone: delete it")

	blind := w.operator(interceptor.NewClient(w.own, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, isPods := list.(*corev1.PodList); isPods {
				return apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no"))
			}
			return c.List(ctx, list, opts...)
		},
	}))
	w.waits(blind, "list pods in namespace "+w.ns+": the operator may not, so that no host can be given back")
	require.Equal(t, airship.ReasonUnableToDecommission, w.ready("t").Reason)

	orphan.Status.Phase = corev1.PodSucceeded
	require.NoError(t, w.Status().Update(t.Context(), orphan))
	w.settle(r, "t")
	w.gone("t")
}

// The deletion of a tenant's namespace takes the services, and the RoleBinding with them. A host in use
// stays the SIPCluster's, which keeps the namespace, until it is free.
func TestANamespaceThatIsDeletedKeepsHostsInUse(t *testing.T) {
	w := start(t)
	s, r := w.served()
	w.use("a")
	require.NoError(t, w.Delete(t.Context(), s))
	require.NoError(t, w.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}))
	for _, o := range []client.Object{
		&appsv1.Deployment{}, &corev1.Service{}, &corev1.ConfigMap{}, &rbacv1.RoleBinding{},
	} {
		require.NoError(t, w.DeleteAllOf(t.Context(), o, client.InNamespace(w.ns)))
	}
	w.waits(r, "release hosts in use: "+w.metal+"/a: Metal3Machine t/m uses it")
	w.edit("a", func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, "spec", "consumerRef") })
	w.settle(r, "t")
	require.Nil(t, w.find("t"))
	require.Empty(t, w.claimed("t"))
	access.refused.Forget() // without the RoleBinding it reads nothing in the namespace
}

// So do hosts that leave: for pods of a service that is in the spec no more, and for ones that were
// left by the Deployment before.
func TestHostsThatLeaveWaitForPodsOfServicesThatAreGone(t *testing.T) {
	w := start(t)
	_, r := w.served()
	gone, left := w.pod("gone", services.Name("t", services.LoadBalancerControlPlane, 0)), w.pod("left", services.Name("t", services.LoadBalancerWorker, 0))
	left.OwnerReferences = nil
	require.NoError(t, w.Update(t.Context(), left))
	w.change("t", replace(balanced, "active: 2", "active: 1"))
	w.waits(r, "hosts leave: "+w.metal+"/b; pod left runs on though its Deployment is gone")
	w.ended(left)
	w.waits(r, "hosts leave: "+w.metal+"/b; pod gone runs on though its Deployment is gone")
	w.ended(gone)
	w.settle(r, "t")
	require.Equal(t, []string{"a"}, names(w.claimed("t")))
}

// Pods that have ended keep no host, however many there are: evictions leave them.
func TestPodsThatHaveEndedKeepNoHost(t *testing.T) {
	w := start(t)
	_, r := w.served()
	for i := range maxPods + 1 {
		pod := w.pod(fmt.Sprintf("evicted-%d", i), services.Name("t", services.LoadBalancerWorker, 0))
		pod.Status.Phase = corev1.PodFailed
		require.NoError(t, w.Status().Update(t.Context(), pod))
	}
	w.change("t", replace(balanced, "active: 2", "active: 1"))
	w.settle(r, "t")
	require.Equal(t, []string{"a"}, names(w.claimed("t")), w.ready("t").Message)
}

// Who has the SIPCluster hears of the pod whatever else is wrong, which may last: it is he who has to
// delete it.
func TestThePodThatHostsWaitForIsToldBesideWhatElseIsWrong(t *testing.T) {
	const lacks = `
nodes:
  ControlPlane: {FLAVOR, topologyKey: rack, count: {active: 2}}
  Worker: {FLAVOR, topologyKey: rack, count: {active: 2}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]}
`
	const login = `
nodes: {Worker: {FLAVOR, topologyKey: rack, count: {active: 2}}}
services:
  loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]
  auth: [{nodePort: PORT2, issuer: "https://login.site:30556", staticClients: [{id: c, secret: none, redirectURIs: ["https://c.site/c"]}]}]
`
	for name, c := range map[string]struct {
		hosts       []string
		spec, fewer string
		leaves      string
		reason, why string
		stalled     bool
		then        []string
	}{
		"hosts are missing": {
			[]string{"a", "b", "c"}, lacks, replace(lacks, "rack, count: {active: 2}}\n  Worker", "rack, count: {active: 1}}\n  Worker"), "b",
			airship.ReasonUnschedulable, "1 of 2 Worker hosts are missing", false, []string{"a", "b", "c"},
		},
		"a login cannot be rendered": {
			[]string{"a", "b"}, login, replace(login, "active: 2", "active: 1"), "b",
			airship.ReasonInfraServiceFailure, "spec.services.auth[0].staticClients[0].secret", true, []string{"a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			w.hosts(c.hosts...)
			w.sip("t", c.spec)
			r := w.whole()
			w.settle(r, "t")
			w.says("t", c.reason, c.why, c.stalled)
			left := w.pod("left", services.Name("t", services.LoadBalancerWorker, 0))
			left.OwnerReferences = nil
			require.NoError(t, w.Update(t.Context(), left))
			w.change("t", c.fewer)
			w.settle(r, "t")
			w.says("t", c.reason, c.why, c.stalled)
			require.Contains(t, w.ready("t").Message, "; hosts leave: "+w.metal+"/"+c.leaves+"; pod left runs on though its Deployment is gone")
			require.Equal(t, c.hosts, names(w.claimed("t")))
			w.ended(left)
			w.settle(r, "t")
			require.Equal(t, c.then, names(w.claimed("t")))
			require.NotContains(t, w.ready("t").Message, "hosts leave")
		})
	}
}
