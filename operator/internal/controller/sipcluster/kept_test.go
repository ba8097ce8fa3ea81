package sipcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

func TestAHostIsReleasedWhenNoPodLeadsThere(t *testing.T) {
	w, r := start(t)
	w.served(r)
	template := read[appsv1.Deployment](w, services.Name("t", services.LoadBalancerWorker, 0)).Spec.Template
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.home("t"), Name: "old", Labels: template.Labels, Finalizers: []string{"test.site/runs"},
	}, Spec: template.Spec}
	require.NoError(t, errors.Join(w.Create(t.Context(), pod), w.Delete(t.Context(), pod)))
	w.change("t", active(1))
	w.stands(r, "t", airship.ReasonProgressing, "a", "b")
	require.Contains(t, w.ready("t").Message, "hosts leave: "+w.metal+"/b; pod old is ending")
	require.NoError(t, w.Patch(t.Context(), pod, merge(`{"metadata":{"finalizers":null}}`)))
	w.stands(r, "t", airship.ReasonSucceeded, "a")
}

func TestAServiceThatIsNotReadyKeepsNoHost(t *testing.T) {
	w, r := start(t)
	w.sip("other", `services: {jumpHost: [{nodePort: PORT2}]}`)
	w.settle(r, "other")
	spec := replace(balanced, "services: {", "services: {jumpHost: [{nodePort: PORT3, nodeInterfaceId: oam}], ")
	w.settled(r, spec, "a", "b")
	spec = replace(replace(spec, "active: 2", "active: 1"), "PORT3", "PORT2")
	w.change("t", spec)
	w.stands(r, "t", airship.ReasonInfraServiceFailure, "a")
	again := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w.get("t"))}
	next := must.Have(reconcile.AsReconciler[object](r.Client, r).Reconcile(t.Context(), again))(t)
	require.LessOrEqual(t, next.RequeueAfter, 66*time.Second, "nothing tells that the port is free again")
	w.change("t", replace(replace(spec, "active: 1", "active: 2"), "PORT2", "PORT3"))
	w.stands(r, "t", airship.ReasonSucceeded, "a", "b")
	w.change("t", replace(replace(spec, "active: 1", "active: 0"), "PORT2", "PORT3, serviceType: LoadBalancer"))
	w.stands(r, "t", airship.ReasonProgressing)
}

// Hosts and services of a SIPCluster that is not there stay: it may be about to be restored. One of its
// name gets the services, and the hosts if someone has them adopted.
func TestALostSIPClusterIsRestored(t *testing.T) {
	w, r := start(t)
	was := w.served(r)
	w.sip("other", alone)
	// lose takes the finalizer off, or a restore brought the hosts and not yet the SIPCluster.
	lose := func() {
		bare := w.get("t")
		bare.Finalizers = nil
		require.NoError(t, errors.Join(w.Update(t.Context(), bare), w.Delete(t.Context(), bare)))
		require.Nil(t, w.find("t"))
	}
	before := w.objects("t")
	lose()
	w.settle(r, "other")
	require.Equal(t, []string{"a", "b"}, names(w.labelled("t")))
	require.Equal(t, airship.ReasonUnschedulable, w.ready("other").Reason)
	require.Equal(t, before, w.objects("t"))

	again := &airship.SIPCluster{Spec: was.Spec} // a backup has no status, and the API server gives another UID
	again.Namespace, again.Name = was.Namespace, was.Name
	require.NoError(t, w.Create(t.Context(), again))
	w.settle(r, "t")
	w.says(r, "t", airship.ReasonUnschedulable, "2 hosts are for an earlier one of this name: ", true)
	w.adopt(airship.RoleWorker, "a", "b")
	w.stands(r, "t", airship.ReasonSucceeded, "a", "b")
	require.Equal(t, before, w.objects("t"))

	// Who knows that it does not come back creates an empty one, and deletes it.
	lose()
	w.use("a", true)
	w.adopt(airship.RoleWorker, "a", "b")
	s := w.sip("t", `{}`)
	w.settle(r, "t")
	require.Equal(t, []string{"a"}, names(w.claimed("t")), "one that is in use stays")
	require.NoError(t, w.Delete(t.Context(), s))
	w.settle(r, "t")
	w.force("t")
	w.gone(r, "t")
}

