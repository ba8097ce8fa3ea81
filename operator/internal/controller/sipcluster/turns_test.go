package sipcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
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

// A tenant with a thousand SIPClusters, all of them due without end, makes another wait for
// one pass.
func TestNamespacesTakeTurns(t *testing.T) {
	q := newTurns("test", workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Millisecond, time.Second))
	defer q.ShutDown()
	for i := range 1000 {
		q.Add(request("many", fmt.Sprint(i)))
	}
	q.Add(request("one", "a"))
	q.Add(request("two", "a"))
	q.Add(request("two", "b"))
	var got []string
	for range 7 {
		r, _ := q.Get()
		got = append(got, r.String())
		q.Done(r)
		if r.Namespace == "many" {
			q.Add(r) // at once again
		}
	}
	require.Equal(t, []string{"many/0", "one/a", "two/a", "many/1", "two/b", "many/2", "many/3"}, got)
	require.Equal(t, 1000, q.Len())
	q.Add(request("one", "a"))
	q.Add(request("one", "a"))
	first, _ := q.Get()
	second, _ := q.Get()
	require.Equal(t, []string{"many/4", "one/a"}, []string{first.String(), second.String()})
	require.Equal(t, 999, q.Len(), "what is added twice is done once")
}

// Labels that anybody can set start no pass for another namespace, and take no memory.
func TestLabelsOfOthersStartNothing(t *testing.T) {
	labels := map[string]string{render.LabelManagedBy: render.ManagedBy, airship.LabelClusterNamespace: "tenants", airship.LabelClusterName: "one", "x": "y"}
	large := map[string]string{"x": strings.Repeat("x", 1<<20)}
	for _, o := range []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "d", ResourceVersion: "1", Labels: labels, Annotations: large}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "d", ResourceVersion: "1", Labels: labels, Annotations: large}, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}},
	} {
		kept, err := trimOurs(o)
		require.NoError(t, err)
		data, err := json.Marshal(kept)
		require.NoError(t, err)
		require.Less(t, len(data), 1024)
		trimmed, isObject := kept.(client.Object)
		require.True(t, isObject)
		require.Equal(t, []reconcile.Request{request("tenants", "one")}, ofLabels(t.Context(), trimmed))
		require.Equal(t, "1", trimmed.GetResourceVersion())
		trimmed.SetNamespace("another")
		require.Empty(t, ofLabels(t.Context(), trimmed))
	}
}

// queueOf notes what is added, and after what time.
type queueOf struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added map[string]time.Duration
}

func (q queueOf) Add(r reconcile.Request)                        { q.added[r.String()] = 0 }
func (q queueOf) AddAfter(r reconcile.Request, in time.Duration) { q.added[r.String()] = in }

// What holds a host hears of it at once, what lacks one when its changes have settled, and
// nobody else does.
func TestWhoHearsOfAHost(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, airship.AddToScheme(scheme))
	of := func(name string, st airship.SIPClusterStatus) *airship.SIPCluster {
		return &airship.SIPCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "t", Name: name}, Status: st}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		of("lacks", airship.SIPClusterStatus{Missing: []airship.MissingHosts{{Role: airship.RoleWorker, Count: 1}}}),
		of("failed", airship.SIPClusterStatus{Hosts: []airship.HostStatus{{Name: "h", Problem: "it failed"}}}), of("content", airship.SIPClusterStatus{}),
	).Build()
	free, held := hostObject(types.NamespacedName{Namespace: "m", Name: "h"}), hostObject(types.NamespacedName{Namespace: "m", Name: "h"})
	held.SetAnnotations(map[string]string{airship.AnnotationClaim: "Worker t/content"})
	h := users{c}.hosts()
	for name, c := range map[string]struct {
		tell func(context.Context, queueOf)
		want map[string]time.Duration
	}{
		"free": {func(ctx context.Context, q queueOf) { h.Create(ctx, event.CreateEvent{Object: free}, q) }, map[string]time.Duration{"t/lacks": settling, "t/failed": settling}},
		"held": {func(ctx context.Context, q queueOf) { h.Delete(ctx, event.DeleteEvent{Object: held}, q) }, map[string]time.Duration{"t/content": 0}},
		"given back": {func(ctx context.Context, q queueOf) {
			h.Update(ctx, event.UpdateEvent{ObjectOld: held, ObjectNew: free}, q)
		}, map[string]time.Duration{"t/content": 0, "t/lacks": settling, "t/failed": settling}},
	} {
		q := queueOf{added: map[string]time.Duration{}}
		c.tell(t.Context(), q)
		require.Equal(t, c.want, q.added, name)
	}
}

