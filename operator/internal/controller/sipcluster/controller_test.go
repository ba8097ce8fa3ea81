package sipcluster

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/metal3"
)

const workers = `
nodes: {Worker: {FLAVOR, topologyKey: rack, count: {active: 2, standby: 1}}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]}
`

func names(of map[string]string) []string {
	out := []string{}
	for name := range of {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// From nothing to labels: the finalizer first, then claims, then services, and labels when the load
// balancer of the control plane is rolled out.
func TestHostsAreLabelledWhenTheServicesAreReady(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c", "d")
	w.sip("t", `
nodes: {ControlPlane: {FLAVOR, topologyKey: rack, count: {active: 2, standby: 1}}}
services: {loadBalancerControlPlane: [{nodePort: PORT1, nodeInterfaceId: oam}]}
`)
	r := w.operator(w.own)
	require.NoError(t, w.pass(r, "t"))
	require.Equal(t, []string{airship.Finalizer}, w.get("t").Finalizers)
	require.Empty(t, w.claimed("t"))
	require.NoError(t, w.pass(r, "t"))
	require.Equal(t, []string{"a", "b", "c"}, names(w.claimed("t")))
	require.Empty(t, w.labelled("t"), "the services are not ready")
	ready := w.ready("t")
	require.Equal(t, airship.ReasonProgressing, ready.Reason)
	require.Contains(t, ready.Message, "its Deployment was changed just now")
	backends := w.backends("t", services.LoadBalancerControlPlane)
	require.Equal(t, []string{"a=10.1.1.97", "b=10.1.1.98", "c=10.1.1.99"}, backends)
	w.settle(r, "t")
	require.Equal(t, map[string]string{"a": "ControlPlane", "b": "ControlPlane", "c": "ControlPlane"}, w.labelled("t"))

	st := w.get("t").Status
	require.Equal(t, []int32{3, 3}, []int32{st.Wanted, st.Held})
	require.Equal(t, airship.HostStatus{Role: "ControlPlane", Namespace: w.metal, Name: "a", Addresses: []string{"10.1.1.97"}, Topology: "a", Labelled: true}, st.Hosts[0])
	require.Len(t, st.Services, 1)
	require.True(t, st.Services[0].Ready)
	require.NotEmpty(t, st.Services[0].Endpoints)
	require.Len(t, st.Conditions, 1)
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
	require.Equal(t, "3 hosts, 1 services", w.ready("t").Message)

	before := w.state()
	require.NoError(t, w.pass(r, "t"))
	require.Equal(t, before, w.state(), "a pass that has nothing to do writes nothing")
}

func TestServicesFollowTheSpecAndAreRepaired(t *testing.T) {
	w := start(t)
	w.hosts("a")
	w.sip("t", `
nodes: {Worker: {FLAVOR, count: {active: 1}}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}}], jumpHost: [{nodePort: PORT2}]}
`)
	r := w.operator(w.own)
	w.edit("a", func(o *unstructured.Unstructured) {}) // nothing
	w.settle(r, "t")
	require.Equal(t, airship.ReasonUnschedulable, w.ready("t").Reason, "the host has two networks, and the service names none")

	const fixed = `
nodes: {Worker: {FLAVOR, count: {active: 1}}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT3, end: PORT3}, nodeInterfaceId: oam, clusterIP: ADDRESS}], jumpHost: [{nodePort: PORT2, nodeInterfaceId: oam}]}
`
	service := types.NamespacedName{Namespace: w.ns, Name: services.Name("t", services.LoadBalancerWorker, 0)}
	spec := func(ip string) string { return replace(fixed, "ADDRESS", ip) }
	w.change("t", spec(`""`))
	w.settle(r, "t")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, w.ready("t").Message)
	var s corev1.Service
	require.NoError(t, w.Get(t.Context(), service, &s))
	require.Equal(t, w.port+2, s.Spec.Ports[0].NodePort, "an update is applied")

	s.Spec.Ports[0].NodePort = w.port + 3
	require.NoError(t, w.Update(t.Context(), &s))
	w.settle(r, "t")
	require.NoError(t, w.Get(t.Context(), service, &s))
	require.Equal(t, w.port+2, s.Spec.Ports[0].NodePort, "drift is repaired")
	free := nextIP(s.Spec.ClusterIP)

	w.change("t", spec(free))
	w.settle(r, "t")
	require.NoError(t, w.Get(t.Context(), service, &s))
	require.Equal(t, free, s.Spec.ClusterIP, "an address that cannot be changed is had by making the Service anew")

	require.NoError(t, w.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: service.Name}}))
	w.change("t", `
nodes: {Worker: {FLAVOR, count: {active: 1}}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT3, end: PORT3}, nodeInterfaceId: oam}]}
`)
	w.settle(r, "t")
	require.NoError(t, w.Get(t.Context(), service, &appsv1.Deployment{}), "what was deleted is made again")
	for _, o := range w.objects() {
		require.NotContains(t, o, "-jump-", "a service that is no longer wanted is removed")
	}
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, w.ready("t").Message)
}

