package sipcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/metal3"
)

// From nothing to labels: the finalizer first, then claims, then services, and labels when the load
// balancer of the control plane is rolled out.
func TestHostsAreLabelledWhenTheServicesAreReady(t *testing.T) {
	w, r := start(t)
	w.hosts("a", "b", "c", "d")
	w.sip("t", `
nodes: {ControlPlane: {FLAVOR, topologyKey: rack, count: {active: 2, standby: 1}}}
services: {loadBalancerControlPlane: [{nodePort: PORT1, nodeInterfaceId: oam}]}
`)
	require.NoError(t, w.pass(r, "t"))
	require.Equal(t, []string{airship.Finalizer}, w.get("t").Finalizers)
	require.Empty(t, w.claimed("t"))
	for _, message := range []string{
		"creating namespace " + w.home("t"), "waiting for the operator's permissions in namespace " + w.home("t"),
		"0 of 2 pods are new and available",
	} {
		require.NoError(t, w.pass(r, "t"))
		require.Contains(t, w.ready("t").Message, message)
		require.Equal(t, []string{"a", "b", "c"}, names(w.claimed("t")))
		require.Empty(t, w.labelled("t"), "the services are not ready")
	}
	require.Equal(t, airship.ReasonProgressing, w.ready("t").Reason)
	home := &corev1.Namespace{}
	require.NoError(t, w.Get(t.Context(), types.NamespacedName{Name: w.home("t")}, home))
	require.Equal(t, "restricted", home.Labels["pod-security.kubernetes.io/enforce"])
	deny := read[networkingv1.NetworkPolicy](w, "default-deny").Spec
	require.Equal(t, networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress", "Egress"}}, deny)
	backends := w.backends("t", services.LoadBalancerControlPlane)
	require.Equal(t, []string{"a=10.1.1.97", "b=10.1.1.98", "c=10.1.1.99"}, backends)
	w.settle(r, "t")
	require.Equal(t, map[string]string{"a": "ControlPlane", "b": "ControlPlane", "c": "ControlPlane"}, w.labelled("t"))

	st := w.get("t").Status
	require.Equal(t, []int32{3, 3}, []int32{st.Wanted, st.Held})
	require.Equal(t, airship.HostStatus{
		Role: "ControlPlane", Namespace: w.metal, Name: "a", Addresses: []string{"10.1.1.97"}, Topology: "a", Labelled: true,
	}, st.Hosts[0])
	require.Len(t, st.Services, 1)
	require.True(t, st.Services[0].Ready)
	require.NotEmpty(t, st.Services[0].Endpoints)
	require.Len(t, st.Conditions, 1)
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
	require.Equal(t, "3 hosts, 1 services", w.ready("t").Message)

	before := w.writes.Load()
	require.NoError(t, w.pass(r, "t"))
	require.Equal(t, before, w.writes.Load(), "a pass that has nothing to do writes nothing")

	w.force("t")
	require.NoError(t, w.pass(r, "t"))
	require.Contains(t, w.ready("t").Message, "hosts in use may leave: remove the annotation sip.airshipit.org/release-in-use")
}

func TestServicesFollowTheSpecAndAreRepaired(t *testing.T) {
	w, r := start(t)
	const jump = `
nodes: {Worker: {FLAVOR, count: {active: 1}}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}}], jumpHost: [{nodePort: PORT2}]}
`
	w.settled(r, jump, "a")
	w.says(r, "t", airship.ReasonInfraServiceFailure, `network "" has 2 addresses`, true) // and the services name none

	name := services.Name("t", services.LoadBalancerWorker, 0)
	fixed := replace(replace(jump, "PORT1", "PORT3"), "PORT3}", "PORT3}, nodeInterfaceId: oam")
	fixed = replace(fixed, "nodePort: PORT2", "nodePort: PORT2, nodeInterfaceId: oam")
	other := "{loadBalancerControlPlane: [{nodePort: PORT4, nodeInterfaceId: a-network-of-no-worker}]"
	fixed = replace(fixed, "{loadBalancerWorker", other+", loadBalancerWorker")
	w.change("t", fixed)
	w.stands(r, "t", airship.ReasonSucceeded, "a")
	s := read[corev1.Service](w, name)
	require.Equal(t, w.port+2, s.Spec.Ports[0].NodePort, "an update is applied")
	s.Spec.Ports[0].NodePort = w.port + 4
	require.NoError(t, w.Update(t.Context(), s))
	w.settle(r, "t")
	require.Equal(t, w.port+2, read[corev1.Service](w, name).Spec.Ports[0].NodePort, "drift is repaired")

	class := "{serviceType: LoadBalancer, loadBalancerClass: site/a, externalTrafficPolicy: Local, nodePort: PORT2"
	unused := "{loadBalancerClass: site/a, nodePortRange" // which the API server refuses of a node port
	w.change("t", replace(replace(fixed, "{nodePort: PORT2", class), "{nodePortRange", unused))
	w.settle(r, "t")
	require.Contains(t, w.ready("t").Message, "its load balancer has no address yet")
	balancer := read[corev1.Service](w, services.Name("t", services.JumpHost, 0))
	require.Equal(t, new("site/a"), balancer.Spec.LoadBalancerClass)
	require.Equal(t, corev1.ServiceExternalTrafficPolicyLocal, balancer.Spec.ExternalTrafficPolicy)
	balancer.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}
	require.NoError(t, w.Status().Update(t.Context(), balancer))
	w.stands(r, "t", airship.ReasonSucceeded, "a")
	require.Contains(t, w.get("t").Status.Services[2].Endpoints, "203.0.113.7")
	w.change("t", fixed) // a node port again
	w.stands(r, "t", airship.ReasonSucceeded, "a")

	require.NoError(t, w.Delete(t.Context(), read[appsv1.Deployment](w, name)))
	w.change("t", replace(active(1), "PORT1", "PORT3"))
	w.stands(r, "t", airship.ReasonSucceeded, "a")
	require.NotEmpty(t, read[appsv1.Deployment](w, name).UID, "what was deleted is made again")
	for _, o := range w.objects("t") {
		require.NotContains(t, o, "-jump-", "an obsolete service is removed")
	}

	lost := read[rbacv1.RoleBinding](w, servicesRole)
	require.NoError(t, w.Delete(t.Context(), lost))
	require.Eventually(t, func() bool {
		_ = w.pass(r, "t")
		return w.Get(t.Context(), client.ObjectKeyFromObject(lost), lost) == nil
	}, time.Minute, 10*time.Millisecond, "the operator gives itself lost permissions again")
	access.refused.Forget()
}