var untrusted = &fault.Error{
	Reason: fault.Untrusted, Op: "use", Subject: "DriverBundle b", Err: errors.New("no key signed it"),
}

// While the bundle cannot be used each service keeps its own image, and nothing is installed
// or changed from it; while the mirror has not let a new login in, pods keep theirs.
func TestServicesKeepImageAndLogin(t *testing.T) {
	w, r := start(t)
	w.sip("t", `services: {jumpHost: [{nodePort: PORT1}]}`)
	login := []byte(`{"auths":{"m":{"auth":"eA=="}}}`)
	r.Bundles = bundles{login: login}
	w.settle(r, "t")
	deployment := func() *appsv1.Deployment {
		return read[appsv1.Deployment](w, services.Name("t", services.JumpHost, 0))
	}
	first := deployment()
	require.NotEmpty(t, first.Spec.Template.Spec.ImagePullSecrets)

	r.Bundles = bundles{}
	w.settle(r, "t")
	require.Equal(t, first.Spec, deployment().Spec, "the login is being tried at the mirror")
	pull := read[corev1.Secret](w, first.Spec.Template.Spec.ImagePullSecrets[0].Name)
	require.Equal(t, login, pull.Data[corev1.DockerConfigJsonKey])

	r.Bundles = bundles{err: untrusted}
	w.settle(r, "t")
	require.Equal(t, first.Spec, deployment().Spec)
	require.Contains(t, w.ready("t").Message, "the bundle cannot be used: use DriverBundle b: no key signed it")

	w.change("t", `services: {jumpHost: [{nodePort: PORT1}, {nodePort: PORT2}]}`)
	w.says(r, "t", airship.ReasonInfraServiceFailure, "no key signed it", true)
	unreachable := &fault.Error{Reason: fault.Unreachable, Op: "read", Subject: "mirror", Err: errors.New("no answer")}
	r.Bundles = bundles{err: unreachable}
	w.sip("other", `services: {jumpHost: [{nodePort: PORT3}]}`)
	w.says(r, "other", airship.ReasonInfraServiceFailure, "find the image of services.jumpHost: read mirror: no answer", false)
	require.NotContains(t, w.objects("t"), w.home("t")+"/"+services.Name("t", services.JumpHost, 1))
}

// failing is an operator whose nth request is answered by a code, and whether it came to that.
func (w *world) failing(n int64, code int) (r *Reconciler, failed func() bool) {
	var asked atomic.Int64
	c := w.through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if asked.Add(1) != n {
			return w.counting(r, next)
		}
		answer := httptest.NewRecorder()
		http.Error(answer, "not now", code)
		return answer.Result(), nil
	})
	return w.operator(c), func() bool { return asked.Load() >= n }
}

// has is what the status says that a SIPCluster has, not how that fares.
func (w *world) has(name string) airship.SIPClusterStatus {
	st := w.get(name).Status
	st.Conditions, st.ObservedGeneration = nil, 0
	for i := range st.Hosts {
		st.Hosts[i].Problem = ""
	}
	for i := range st.Services {
		st.Services[i].Ready, st.Services[i].Message = false, ""
	}
	return st
}