// What was made by chance stays what it is.
func TestKeysOutliveRestarts(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c")
	w.sip("t", workers)
	w.settle(w.operator(w.own), "t")
	key := func() string {
		var s corev1.Secret
		require.NoError(t, w.Get(t.Context(), types.NamespacedName{Namespace: w.ns, Name: services.Name("t", services.LoadBalancerWorker, 0)}, &s))
		return string(s.Data["key"])
	}
	before := key()
	again := w.operator(w.own)
	again.Rand = errReader{}
	w.breaks("a") // the services are rendered again
	w.settle(again, "t")
	require.Equal(t, before, key())
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("nothing is to be made") }

// A cluster that has what it wants stays Ready, though no free host be left; one that lacks
// some keeps what it has, and says what is missing and why.
func TestWhatIsMissingIsToldAndWhatIsHeldStays(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c")
	w.use("c")
	const spec = `
nodes: {Worker: {FLAVOR, topologyKey: rack, count: {active: N}}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]}
`
	w.sip("t", replace(spec, "N", "2"))
	r := w.operator(w.own)
	w.settle(r, "t")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, "satisfied without a free host")

	w.change("t", replace(spec, "N", "3"))
	w.settle(r, "t")
	ready := w.ready("t")
	require.Equal(t, airship.ReasonUnschedulable, ready.Reason)
	require.Contains(t, ready.Message, "1 of 3 Worker hosts are missing")
	require.Contains(t, ready.Message, "1: has a consumerRef")
	st := w.get("t").Status
	require.Equal(t, []int32{3, 2}, []int32{st.Wanted, st.Held})
	require.Equal(t, int32(1), st.Missing[0].Count)
	require.Contains(t, st.Missing[0].Refused, airship.RefusedHosts{Reason: "has a consumerRef", Count: 1, Hosts: []string{w.metal + "/c"}})
	require.Equal(t, []string{"a", "b"}, names(w.labelled("t")), "what is held is served")

	w.hosts("d")
	w.settle(r, "t")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
	require.Equal(t, []string{"a", "b", "d"}, names(w.labelled("t")))
	require.Empty(t, w.get("t").Status.Missing)
}

// Passes while the services are not ready take no more hosts, whoever makes them.
func TestRetriesTakeNoMoreHosts(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c", "d", "e", "f", "g")
	w.sip("t", workers)
	for range 6 {
		require.NoError(t, w.pass(w.operator(w.own), "t"))
	}
	require.Equal(t, []string{"a", "b", "c"}, names(w.claimed("t")))
	require.Equal(t, w.claimed("t"), w.labelled("t"))
}