// Fewer: those in use stay, the failed goes first; a host leaves the load balancer before it
// loses its labels, and keeps them where it got used meanwhile.
func TestAHostLeavesTheLoadBalancerBeforeItsLabels(t *testing.T) {
	w, r := start(t)
	w.settled(r, active(4), "a", "b", "c", "d")
	w.use("c", true)
	w.fails("a", true)
	w.change("t", active(2))
	require.NoError(t, w.pass(r, "t"))
	require.Equal(t, []string{"b=10.1.1.98", "c=10.1.1.99"}, w.backends("t", services.LoadBalancerWorker))
	require.Equal(t, []string{"a", "b", "c", "d"}, names(w.labelled("t")), "pods of the load balancer still lead there")
	require.Contains(t, w.ready("t").Message, "waiting for")

	w.use("d", true) // someone was faster
	w.stands(r, "t", airship.ReasonSucceeded, "c", "d")
	require.Equal(t, []string{"c=10.1.1.99", "d=10.1.1.100"}, w.backends("t", services.LoadBalancerWorker))

	w.change("t", active(1))
	w.stands(r, "t", airship.ReasonUnableToDecommission, "c", "d")
	w.says(r, "t", airship.ReasonUnableToDecommission, w.metal+"/c: Metal3Machine t/m uses it", true)
	w.change("t", active(3))
	w.permit(map[string]any{"nameMatches": "("})
	require.NoError(t, w.Create(t.Context(), hostDeployPolicy(w.system, map[string]any{}))) // for hosts beside it
	w.stands(r, "t", airship.ReasonUnschedulable, "c", "d")
	w.says(r, "t", airship.ReasonUnschedulable, w.metal+
		"/c: Metal3Machine t/m uses it, and its owner does not permit it to this namespace", false)
	w.says(r, "t", airship.ReasonUnschedulable, "\nread HostDeployPolicy "+w.metal+
		"/tenants: spec.hostClaimNamespaces.nameMatches: error parsing regexp: missing closing ): `(`", false)
	label := map[string]any{"name": "kubernetes.io/metadata.name", "value": w.ns}
	w.permit(map[string]any{"hasLabels": []any{label}})
	w.change("t", active(1))
	w.force("t")
	w.stands(r, "t", airship.ReasonSucceeded, "c")
}