// What never ends is looked at ever less often.
func TestTheWaitForWhatNeverEndsGrows(t *testing.T) {
	now := time.Now()
	after := func(age time.Duration) time.Duration {
		sip := &airship.SIPCluster{Status: airship.SIPClusterStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-age))},
		}}}
		require.Equal(t, reconciler.Next{AtMost: soon(sip.Status.Conditions, now)}, removing{waits: "Deployment ns/x", now: now}.Next(sip))
		return soon(sip.Status.Conditions, now)
	}
	require.Equal(t, reconciler.Soon, soon(nil, now))
	require.Equal(t, reconciler.Soon, after(0))
	require.Equal(t, reconciler.Soon, after(-time.Hour), "clocks differ")
	require.Equal(t, 10*time.Second, after(80*time.Second))
	require.Equal(t, maxSoon, after(24*time.Hour))
}

// Whatever a tenant and the hosts' owners write, a status has room, and those of the hosts
// that a person has to look at are in it.
func TestStatusIsBounded(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	key := types.NamespacedName{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("t", 63)}
	p := &pass{
		Reconciler: &Reconciler{Options: Options{Now: time.Now}}, key: key, sip: &airship.SIPCluster{},
		cluster:   choose.Cluster{NamespacedName: key, UID: "u"},
		extracted: map[types.NamespacedName]*extracted{}, snapshot: snapshot{hosts: map[types.NamespacedName]*host{}}, applied: true,
	}
	for i := range 8 {
		p.sip.Spec.Services.JumpHost = append(p.sip.Spec.Services.JumpHost, airship.JumpHost{Service: airship.Service{NodeInterfaceID: fmt.Sprint(i)}})
	}
	for range 32 {
		p.states = append(p.states, state{applied: true, Service: services.Service{Name: strings.Repeat("s", 63), Kind: services.JumpHost, Image: strings.Repeat("i", 1100), Ports: []services.Ports{{Start: 1, End: 1000}}}, message: long})
	}
	for _, role := range []airship.Role{airship.RoleControlPlane, airship.RoleWorker} {
		r := choose.Role{Role: role, Wanted: 2000, Missing: 3, TopologyKey: "rack", Problems: map[types.NamespacedName]string{}}
		for i := range 2000 {
			h := choose.Host{Namespace: strings.Repeat("m", 63), Name: fmt.Sprintf("%s%s%04d", role, strings.Repeat("h", 230), i), Claim: p.cluster.Claim(role), Labels: map[string]string{"rack": strings.Repeat("r", 63)}}
			p.snapshot.hosts[h.Key()] = &host{Host: h}
			e := &extracted{addresses: map[string][]netip.Addr{}}
			for n := range 8 {
				e.addresses[fmt.Sprint(n)] = []netip.Addr{netip.AddrFrom4([4]byte{10, byte(n), byte(i >> 8), byte(i)}), netip.AddrFrom16([16]byte{0xfd, byte(n), 15: byte(i)})}
			}
			p.extracted[h.Key()] = e
			if i == 1999 {
				r.Problems[h.Key()] = long
			}
			r.Keep = append(r.Keep, h)
		}
		for _, reason := range []choose.Reason{choose.ReasonTaken, choose.ReasonSelector, choose.ReasonNamespace, choose.ReasonDeleting, choose.ReasonConsumer, choose.ReasonPaused, choose.ReasonDetached, choose.ReasonState, choose.ReasonOperational, choose.ReasonNetworkData, choose.ReasonTopology} {
			x := choose.Refusal{Reason: reason, Count: 1 << 20}
			for range 5 {
				x.Hosts = append(x.Hosts, strings.Repeat("m", 63)+"/"+strings.Repeat("h", 253))
			}
			r.Refused = append(r.Refused, x)
		}
		p.choice.Roles = append(p.choice.Roles, r)
	}
	var sip airship.SIPCluster
	p.outcome(fmt.Errorf("%s", long)).Record(&sip)
	data, err := json.Marshal(sip.Status)
	require.NoError(t, err)
	require.Less(t, len(data), 400<<10)
	require.Equal(t, int32(4000), sip.Status.Held)
	require.Equal(t, int32(4000), sip.Status.HostsOmitted+int32(len(sip.Status.Hosts)))
	require.Greater(t, len(sip.Status.Hosts), 200)
	troubled := 0
	for _, h := range sip.Status.Hosts {
		if h.Problem != "" {
			troubled++
		}
	}
	require.Equal(t, 2, troubled)
}