// Fewer: those in use stay, the failed goes first; a host leaves the load balancer before it
// loses its labels, and keeps them where it got used meanwhile.
func TestAHostLeavesTheLoadBalancerBeforeItsLabels(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c", "d")
	const spec = `
nodes: {Worker: {FLAVOR, count: {active: N}}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]}
`
	w.sip("t", replace(spec, "N", "4"))
	r := w.operator(w.own)
	w.settle(r, "t")
	w.use("c")
	w.breaks("a")
	w.change("t", replace(spec, "N", "2"))
	require.NoError(t, w.pass(r, "t"))
	require.Equal(t, []string{"b=10.1.1.98", "c=10.1.1.99"}, w.backends("t", services.LoadBalancerWorker))
	require.Equal(t, []string{"a", "b", "c", "d"}, names(w.labelled("t")), "pods of the load balancer still lead there")
	require.Contains(t, w.ready("t").Message, "waiting for")

	w.use("d") // somebody was faster
	w.settle(r, "t")
	require.Equal(t, []string{"c", "d"}, names(w.labelled("t")))
	require.Equal(t, []string{"c", "d"}, names(w.claimed("t")))
	require.Equal(t, []string{"c=10.1.1.99", "d=10.1.1.100"}, w.backends("t", services.LoadBalancerWorker))
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
}

func TestAFailedHostIsReplacedWhereStandbyAllows(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c", "u", "x")
	w.note("u", annotationUnhealthy, "")
	w.sip("t", workers) // one standby
	r := w.operator(w.own)
	r.Grace = grace
	w.settle(r, "t")
	w.breaks("b")
	w.settle(r, "t")
	require.Equal(t, []string{"a", "b", "c"}, names(w.labelled("t")), "it may recover by itself")
	degraded := meta.FindStatusCondition(w.get("t").Status.Conditions, airship.ConditionDegraded)
	require.NotNil(t, degraded)
	require.Equal(t, "1 of 3 hosts failed: "+w.metal+"/b: power management error", degraded.Message)
	require.NotNil(t, w.get("t").Status.Hosts[1].FailedSince)
	w.now = w.now.Add(grace + time.Second)
	w.settle(r, "t")
	require.Nil(t, meta.FindStatusCondition(w.get("t").Status.Conditions, airship.ConditionDegraded))
	require.Equal(t, []string{"a", "c", "x"}, names(w.labelled("t")))
	w.breaks("x")
	w.settle(r, "t")
	w.now = w.now.Add(grace + time.Second)
	w.settle(r, "t")
	require.Equal(t, []string{"a", "c", "x"}, names(w.labelled("t")), "nothing could take its place")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
	require.Contains(t, w.ready("t").Message, "see status.hosts for "+w.metal+"/x")
	require.NotNil(t, meta.FindStatusCondition(w.get("t").Status.Conditions, airship.ConditionDegraded))
	require.Equal(t, "power management error", w.get("t").Status.Hosts[2].Problem)
}

// A host that the original labelled is the SIPCluster's if the host's owner says so. Else labels do
// not make it held, whoever wrote them.
func TestHostsThatTheOriginalLabelledAreAdopted(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c", "y", "z")
	for _, name := range []string{"y", "z"} {
		w.edit(name, func(o *unstructured.Unstructured) {
			l := o.GetLabels()
			l[airship.LabelClusterNamespace], l[airship.LabelClusterName] = w.ns, "t"
			l[airship.LabelNodeType] = "Worker"
			o.SetLabels(l)
		})
	}
	w.note("z", airship.AnnotationAdopt, "true")
	w.sip("t", workers)
	defer func() {
		require.NotContains(t, w.bare("z").GetAnnotations(), airship.AnnotationAdopt, "it is adopted once")
		require.NotContains(t, w.bare("y").GetAnnotations(), airship.AnnotationClaim)
		w.edit("y", func(o *unstructured.Unstructured) { o.SetLabels(nil) })
		require.Equal(t, []string{"a", "b", "z"}, names(w.labelled("t")))
	}()
	w.settle(w.operator(w.own), "t")
	require.Equal(t, []string{"a", "b", "z"}, names(w.claimed("t")))
	backends := w.backends("t", services.LoadBalancerWorker)
	require.Equal(t, []string{"a=10.1.1.97", "b=10.1.1.98", "z=10.1.1.122"}, backends)
}