func TestAFailedHostIsReplacedWhereStandbyAllows(t *testing.T) {
	w, r := start(t)
	w.hosts("a", "b", "c", "u", "x")
	w.note("u", choose.AnnotationUnhealthy, "")
	w.sip("t", workers) // one standby
	r.Grace = grace
	degraded := func() string {
		c := meta.FindStatusCondition(w.get("t").Status.Conditions, airship.ConditionDegraded)
		return ptr.Deref(c, metav1.Condition{}).Message
	}
	w.settle(r, "t")
	w.fails("b", true)
	w.stands(r, "t", airship.ReasonSucceeded, "a", "b", "c") // it may recover by itself
	require.Equal(t, "1 of 3 hosts failed: "+w.metal+"/b: power management error", degraded())
	require.NotNil(t, w.get("t").Status.Hosts[1].FailedSince)
	w.now = w.now.Add(grace + time.Second)
	w.stands(r, "t", airship.ReasonSucceeded, "a", "c", "x")
	require.Empty(t, degraded())
	w.fails("x", true)
	w.settle(r, "t")
	w.now = w.now.Add(grace + time.Second)
	w.stands(r, "t", airship.ReasonSucceeded, "a", "c", "x") // nothing could take its place
	require.NotEmpty(t, degraded())
	require.Equal(t, "power management error", w.get("t").Status.Hosts[2].Problem)
}

// The migration guide: hosts that the original labelled are the SIPCluster's if the hosts' owner says so
// (else labels do not make them held, whoever wrote them), and its Services hold node ports until they are
// deleted. The spec has the services of the original's sample, in its form.
func TestMigrationFromTheOriginal(t *testing.T) {
	w, r := start(t)
	w.hosts("a", "b", "c", "v", "w", "x", "y", "z")
	roles := map[string]string{"v": "ControlPlane", "w": "ControlPlane", "x": "Worker", "y": "Worker", "z": "Worker"}
	for name, role := range roles {
		w.edit(name, func(o *choose.BareMetalHost) {
			o.Labels[airship.LabelClusterNamespace], o.Labels[airship.LabelClusterName] = w.ns, "t"
			o.Labels[airship.LabelNodeType] = role
		})
	}
	original := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "load-balancer-worker"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: w.port}}},
	}
	require.NoError(t, w.Create(t.Context(), original))
	w.adopt(airship.RoleControlPlane, "v")
	w.adopt(airship.RoleWorker, "z")
	w.sip("t", `
nodes:
  ControlPlane: {FLAVOR, topologyKey: rack, count: {active: 1}}
  Worker: {FLAVOR, topologyKey: rack, count: {active: 2, standby: 1}}
services:
  loadBalancerControlPlane: [{image: "haproxy:2.3.2", nodePort: PORT1, nodeInterfaceId: oam}]
  loadBalancerWorker: [{image: "haproxy:2.3.2", nodePortRange: {start: PORT2, end: PORT3}, nodeInterfaceId: oam}]
  jumpHost: [{
    image: "quay.io/airshipit/jump-host:latest", nodeLabels: {kubernetes.io/os: linux}, nodePort: PORT4,
    nodeInterfaceId: oam, bmc: {}, nodeSSHPrivateKeys: ssh-private-keys}]
`)
	r.Grace = grace
	w.fails("z", true) // it may recover by itself
	w.settle(r, "t")
	require.Equal(t, []string{"a", "b", "v", "z"}, names(w.claimed("t")))
	require.NotContains(t, w.bare("z").Annotations, airship.AnnotationAllowedNamespaces, "a policy permits it")
	ignored := told(r, "FieldIgnored")
	for _, field := range []string{
		"loadBalancerControlPlane[0].image", "loadBalancerWorker[0].image", "jumpHost[0].image", "jumpHost[0].bmc",
		"jumpHost[0].nodeSSHPrivateKeys",
	} {
		require.Contains(t, ignored, "Ignored spec.services."+field+"; ")
	}
	w.fails("z", false)
	w.says(r, "t", airship.ReasonInfraServiceFailure, "provided port is already allocated", true)
	require.NoError(t, w.Delete(t.Context(), original))
	w.settle(r, "t")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, w.ready("t").Message)
	require.Equal(t, []string{"v=10.1.1.118"}, w.backends("t", services.LoadBalancerControlPlane))
	backends := w.backends("t", services.LoadBalancerWorker)
	require.Equal(t, []string{"a=10.1.1.97", "b=10.1.1.98", "z=10.1.1.122"}, backends)
	require.Len(t, w.get("t").Status.Services, 3)
	require.Equal(t, []string{"ControlPlane", "Worker"}, []string{w.labelled("t")["v"], w.labelled("t")["z"]})
	require.NotContains(t, w.bare("y").Annotations, airship.AnnotationClaim)

	told(r, "")
	w.note("w", airship.AnnotationAllowedNamespaces, "")
	w.use("x", true)
	w.adopt(airship.RoleWorker, "w")
	w.adopt(airship.RoleControlPlane, "x")
	w.settle(r, "t")
	require.Equal(t, "ControlPlane", w.labelled("t")["x"])
	require.Equal(t, "ControlPlane", w.labelled("t")["w"], "its owner does not permit it")
	w.use("x", false)
	w.settle(r, "t")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, w.ready("t").Message)
	require.Equal(t, []string{"a", "b", "w", "x", "z"}, names(w.claimed("t")), "x was in use, so v is one too many")
	require.Contains(t, told(r, "Released"), "Released BareMetalHost "+w.metal+"/v from SIPCluster "+w.ns+"/t")
}