// Whichever request of a pass fails, the status goes on saying what the SIPCluster has and lacks,
// and services lead on to a host whose data cannot be read. So it does of a spec that cannot be understood.
func TestARequestThatFailsTakesNothingFromTheStatus(t *testing.T) {
	w, r := start(t)
	w.settled(r, active(3), "a", "b")
	w.says(r, "t", airship.ReasonUnschedulable, "1 of 3 Worker hosts are missing", false)
	text := w.backends("t", services.LoadBalancerWorker)
	network := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.metal, Name: "a-network"}}
	require.NoError(t, w.Delete(t.Context(), network))
	w.settle(w.operator(w.own), "t")
	has := w.has("t")
	require.Equal(t, []string{"10.1.1.97"}, has.Hosts[0].Addresses)
	require.Equal(t, []int32{3, 2, 1}, []int32{has.Wanted, has.Held, has.Missing[0].Count})
	told, whole := 0, false
	for n := 2; !whole; n += tier.Pick(3, 1) { // each request, in two ways; the first tier leaves some out
		before := w.ready("t").Message
		r, failed := w.failing(int64(n/2), []int{http.StatusInternalServerError, http.StatusForbidden}[n%2])
		_ = w.pass(r, "t") // where the resource is not read, or its status not written
		require.Equal(t, has, w.has("t"), "request %d: %s", n/2, w.ready("t").Message)
		if whole = !failed(); w.ready("t").Message != before {
			told++
		}
	}
	require.Greater(t, told, 8)
	w.settle(w.operator(w.own), "t")
	require.Equal(t, text, w.backends("t", services.LoadBalancerWorker))
	w.edit("a", func(o *choose.BareMetalHost) { // as where an earlier version read meta-data
		o.Spec.NetworkData, o.Spec.MetaData = corev1.SecretReference{}, corev1.SecretReference{Name: "meta"}
	})
	w.settle(w.operator(w.own), "t")
	require.Contains(t, w.ready("t").Message, "it names meta-data alone")
	require.Equal(t, text, w.backends("t", services.LoadBalancerWorker))
	w.change("t", `nodes: {Worker: {labelSelector: {matchExpressions: [{key: a, operator: Like}]}, count: {active: 7}}}`)
	w.says(w.operator(w.own), "t", airship.ReasonUnschedulable, "spec.nodes.Worker.labelSelector", true)
	has.Wanted = 7
	require.Equal(t, has, w.has("t"))
}

// oldCache has the hosts as they were at one time.
type oldCache struct {
	client.Reader
	hosts choose.BareMetalHostList
}

func (c *oldCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	hosts, ok := list.(*choose.BareMetalHostList)
	if !ok {
		return c.Reader.List(ctx, list, opts...)
	}
	*hosts = *c.hosts.DeepCopyObject().(*choose.BareMetalHostList) //nolint:forcetypeassert,errcheck // of hosts
	return nil
}

// A host that was given back, and that another tenant has by now, gets no service of the one
// before, however old the cache is that says that it is held.
func TestAnOldCacheLeadsNowhere(t *testing.T) {
	w, r := start(t)
	w.served(r)
	old, cache := w.operator(w.own), &oldCache{Reader: w.own}
	require.NoError(t, w.List(t.Context(), &cache.hosts, client.InNamespace(w.metal)))
	old.Hosts = cache

	w.change("t", active(1))
	w.stands(r, "t", airship.ReasonSucceeded, "a")
	w.sip("other", alone)
	w.stands(r, "other", airship.ReasonSucceeded, "b")

	w.change("t", balanced) // which the old cache says it has
	for range 3 {
		require.NoError(t, w.pass(old, "t"))
	}
	require.Equal(t, []string{"a=10.1.1.97"}, w.backends("t", services.LoadBalancerWorker))
	w.stands(r, "t", airship.ReasonUnschedulable, "a")
	require.Equal(t, []string{"b"}, names(w.claimed("other")))
}

// What is gone, is being deleted or is another one of the name by now gets no host, since no one would give it
// back, and takes nothing from the next one.
func TestNothingIsDoneForWhatIsGone(t *testing.T) {
	w, r := start(t)
	w.hosts("a", "b")
	s := w.sip("t", balanced)
	require.NoError(t, w.pass(r, "t")) // the finalizer
	seen, deleted := w.get("t"), &airship.SIPCluster{}
	require.NoError(t, w.Delete(t.Context(), s))
	for _, then := range []func(){
		func() { deleted = w.get("t") },
		func() { w.settle(r, "t") },
		func() { w.sip("t", balanced) },
	} {
		then()
		_, err := r.Pass(t.Context(), seen.DeepCopy())
		require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%v", err)
		require.Empty(t, w.bare("a").Annotations[airship.AnnotationClaim])
	}
	w.settle(r, "t")
	claim := w.bare("a").Annotations[airship.AnnotationClaim]
	require.Equal(t, clusterOf(w.get("t")).Claim(airship.RoleWorker), claim)
	before := w.writes.Load()
	_, err := r.Remove(t.Context(), deleted)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%v", err)
	require.Equal(t, before, w.writes.Load())
}