// Cluster API names a host's network data, or lets it ask for an address, when it takes the host: by
// its labels. Services lead there from then on.
func TestHostsGetTheirAddressesWhenTheyAreTaken(t *testing.T) {
	w := start(t)
	w.host(metal3.Host{Name: "a"})
	w.host(metal3.Host{Name: "b"})
	w.sip("t", `
nodes: {Worker: {FLAVOR, count: {active: 2}}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: eth0}]}
`)
	r := w.operator(w.own)
	w.settle(r, "t")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, w.ready("t").Message)
	require.Equal(t, []string{"a", "b"}, names(w.labelled("t")))
	require.Equal(t, []string{"a", "b"}, w.backends("t", services.LoadBalancerWorker), "no host has an address yet")

	w.use("a")
	o := w.bare("a")
	patch := client.MergeFrom(o.DeepCopy())
	nics := []any{map[string]any{"name": "eth0", "ip": "10.1.0.7"}, map[string]any{"name": "eth1", "ip": "10.2.0.7"}}
	require.NoError(t, unstructured.SetNestedSlice(o.Object, nics, "status", "hardware", "nics"))
	require.NoError(t, w.Status().Patch(t.Context(), o, patch))
	network := `{"networks":[{"id":"eth0","type":"ipv4","ip_address":"10.1.0.8"}]}`
	data := map[string][]byte{"networkData": []byte(network)}
	meta := metav1.ObjectMeta{Namespace: w.metal, Name: "b-network"}
	require.NoError(t, w.Create(t.Context(), &corev1.Secret{ObjectMeta: meta, Data: data}))
	w.edit("b", func(o *unstructured.Unstructured) {
		require.NoError(t, unstructured.SetNestedField(o.Object, "b-network", "spec", "networkData", "name"))
	})
	w.settle(r, "t")
	require.Equal(t, []string{"a=10.1.0.7", "b=10.1.0.8"}, w.backends("t", services.LoadBalancerWorker))
	w.edit("a", func(o *unstructured.Unstructured) {
		require.NoError(t, unstructured.SetNestedField(o.Object, "disabled", "spec", "automatedCleaningMode"))
	})
	trimmed, err := TrimHost(w.bare("a"))
	require.NoError(t, err)
	kept, isHost := trimmed.(*unstructured.Unstructured)
	require.True(t, isHost)
	require.Equal(t, readHost(w.bare("a")), readHost(kept))
	require.True(t, readHost(kept).Uncleaned)
	selector, err := labels.ValidatedSelectorFromSet(w.get("t").Status.HostSelector)
	require.NoError(t, err)
	require.True(t, selector.Matches(labels.Set(w.bare("a").GetLabels())))
	require.False(t, selector.Empty())
}

// No count, as the predecessor's resources could be, is no hosts.
func TestNoCount(t *testing.T) {
	w := start(t)
	w.hosts("a")
	w.sip("t", `nodes: {ControlPlane: {FLAVOR}, Worker: {FLAVOR, count: {standby: 0}}}`)
	w.settle(w.operator(w.own), "t")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
	require.Empty(t, w.claimed("t"))
}