// Cluster API names a host's network data, or lets it ask for an address, when it takes the host: by
// its labels. Services lead there from then on.
func TestHostsGetTheirAddressesWhenTheyAreTaken(t *testing.T) {
	w, r := start(t)
	for _, name := range []string{"a", "b", "c"} {
		w.host(metal3.Host{Name: name})
	}
	w.sip("t", replace(active(3), "oam", "eth0"))
	w.stands(r, "t", airship.ReasonSucceeded, "a", "b", "c")
	require.Empty(t, w.backends("t", services.LoadBalancerWorker), "no host has an address yet")

	w.use("a", true)
	w.reports("a", `{"hardware":{"nics":[{"name":"eth0","ip":"10.1.0.7"},{"name":"eth1","ip":"10.2.0.7"}]}}`)
	network := `{"networks":[{"id":"eth0","type":"ipv4","ip_address":"10.1.0.8"}]}`
	require.NoError(t, w.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.metal, Name: "b-network"}, StringData: map[string]string{"networkData": network},
	}))
	w.edit("b", func(o *choose.BareMetalHost) { o.Spec.NetworkData.Name = "b-network" })
	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.metal, Name: "a-network"}}
	own.StringData = map[string]string{"nmstate": "interfaces: []"}
	require.NoError(t, w.Create(t.Context(), own))
	for _, name := range []string{"a", "c"} {
		w.edit(name, func(o *choose.BareMetalHost) { o.Spec.PreprovisioningNetworkDataName = "a-network" })
	}
	w.leads(r, "a=10.1.0.7", "b=10.1.0.8")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, "c has no address yet")
	w.edit("c", func(o *choose.BareMetalHost) { o.Spec.PreprovisioningNetworkDataName = "" })
	byDHCP := `{"networks":[{"id":"eth0","type":"ipv4_dhcp"}]}`
	for _, data := range []string{replace(network, ".8", ".6"), byDHCP, `{"networks":[]}`} {
		own.StringData = map[string]string{"networkData": data}
		require.NoError(t, w.Update(t.Context(), own))
		w.leads(r, map[bool]string{true: "a=10.1.0.6", false: "a=10.1.0.7"}[strings.Contains(data, ".6")], "b=10.1.0.8")
		w.edit("a", func(o *choose.BareMetalHost) { o.Spec.NetworkData.Name = "a-network" })
	}
	w.edit("a", func(o *choose.BareMetalHost) {
		o.Spec.NetworkData.Name, o.Spec.PreprovisioningNetworkDataName, o.Spec.Image.URL = "", "", "http://site/image"
	})
	w.use("a", false) // but the image runs
	w.take("c", "m-gone", "red", "")
	gone := w.machine("m-gone")
	require.NoError(t, w.Delete(t.Context(), gone))
	w.leads(r, "a=10.1.0.7", "b=10.1.0.8")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, "it has no address yet")
	w.take("c", "m-c", "red", "")
	w.leads(r, "a=10.1.0.7", "b=10.1.0.8")
	w.machineHas("m-c", "10.1.0.9", "10.2.0.9")
	w.leads(r, "a=10.1.0.7", "b=10.1.0.8")
	w.provisioning("provisioned", "c")
	w.says(r, "t", airship.ReasonInfraServiceFailure, "/c: services leave it out: it is provisioned and has no address where nodeInterfaceId is", true)
	w.machineHas("m-c", "10.1.0.9")
	w.leads(r, "a=10.1.0.7", "b=10.1.0.8", "c=10.1.0.9")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
	w.machineHas("m-c", "10.1.0.10")
	w.leads(r, "a=10.1.0.7", "b=10.1.0.8", "c=10.1.0.10")
	require.NoError(t, w.Delete(t.Context(), w.machine("m-c")))
	w.leads(r, "a=10.1.0.7", "b=10.1.0.8", "c=10.1.0.10")
	require.Contains(t, w.get("t").Status.Hosts[2].Problem, "Metal3Machine "+w.metal+"/m-c")

	w.edit("a", func(o *choose.BareMetalHost) { o.Spec.AutomatedCleaningMode = "disabled" })
	w.settle(r, "t")
	require.Contains(t, w.get("t").Status.Hosts[0].Problem, "automatedCleaningMode is disabled")
	selector := w.get("t").Status.HostSelector
	require.Len(t, selector, 2)
	for key, value := range selector {
		require.Equal(t, value, w.bare("a").Labels[key])
	}
}