// Hosts stay allocated, though their claims have no UID and nobody has permitted them, which was the default. Images
// are those of a bundle that is verified: the tenant could change what ran. Events report the fields that have no
// effect any more, once.
func TestAnUpgradeMovesServices(t *testing.T) {
	w, _ := start(t)
	w.system = cluster.SIPOperator.Namespace() // where the shipped policy lets the operator write
	require.NoError(t, cluster.SIPOperator.Bind(t.Context(), w, servicesRole, w.ns))
	r := w.operator(w.own)
	w.settled(r, `
nodes: {Worker: {FLAVOR, count: {active: 2}}}
services:
  loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]
  jumpHost: [{nodePort: PORT2, nodeInterfaceId: oam, bmc: {}, nodeSSHPrivateKeys: missing, image: own}]
`, "a", "b")
	hosts, key := w.claimed("t"), read[corev1.Secret](w, services.Name("t", services.JumpHost, 0)+"-host-keys").Data
	record := w.makeFormer(r)
	w.adopt(airship.RoleWorker, "a", "b")
	w.permit(nil)
	require.NoError(t, w.Status().Patch(t.Context(), w.get("t"), merge(`{"status":{"namespace":""}}`)))
	r = w.operator(w.own)
	r.Bundles = bundles{err: untrusted}

	balancer := types.NamespacedName{Namespace: w.ns, Name: services.Name("t", services.LoadBalancerWorker, 0)}
	for pass := range 7 {
		if pass == 3 {
			require.Contains(t, w.ready("t").Message, "no key signed it")
			r.Bundles = bundles{}
		}
		require.NoError(t, w.pass(r, "t"))
		require.NoError(t, w.Get(t.Context(), balancer, &corev1.Service{}), "it runs until its replacement is ready")
		require.Equal(t, hosts, w.labelled("t"))
	}
	require.Contains(t, w.ready("t").Message, "provided port is already allocated")
	w.stands(r, "t", airship.ReasonSucceeded, "a", "b")
	notes := w.bare("a").Annotations
	require.Equal(t, clusterOf(w.get("t")).Claim(airship.RoleWorker), notes[airship.AnnotationClaim])
	require.Equal(t, w.ns, notes[airship.AnnotationAllowedNamespaces])
	require.Equal(t, key, read[corev1.Secret](w, services.Name("t", services.JumpHost, 0)+"-host-keys").Data)
	events := told(r, "FieldIgnored")
	require.Contains(t, events, "Ignored spec.services.jumpHost[0].bmc; create a HostAction")
	require.Contains(t, events, "Ignored spec.services.jumpHost[0].nodeSSHPrivateKeys; reach hosts with `ssh -J`")
	require.Contains(t, events, "Ignored spec.services.jumpHost[0].image; the bundle's image runs")
	require.NoError(t, w.pass(r, "t"))
	require.Empty(t, told(r, "FieldIgnored"), "nothing changed")
	for _, o := range w.objects("t") {
		require.True(t, strings.HasPrefix(o, w.home("t")+"/"), o)
	}
	require.True(t, w.Get(t.Context(), client.ObjectKeyFromObject(record), record) != nil, "the record is of nothing")
	require.NoError(t, w.Delete(t.Context(), w.get("t")))
	w.gone(r, "t")
}