func TestDeletionLeavesNothing(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c")
	s := w.sip("t", workers)
	r := w.operator(w.own)
	w.settle(r, "t")
	w.use("a")
	w.edit("b", func(o *unstructured.Unstructured) {
		require.NoError(t, unstructured.SetNestedField(o.Object, "http://image", "spec", "image", "url"))
	})
	before := w.objects()
	require.NotEmpty(t, before)
	require.NoError(t, w.Delete(t.Context(), s))
	w.settle(r, "t")
	w.says("t", airship.ReasonUnableToDecommission, w.metal+"/a: Metal3Machine t/m uses it, "+w.metal+
		"/b: it has spec.image or spec.customDeploy", true)
	require.Equal(t, before, w.objects(), "services stay with the hosts in use")
	require.Len(t, w.labelled("t"), 3)
	w.force("t")
	require.NoError(t, w.pass(r, "t"))
	require.Len(t, w.labelled("t"), 3, "services go before labels")
	w.settle(r, "t")
	w.gone("t")
}

// force releases hosts in use.
func (w *world) force(name string) {
	w.Helper()
	s := w.get(name)
	s.Annotations = map[string]string{airship.AnnotationReleaseInUse: "true"}
	require.NoError(w, w.Update(w.Context(), s))
}

// Fewer hosts are wanted than are in use: all stay, and Ready names them.
func TestScaleInKeepsHostsInUse(t *testing.T) {
	w := start(t)
	w.hosts("a", "b")
	spec := func(n string) string { return `nodes: {Worker: {FLAVOR, count: {active: ` + n + `}}}` }
	w.sip("t", spec("2"))
	r := w.operator(w.own)
	w.settle(r, "t")
	w.use("a")
	require.NoError(t, metal3.SetStatus(t.Context(), w, w.bare("b"), "provisioned", "OK", ""))
	w.change("t", spec("1"))
	w.settle(r, "t")
	w.says("t", airship.ReasonUnableToDecommission, w.metal+"/b: its provisioning state is \"provisioned\"", true)
	require.Equal(t, []string{"a", "b"}, names(w.labelled("t")))
	w.force("t")
	w.settle(r, "t")
	require.Equal(t, []string{"a"}, names(w.labelled("t")))
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
}

func (w *world) gone(name string) {
	w.Helper()
	err := w.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, &airship.SIPCluster{})
	require.True(w, apierrors.IsNotFound(err), "%v", err)
	require.Empty(w, w.labelled(name))
	require.Empty(w, w.claimed(name))
	require.Empty(w, w.objects())
}

// Bad inputs of hosts: a free one is passed over, a held one is kept and told of.
func TestHostsWithoutData(t *testing.T) {
	w := start(t)
	w.host(metal3.Host{Name: "b", Address: "127.0.0.1"})
	w.host(metal3.Host{Name: "d", Address: "10.0.0.4"})
	w.host(metal3.Host{Name: "e", Address: "10.0.0.5"})
	const spec = `
nodes: {Worker: {FLAVOR, count: {active: N}}}
services: {jumpHost: [{nodePort: PORT1, nodeInterfaceId: oam, bmc: {}}]}
`
	w.sip("t", replace(spec, "N", "2"))
	r := w.operator(w.own)
	w.settle(r, "t")
	require.Equal(t, []string{"d", "e"}, names(w.labelled("t")))
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)

	require.NoError(t, w.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.metal, Name: "d-network"}}))
	w.settle(r, "t")
	require.Equal(t, []string{"d", "e"}, names(w.labelled("t")), "it is held")
	require.Equal(t, []string{"d=10.0.0.4", "e=10.0.0.5"}, w.backends("t", services.JumpHost), "services lead where they led")
	require.Contains(t, w.ready("t").Message, "d-network: it is not there")
	require.Equal(t, metav1.ConditionFalse, w.ready("t").Status)
	require.Contains(t, w.get("t").Status.Hosts[0].Problem, "d-network: it is not there")

	w.change("t", replace(spec, "N", "3"))
	w.settle(r, "t")
	var reasons []string
	for _, x := range w.get("t").Status.Missing[0].Refused {
		if len(x.Hosts) > 0 && x.Reason != "labelSelector does not match" && x.Reason != "belongs to another SIPCluster" {
			reasons = append(reasons, x.Reason)
		}
	}
	require.Equal(t, []string{"has no address on a nodeInterfaceId"}, reasons)
}