// A SIPCluster that is deleted, with its tenant's namespace, keeps hosts in use and what serves them. Then its services
// go before its hosts are given back.
func TestDeletionLeavesNothing(t *testing.T) {
	w, r := start(t)
	s := w.settled(r, workers, "a", "b", "c")
	w.use("a", true)
	w.edit("b", func(o *choose.BareMetalHost) { o.Spec.Image.URL = "http://image" })
	before := w.objects("t")
	require.NotEmpty(t, before)
	require.NoError(t, w.Delete(t.Context(), s))
	require.NoError(t, w.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}))
	r.Reader = w.through(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		require.NotContains(t, req.URL.Path, "hostdeploypolicies", "what is given back needs no permission")
		return next.RoundTrip(req)
	})
	w.stands(r, "t", airship.ReasonUnableToDecommission, "a", "b", "c")
	w.says(r, "t", airship.ReasonUnableToDecommission, w.metal+"/a: Metal3Machine t/m uses it, "+w.metal+
		"/b: it has spec.image or spec.customDeploy", true)
	require.Equal(t, before, w.objects("t"), "services stay with the hosts in use")
	w.force("t")
	for w.Get(t.Context(), types.NamespacedName{Name: w.home("t")}, &corev1.Namespace{}) == nil {
		require.NoError(t, w.pass(r, "t"))
		require.Equal(t, []string{"a", "b", "c"}, names(w.claimed("t")), "pods of its services run")
		require.Contains(t, w.ready("t").Message, "waiting for the deletion of namespace "+w.home("t"))
		w.play("t")
	}
	w.gone(r, "t")
}

func (w *world) force(name string) {
	s := w.get(name)
	s.Annotations = map[string]string{airship.AnnotationReleaseInUse: "true"}
	require.NoError(w, w.Update(w.Context(), s))
}

// gone settles, and checks that nothing of a SIPCluster is left.
func (w *world) gone(r *Reconciler, name string) {
	w.settle(r, name)
	require.Nil(w, w.find(name))
	require.Empty(w, w.labelled(name))
	require.Empty(w, w.claimed(name))
	require.Empty(w, w.objects(name))
}