// However many SIPClusters want what no host has, the network data of free hosts is read once
// in a while; who is taken is read in that pass.
func TestNetworkDataIsNotReadForEachSIPCluster(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c")
	reads := 0
	counting := interceptor.NewClient(w.own, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if strings.HasSuffix(key.Name, "-network") {
			reads++
		}
		return c.Get(ctx, key, o, opts...)
	}})
	r := w.operator(counting)
	const spec = `
nodes: {Worker: {FLAVOR, count: {active: 3}}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORTN, end: PORTN}, nodeInterfaceId: ID}]}
`
	for i := range 3 {
		name := fmt.Sprintf("t%d", i)
		w.sip(name, replace(replace(spec, "ID", name), "PORTN", fmt.Sprintf("PORT%d", i+1)))
		w.settle(r, name)
		require.Equal(t, airship.ReasonUnschedulable, w.ready(name).Reason)
	}
	require.Equal(t, 3, reads)

	w.sip("good", replace(replace(spec, "ID", "oam"), "PORTN", "PORT4"))
	w.settle(r, "good")
	require.Equal(t, []string{"a", "b", "c"}, names(w.labelled("good")))
	require.Equal(t, []string{"a=10.1.1.97", "b=10.1.1.98", "c=10.1.1.99"}, w.backends("good", services.LoadBalancerWorker))

	// A host that changes is read anew, and so is every one after a while.
	w.hosts("d")
	w.settle(r, "t0")
	before := reads
	w.edit("d", func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"x": "y"}) })
	w.settle(r, "t0")
	require.Equal(t, before+1, reads)
	w.now = w.now.Add(rememberFor)
	w.settle(r, "t0")
	require.Equal(t, before+2, reads)
}

// Whose a host is says which namespaces may take it, and names no Secret of another namespace.
func TestHostsOfOtherNamespaces(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c", "d")
	allow := func(name, namespaces string) { w.note(name, airship.AnnotationAllowedNamespaces, namespaces) }
	allow("a", "another")
	allow("b", "")
	allow("c", "another, "+w.ns)
	require.NoError(t, w.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "d-network"}, Data: map[string][]byte{"networkData": []byte(`{"networks":[{"id":"oam","type":"ipv4","ip_address":"10.3.0.1"}]}`)},
	}))
	w.edit("d", func(o *unstructured.Unstructured) {
		require.NoError(t, unstructured.SetNestedField(o.Object, w.ns, "spec", "networkData", "namespace"))
	})
	w.sip("t", workers)
	r := w.operator(w.own)
	w.settle(r, "t")
	require.Equal(t, []string{"c"}, names(w.claimed("t")))
	refused := map[string][]string{}
	for _, x := range w.get("t").Status.Missing[0].Refused {
		for _, h := range x.Hosts {
			if strings.HasPrefix(h, w.metal+"/") {
				refused[x.Reason] = append(refused[x.Reason], strings.TrimPrefix(h, w.metal+"/"))
			}
		}
	}
	require.Equal(t, map[string][]string{string(choose.ReasonNamespace): {"a", "b"}, string(choose.ReasonNetworkData): {"d"}}, refused)
	allow("c", "another")
	w.use("c")
	w.settle(r, "t")
	w.says("t", airship.ReasonUnschedulable, "2 of 3 Worker hosts are missing", false)
	require.Contains(t, w.get("t").Status.Hosts[0].Problem, "to this namespace, and Metal3Machine t/m uses it")
	w.edit("c", func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, "spec", "consumerRef") })
	w.settle(r, "t")
	require.Empty(t, w.claimed("t"), "what is held leaves when its owner no longer permits it")
	trimmed, err := TrimHost(w.bare("a"))
	require.NoError(t, err)
	require.Equal(t, readHost(w.bare("a")).Host, readHost(trimmed.(*unstructured.Unstructured)).Host) //nolint:forcetypeassert,errcheck // it is one
}