func TestFaultsOfTheSpecAndTheServices(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c", "d")
	r := w.operator(w.own)

	w.sip("selector", `nodes: {Worker: {labelSelector: {matchExpressions: [{key: a, operator: Like}]}, count: {active: 1}}}`)
	w.settle(r, "selector")
	w.says("selector", airship.ReasonUnschedulable, "spec.nodes.Worker.labelSelector", true)

	w.wrong[services.LoadBalancerWorker] = &fault.Error{Reason: fault.NotFound, Op: "read", Subject: "Secret x", Err: errors.New("it is not there"), Hint: "create it"}
	w.sip("render", workers)
	w.settle(r, "render")
	w.says("render", airship.ReasonInfraServiceFailure, "Secret x: it is not there", true)
	require.Len(t, w.claimed("render"), 3)
	require.Len(t, w.labelled("render"), 3, "labels wait for no load balancer of workers")
	delete(w.wrong, services.LoadBalancerWorker)
	w.settle(r, "render")
	require.Equal(t, airship.ReasonSucceeded, w.ready("render").Reason)

	// What runs stays while it cannot be rendered, or the bundle cannot be read.
	w.wrong[services.LoadBalancerWorker] = errors.New("no")
	w.settle(r, "render")
	require.Equal(t, airship.ReasonInfraServiceFailure, w.ready("render").Reason)
	require.NotEmpty(t, w.backends("render", services.LoadBalancerWorker))
	delete(w.wrong, services.LoadBalancerWorker)
	r.Bundles = bundles{err: &fault.Error{Reason: fault.Unreachable, Op: "read", Subject: "mirror", Err: errors.New("no answer")}}
	w.settle(r, "render")
	require.Equal(t, airship.ReasonSucceeded, w.ready("render").Reason, "what runs needs no mirror")

	w.sip("image", `
nodes: {}
services: {jumpHost: [{nodePort: PORT2}]}
`)
	w.settle(r, "image")
	w.says("image", airship.ReasonInfraServiceFailure, "find the image of services.jumpHost: read mirror: no answer", false)
	r.Bundles = bundles{}
	w.settle(r, "image")
	require.Equal(t, airship.ReasonSucceeded, w.ready("image").Reason)

	// A port that another service has is refused by the API server, and said so.
	w.sip("port", `services: {jumpHost: [{nodePort: PORT2}]}`)
	w.settle(r, "port")
	w.says("port", airship.ReasonInfraServiceFailure, "provided port is already allocated", true)

	// An object of the same name that somebody else manages is left alone.
	name := services.Name("name", services.JumpHost, 0)
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"}}}
	require.NoError(t, w.Create(t.Context(), foreign))
	w.sip("name", `services: {jumpHost: [{nodePort: PORT3}]}`)
	w.settle(r, "name")
	w.says("name", airship.ReasonInfraServiceFailure, "Helm manages it", true)
	require.Contains(t, w.ready("name").Message, "take the service out of the SIPCluster")
	var now corev1.ConfigMap
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(foreign), &now))
	require.Equal(t, foreign.ResourceVersion, now.ResourceVersion)
}

// says checks Ready, and that the kstatus types go with it.
func (w *world) says(name, reason, fragment string, stalled bool) {
	w.Helper()
	ready := w.ready(name)
	require.Equal(w, reason, ready.Reason, ready.Message)
	require.Contains(w, ready.Message, fragment)
	require.Equal(w, metav1.ConditionFalse, ready.Status)
	types := map[string]bool{}
	for _, c := range w.get(name).Status.Conditions {
		types[c.Type] = true
	}
	require.Equal(w, map[string]bool{"Ready": true, map[bool]string{true: "Stalled", false: "Reconciling"}[stalled]: true}, types)
}