// makeFormer moves the services of t to where an earlier version had them, with the record that it kept
// and BMC credentials that it copied.
func (w *world) makeFormer(r *Reconciler) *corev1.ConfigMap {
	p := r.begin(w.get("t"))
	existing := must.Have(p.read(w.Context(), p.home))(w)
	all := slices.Collect(maps.Values(existing))
	bmc := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}}
	bmc.SetLabels(all[0].GetLabels())
	bmc.SetName(services.Name("t", services.JumpHost, 0) + "-bmc")
	require.NoError(w, w.Delete(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.home}}))
	w.play("t")
	for _, o := range append(all, bmc) {
		made := &unstructured.Unstructured{Object: o.Object}
		made.SetNamespace(w.ns)
		made.SetUID("")
		made.SetResourceVersion("")
		made.SetManagedFields(nil)
		unstructured.RemoveNestedField(made.Object, "spec", "clusterIP")
		unstructured.RemoveNestedField(made.Object, "spec", "clusterIPs")
		require.NoError(w, w.Create(w.Context(), made))
	}
	id := inventory.ID{Key: inventory.Key{Kind: "Secret", Name: "x"}, Version: "v1"}
	record := w.record(inventory.Of(inventory.Entry{ID: id, Driver: "x"}))
	w.play("t")
	return record
}

// record makes that which an earlier version kept of t.
func (w *world) record(of inventory.Inventory) *corev1.ConfigMap {
	record := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.system, Name: "sip-inventory-of-" + w.ns + ".t"},
		Data:       map[string]string{inventory.DataKey: string(of.Marshal())},
	}
	require.NoError(w, w.Create(w.Context(), record))
	return record
}

// A record of nothing goes, also where no one gave rights to services in the tenant's namespace.
func TestARecordOfNothingGoes(t *testing.T) {
	w, _ := start(t)
	w.system = cluster.SIPOperator.Namespace()
	w.hosts("a")
	record := w.record(inventory.Inventory{})
	w.sip("t", alone)
	w.stands(w.operator(w.own), "t", airship.ReasonSucceeded, "a")
	require.Error(t, w.Get(t.Context(), client.ObjectKeyFromObject(record), record))
}

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

func TestLabelsOfOthersStartNothing(t *testing.T) {
	home := services.Namespace(types.NamespacedName{Namespace: "tenants", Name: "one"})
	ours := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: home, Labels: map[string]string{
		airship.LabelClusterNamespace: "tenants", airship.LabelClusterName: "one",
	}}}
	require.Equal(t, []reconcile.Request{request("tenants", "one")}, ofLabels(t.Context(), ours))
	ours.SetNamespace("tenants")
	require.Empty(t, ofLabels(t.Context(), ours))
}

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
	takers, holder := []reconcile.Request{request("t", "lacks"), request("t", "failed")}, request("t", "content")
	require.ElementsMatch(t, takers, hear(t.Context(), hostIn("h", "", "OK")))
	require.Equal(t, []reconcile.Request{holder}, hear(t.Context(), hostIn("h", "Worker t/content", "OK")))
}

// Services reach hosts where the operator's configuration allows it, by default in private networks, and never the
// management API.
func TestWhereHostsMayBe(t *testing.T) {
	meta, port := metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, int32(6443)
	reader := fake.NewClientBuilder().WithObjects(
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

	egress := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("203.0.113.0/24")}
	for address, reached := range map[string]struct{ byDefault, allowed bool }{
		"10.0.1.1": {true, true}, "192.168.7.7": {true, false}, "fd00::7": {true, false}, "203.0.113.1": {false, true},
		"10.96.0.1": {}, "::ffff:10.96.0.1": {}, "10.0.0.12": {},
		"127.0.0.1": {}, "169.254.169.254": {}, "fe80::1": {}, "198.51.100.1": {},
	} {
		p.Egress = nil
		require.Equal(t, reached.byDefault, !p.outOfReach(netip.MustParseAddr(address)), address)
		p.Egress = egress
		require.Equal(t, reached.allowed, !p.outOfReach(netip.MustParseAddr(address)), address)
	}
}

// step is one change of a SIPCluster, and what holds when it is carried out.
type step struct {
	name, spec string   // "": it is deleted
	breaks     string   // a host that fails
	roles      []string // of the hosts held in the end
}