func TestFaultsOfTheSpecAndTheServices(t *testing.T) {
	w, r := start(t)
	w.hosts("a", "b", "c", "d")

	nowhere := `services: {loadBalancerControlPlane: [{nodePort: PORT4, nodeInterfaceId: oam, nodeLabels: {"-": x}}], `
	w.sip("render", replace(workers, "services: {", nowhere))
	w.says(r, "render", airship.ReasonInfraServiceFailure, "name part must consist", true)
	require.Len(t, w.claimed("render"), 3)
	require.Empty(t, w.labelled("render"), "labels wait for the load balancer of the control plane")
	w.change("render", replace(workers, "nodeInterfaceId: oam", `nodeInterfaceId: oam, nodeLabels: {"-": x}`))
	w.says(r, "render", airship.ReasonInfraServiceFailure, "name part must consist", true)
	require.Len(t, w.labelled("render"), 3, "labels wait for no load balancer of workers")
	w.change("render", workers)
	w.stands(r, "render", airship.ReasonSucceeded, "a", "b", "c")

	// A port that another service has is refused by the API server, and said so.
	w.sip("other", `services: {jumpHost: [{nodePort: PORT2}]}`)
	w.settle(r, "other")
	w.sip("port", `{nodes: {ControlPlane: {labelSelector: {matchLabels: {no: host}}, count: {active: 3}}}, services: {jumpHost: [{nodePort: PORT2}]}}`)
	w.says(r, "port", airship.ReasonInfraServiceFailure, "provided port is already allocated (choose another nodePort: ", true)
	w.says(r, "port", airship.ReasonInfraServiceFailure, "\n3 of 3 ControlPlane hosts are missing. See status.missing", true)
	lists := 0
	again := w.operator(w.through(func(q *http.Request, next http.RoundTripper) (*http.Response, error) {
		if strings.HasSuffix(q.URL.Path, "/namespaces/"+w.home("port")+"/deployments") {
			lists++
		}
		return next.RoundTrip(q)
	}))
	for _, want := range []int{2, 3} { // an operator that knows of the refusal reads once
		require.NoError(t, w.pass(again, "port"))
		require.Equal(t, want, lists)
	}
	w.change("port", `services: {jumpHost: [{nodePort: PORT3}]}`)
	w.settle(r, "port")
	w.change("port", `services: {jumpHost: [{nodePort: PORT3, clusterIP: 192.0.2.1}]}`)
	w.says(r, "port", airship.ReasonInfraServiceFailure, "may not change once set (correct the service in spec.services; ", true)
	w.change("port", `services: {}`)
	w.settle(r, "port")

	// A namespace that the operator did not create is left alone.
	foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.home("name")}}
	require.NoError(t, w.Create(t.Context(), foreign))
	w.sip("name", `services: {jumpHost: [{nodePort: PORT3}]}`)
	w.says(r, "name", airship.ReasonInfraServiceFailure, "the operator did not create it for this SIPCluster", true)
	require.NoError(t, w.Delete(t.Context(), w.get("name")))
	require.Eventually(t, func() bool {
		_ = w.pass(r, "name")
		return w.find("name") == nil
	}, time.Minute, 10*time.Millisecond, "who made the namespace does not hold the deletion up")
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
	require.Nil(t, foreign.DeletionTimestamp, "it stays")
}

// says settles, and checks Ready, and that the kstatus types go with it.
func (w *world) says(r *Reconciler, name, reason, fragment string, stalled bool) {
	w.settle(r, name)
	ready := w.ready(name)
	require.Equal(w, reason, ready.Reason, ready.Message)
	require.Contains(w, ready.Message, fragment)
	require.Equal(w, metav1.ConditionFalse, ready.Status)
	conds := w.get(name).Status.Conditions
	require.Len(w, conds, 2)
	require.Equal(w, stalled, meta.IsStatusConditionTrue(conds, "Stalled"))
	require.Equal(w, !stalled, meta.IsStatusConditionTrue(conds, "Reconciling"))
}

// A jump host and a login: from the tenant's Secrets and the hosts' to what the programs read, through a Secret
// that changes and one that goes, more hosts, and removal; and nothing secret in the status or an event.
func TestJumpHostAndLoginFollowSecretsAndHosts(t *testing.T) {
	const spec = `
nodes: {Worker: {FLAVOR, topologyKey: rack, count: {active: N}}}
services:
  jumpHost: [{nodePort: PORT1, nodeInterfaceId: oam}]
  auth:
    - nodePort: PORT2
      issuer: https://login.tenant.site:30556
      configSecret: dex
      caSecret: of-an-earlier-version
`
	const first, changed = "canary-5b0c-of-the-client", "canary-5b0c-another"
	w, r := start(t)
	w.hosts("a", "b")
	settings := func(client string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "dex"}, StringData: map[string]string{
			"config.yaml": "staticPasswords: [{email: alice@tenant.site}]\nstaticClients: [{id: console, secret: " + client + "}]\n",
		}}
	}
	jump, auth := services.Name("t", services.JumpHost, 0), services.Name("t", services.Auth, 0)

	w.sip("t", replace(spec, "N}", "1}"))
	w.stands(r, "t", airship.ReasonInfraServiceFailure, "a") // a login that fails keeps no host from the tenant
	w.says(r, "t", airship.ReasonInfraServiceFailure, "spec.services.auth[0].configSecret", true)
	require.NotEmpty(t, read[appsv1.Deployment](w, jump).UID, "the other service runs")

	require.NoError(t, w.Create(t.Context(), settings(first)))
	w.stands(r, "t", airship.ReasonSucceeded, "a")
	login := func() string { return string(read[corev1.Secret](w, auth+"-config").Data["config.json"]) }
	require.Contains(t, login(), first)

	w.change("t", replace(spec, "N}", "2}"))
	require.NoError(t, w.Update(t.Context(), settings(changed)))
	w.stands(r, "t", airship.ReasonSucceeded, "a", "b")
	require.Regexp(t, "^a\tWorker\t\\S+\nb\t", read[corev1.ConfigMap](w, jump+"-config").Data["hosts"])
	require.Contains(t, login(), changed)

	for _, name := range []string{jump, auth} { // the namespace is held to the restricted Pod Security Standard
		template := read[appsv1.Deployment](w, name).Spec.Template
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Namespace, pod.Name = w.home("t"), "try"
		require.NoError(t, w.Create(t.Context(), pod, client.DryRunAll))
	}

	// What runs stays when a Secret goes.
	require.NoError(t, w.Delete(t.Context(), settings(changed)))
	w.stands(r, "t", airship.ReasonInfraServiceFailure, "a", "b")
	w.says(r, "t", airship.ReasonInfraServiceFailure, "spec.services.auth[0].configSecret: the Secret "+w.ns+"/dex is not there", true)
	require.NotEmpty(t, read[appsv1.Deployment](w, auth).UID)
	runs := w.get("t").Status.Services[1]
	require.False(t, runs.Ready)
	require.NotEmpty(t, runs.Image)
	require.NotEmpty(t, runs.Endpoints)

	status, err := json.Marshal(w.get("t"))
	require.NoError(t, err)
	all := string(status) + told(r, "")
	require.Contains(t, all, "spec.services.auth[0].caSecret has no effect: write a certificate into tlsSecret")
	for _, s := range []string{first, changed, "PRIVATE KEY"} {
		require.NotContains(t, all, s)
	}
	require.NoError(t, w.Delete(t.Context(), w.get("t")))
	w.gone(r, "t")
}

// leads settles, and checks which hosts the load balancer of workers leads to.
func (w *world) leads(r *Reconciler, want ...string) {
	w.settle(r, "t")
	require.Equal(w, want, w.backends("t", services.LoadBalancerWorker))
}

func (w *world) machine(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta1")
	o.SetKind("Metal3Machine")
	o.SetNamespace(w.metal)
	o.SetName(name)
	return o
}

// take has a machine of a Cluster use a host. It selects the hosts of a SIPCluster; "" for any.
func (w *world) take(host, machine, cluster, selects string) {
	o := w.machine(machine)
	o.SetLabels(map[string]string{labelCluster: cluster})
	if selects != "" {
		labels := map[string]any{airship.LabelClusterNamespace: w.ns, airship.LabelClusterName: selects}
		o.Object["spec"] = map[string]any{"hostSelector": map[string]any{"matchLabels": labels}}
	}
	require.NoError(w, w.Create(w.Context(), o))
	w.edit(host, func(h *choose.BareMetalHost) {
		h.Spec.ConsumerRef = corev1.ObjectReference{ // of a version that is no longer served
			APIVersion: "infrastructure.cluster.x-k8s.io/v1alpha5", Kind: o.GetKind(), Namespace: w.metal, Name: machine,
		}
	})
}

// machineHas sets the addresses of a machine, as Cluster API does some time after it has a host.
func (w *world) machineHas(name string, addresses ...string) {
	all := fmt.Sprintf(`{"type":"Hostname","address":%q}`, name)
	for _, a := range addresses {
		all += fmt.Sprintf(`,{"type":"InternalIP","address":%q}`, a)
	}
	require.NoError(w, w.Patch(w.Context(), w.machine(name), merge(`{"status":{"addresses":[`+all+`]}}`)))
}

// A Cluster of the same name in another namespace is another one: that with most hosts is the tenant's.
func TestClustersOfOneNameInTwoNamespacesAreTwo(t *testing.T) {
	p := &pass{sip: &airship.SIPCluster{}}
	p.extracted = map[types.NamespacedName]*extracted{}
	for i, namespace := range []string{"theirs", "tenants", "tenants"} {
		key := types.NamespacedName{Name: strconv.Itoa(i)}
		cluster := types.NamespacedName{Namespace: namespace, Name: "prod"}
		p.extracted[key] = &extracted{machine: &machine{cluster: cluster}}
	}
	for _, named := range []string{"prod", ""} {
		p.sip.Spec.ClusterName, p.sip.Status.ClusterName = named, "prod"
		require.Equal(t, types.NamespacedName{Namespace: "tenants", Name: "prod"}, p.expectedCluster())
	}
	p.key.Namespace = "theirs"
	require.Equal(t, "theirs", p.expectedCluster().Namespace, "the SIPCluster's namespace wins")
	p.sip.Spec.ClusterName = "other"
	require.Equal(t, types.NamespacedName{Name: "other"}, p.expectedCluster())
}