// An operator that is killed leaves what the next one makes whole. In the nth round each change is made by an
// operator that is killed after its nth write, until one was made whole: each change begins where the one before
// ended. The first tier leaves out most writes.
func TestKilledAfterEveryWrite(t *testing.T) {
	const spec = `
nodes:
  ControlPlane: {FLAVOR, topologyKey: rack, count: {active: CP}}
  Worker: {FLAVOR, topologyKey: rack, count: {active: WORKERS, standby: 1}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]}
`
	of := func(cp, workers string) string { return replace(replace(spec, "CP", cp), "WORKERS", workers) }
	const cp, worker = "ControlPlane", "Worker"
	steps := []step{
		{name: "create", spec: of("1", "1"), roles: []string{cp, worker, worker}},
		{name: "replace", spec: of("1", "1"), breaks: "b", roles: []string{cp, worker, worker}},
		{name: "grow", spec: of("2", "2"), roles: []string{cp, cp, worker, worker, worker}},
		{name: "shrink", spec: of("1", "0"), roles: []string{cp, worker}},
		{name: "delete"},
	}
	w, _ := start(t)
	w.hosts("a", "b", "c", "d", "e", "f")
	lived := map[string]int{} // the write after which a step was no more cut short
	for n := 1; len(lived) < len(steps); n += tier.Pick(11, 1) {
		for _, s := range steps {
			switch now := w.find("t"); {
			case now == nil:
				w.sip("t", s.spec)
			case s.spec == "":
				require.NoError(w, w.Delete(w.Context(), now))
			default:
				w.change("t", s.spec)
			}
			if s.breaks != "" {
				w.fails(s.breaks, true)
			}
			if lived[s.name] == 0 && w.killOnce(n) {
				lived[s.name] = n
			}
			w.settle(w.operator(w.own), "t")
			if s.spec == "" {
				w.gone(w.operator(w.own), "t")
				continue
			}
			require.Equal(t, s.roles, slices.Sorted(maps.Values(w.labelled("t"))), "%s, killed after write %d", s.name, n)
			require.Equal(t, w.labelled("t"), w.claimed("t"), "%s, killed after write %d", s.name, n)
			require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
		}
		w.fails("b", false)
	}
	for name, n := range lived {
		require.Greater(t, n, 3, "%s was never killed", name)
	}
}

// killOnce carries out what was begun by an operator that is killed after its nth write, and tells whether it
// lived to the end. After its death, reads fail too.
func (w *world) killOnce(n int) (lived bool) {
	last := w.writes.Load() + int64(n)
	alive := func() bool { return w.writes.Load() < last }
	mortal := w.operator(w.through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !alive() {
			return nil, errKilled
		}
		return w.counting(r, next)
	}))
	for range 12 {
		before := w.writes.Load()
		err := w.pass(mortal, "t")
		require.True(w, err == nil || errors.Is(err, errKilled), "%v", err)
		if !w.play("t") && w.writes.Load() == before || !alive() {
			break
		}
	}
	return alive()
}

var errKilled = errors.New("killed")

// A status of many hosts omits some, but none that failed: the next pass reads since when from there.
func TestTheStatusOmitsNoFailedHost(t *testing.T) {
	sip := &airship.SIPCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "t", UID: "u"}}
	p := (&Reconciler{Now: time.Now}).begin(sip)
	var all []*choose.Host
	for i := range maxHosts + 2 {
		h := hostIn(fmt.Sprintf("w-%04d", i), p.cluster.Claim(airship.RoleWorker), "OK")
		all = append(all, &choose.Host{BareMetalHost: h, Permitted: true})
	}
	all[maxHosts+1].Status.OperationalStatus = "error"
	count := &airship.NodeCount{Active: maxHosts, Standby: 2}
	var err error
	p.choice, err = choose.Choose(p.cluster, map[airship.Role]airship.NodeSet{airship.RoleWorker: {Count: count}}, all)
	require.NoError(t, err)
	p.hostsInto(&sip.Status)
	require.Equal(t, []int32{maxHosts + 2, 2}, []int32{sip.Status.Held, sip.Status.HostsOmitted})
	require.Len(t, sip.Status.Hosts, maxHosts)
	require.Equal(t, "w-1001", sip.Status.Hosts[0].Name)
	require.NotNil(t, sip.Status.Hosts[0].FailedSince)
}