// unserved answers as an API server that no longer serves a version that the operator knows.
type unserved struct{ client.Reader }

func (unserved) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "m", "404 page not found", 0, true)
}

func TestAMachineOfAVersionThatIsGoneMayStillExist(t *testing.T) {
	of := schema.FromAPIVersionAndKind("infrastructure.cluster.x-k8s.io/v1beta1", "Metal3Machine")
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{of.GroupVersion()})
	mapper.Add(of, meta.RESTScopeNamespace)
	p := &pass{Reconciler: &Reconciler{Client: fake.NewClientBuilder().WithRESTMapper(mapper).Build(), Reader: unserved{}}}
	h := &choose.Host{BareMetalHost: &choose.BareMetalHost{}}
	h.Spec.ConsumerRef.SetGroupVersionKind(of)
	_, err := p.machineOf(t.Context(), h)
	require.Error(t, err)
	require.NotEqual(t, fault.NotFound, fault.ReasonOf(err))
}

func TestHostsThatAnotherClusterUses(t *testing.T) {
	w, r := start(t)
	w.served(r)
	const a, b = "a=10.1.1.97", "b=10.1.1.98"
	w.take("a", "m-a", "red", "")
	w.leads(r, a, b)
	require.Equal(t, "red", w.get("t").Status.ClusterName)
	w.take("b", "m-b", "blue", "")
	w.leads(r, a)
	why := w.metal + "/b: services leave it out: Metal3Machine " + w.metal + `/m-b of Cluster "blue" uses it (copy status.hostSelector`
	w.says(r, "t", airship.ReasonInfraServiceFailure, why, true)
	require.Contains(t, w.get("t").Status.Hosts[1].Problem, "services leave it out")
	require.Equal(t, []string{"a", "b"}, names(w.labelled("t")), "it is held")

	w.change("t", balanced+"clusterName: blue\n")
	w.leads(r, b)
	w.change("t", balanced)
	w.leads(r, b)
	w.take("a", "m-c", "green", "t")
	w.leads(r, a)
	w.take("b", "m-d", "green", "")
	w.leads(r, a, b)
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, w.ready("t").Message)
}

// Ready names a host whose address services may not connect to, or that another has too.
func TestHostsWithAddressesThatCannotBeServed(t *testing.T) {
	w, r := start(t)
	w.hosts("a")
	w.host(metal3.Host{Name: "b", Address: "10.1.1.97"})
	api := &corev1.Service{}
	require.NoError(t, w.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "kubernetes"}, api))
	w.host(metal3.Host{Name: "c", Address: api.Spec.ClusterIP})
	w.settled(r, active(3))
	w.says(r, "t", airship.ReasonInfraServiceFailure, w.metal+"/b: host "+w.metal+"/a has its address 10.1.1.97 too, "+
		w.metal+"/c: services leave it out: the operator's --sip-egress does not allow its address "+api.Spec.ClusterIP, true)
	require.Equal(t, []string{"a=10.1.1.97", "b=10.1.1.97"}, w.backends("t", services.LoadBalancerWorker))
	unread := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.metal, Name: "c-network"}}
	require.NoError(t, w.Delete(t.Context(), unread))
	w.change("t", replace(active(3), "services: {", "services: {jumpHost: [{nodePort: PORT2, nodeInterfaceId: oam}], "))
	w.settle(r, "t")
	jump := read[corev1.ConfigMap](w, services.Name("t", services.JumpHost, 0)+"-config")
	require.NotContains(t, jump.Data["hosts"], api.Spec.ClusterIP)
	require.Contains(t, w.get("t").Status.Hosts[1].Problem, "has its address 10.1.1.97 too")

	w.hosts("d")
	w.host(metal3.Host{Name: "e", Address: "10.1.1.100"})
	w.change("t", replace(balanced, "active: 2", "active: 4"))
	w.settle(r, "t")
	w.sip("other", replace(active(1), "PORT1", "PORT2"))
	w.says(r, "other", airship.ReasonInfraServiceFailure,
		w.metal+"/e: a host of SIPCluster "+w.ns+"/t has its address 10.1.1.100 too", true)
	w.says(r, "t", airship.ReasonInfraServiceFailure, w.metal+"/d: a host of SIPCluster "+w.ns+"/other has its", true)
	require.Contains(t, w.backends("t", services.LoadBalancerWorker), "d=10.1.1.100")

	r.Egress = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} // c is still unread
	w.settle(r, "t")
	require.Empty(t, w.backends("t", services.LoadBalancerWorker))
}
