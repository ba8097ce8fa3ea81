package sipcluster

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	clusteredge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/metal3"
)

func TestMain(m *testing.M) { cluster.Main(m) }

// world is an API server with hosts, and what plays the controllers that it lacks. Each
// world has namespaces of its own and hosts of its own flavor. The test is an administrator;
// operators are the account that is shipped, with its rights and no more.
type world struct {
	testing.TB
	client.WithWatch
	own    client.WithWatch // the operator's
	ns     string           // of SIPClusters, and the flavor of hosts
	system string           // the operator's
	metal  string           // of hosts
	now    time.Time
	port   int32 // the first of a few that no other world uses
	// writes that operators have made.
	writes atomic.Int64
	rights sync.Map // services' namespaces in which the API server knows the operator's rights
}

// access is how all worlds reach the API server: each new client reads all kinds again.
var access struct {
	admin   client.WithWatch
	account *rest.Config // the operator's
	refused *cluster.Refused
}

var worlds atomic.Int32

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// through is the operator's client, by way of a hook that sends each request, or answers it.
func (w *world) through(hook func(*http.Request, http.RoundTripper) (*http.Response, error)) client.WithWatch {
	cfg := rest.CopyConfig(access.account)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return hook(r, next) })
	})
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: w.Scheme(), Mapper: w.RESTMapper()})
	require.NoError(w, err)
	return c
}

func (w *world) counting(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	answer, err := next.RoundTrip(r)
	asks := r.Method == http.MethodGet || r.URL.Query().Has("dryRun") ||
		strings.HasPrefix(r.URL.Path, "/apis/authentication.k8s.io/")
	if !asks && err == nil && answer.StatusCode < http.StatusMultipleChoices {
		w.writes.Add(1)
	}
	return answer, err
}

func start(t testing.TB) (*world, *Reconciler) {
	cfg := cluster.Config(t)
	if access.admin == nil {
		metal3.Install(t, cfg)
		require.NoError(t, choose.AddToScheme(metal3.Kind.Version)(cluster.Scheme()))
		access.admin = cluster.Client(t, cfg)
		access.account, access.refused = cluster.SIPOperator.Within(cfg)
		require.NoError(t, cluster.SIPOperator.Grant(t.Context(), access.admin))
	}
	c := access.admin
	access.refused.Forget()
	t.Cleanup(func() { access.refused.None(t) })
	w := &world{
		TB: t, WithWatch: c,
		ns: cluster.Namespace(t, cfg), system: cluster.Namespace(t, cfg), metal: cluster.Namespace(t, cfg),
		now: time.Now(), port: 30000 + 20*worlds.Add(1),
	}
	w.own = w.through(w.counting)
	t.Cleanup(w.forget)
	w.permit(map[string]any{"names": []any{w.ns}})
	require.NoError(t, cluster.SIPOperator.GrantIn(t.Context(), c, w.system))
	require.NoError(t, cluster.SIPOperator.Bind(t.Context(), c, "vdo-sip-hosts", w.metal))
	require.NoError(t, cluster.SIPOperator.Bind(t.Context(), c, "vdo-sip-tenants", w.ns))
	return w, w.operator(w.own)
}

// forget empties the status of SIPClusters: worlds have the same addresses.
func (w *world) forget() {
	var all airship.SIPClusterList
	require.NoError(w, w.List(context.Background(), &all, client.InNamespace(w.ns)))
	for i := range all.Items {
		require.NoError(w, w.Status().Patch(context.Background(), &all.Items[i], merge(`{"status":{"hosts":null}}`)))
	}
}

// permit replaces the HostDeployPolicy beside the hosts; nil leaves none.
func (w *world) permit(namespaces map[string]any) {
	o := hostDeployPolicy(w.metal, namespaces)
	require.NoError(w, client.IgnoreNotFound(w.Delete(w.Context(), o.DeepCopy())))
	if namespaces != nil {
		require.NoError(w, w.Create(w.Context(), o))
	}
}

func hostDeployPolicy(namespace string, accepts map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"hostClaimNamespaces": accepts}}}
	o.SetGroupVersionKind(metal3.Kind.GroupVersion().WithKind("HostDeployPolicy"))
	o.SetNamespace(namespace)
	o.SetName("tenants")
	return o
}

// operator is one reconciler, as one process has it, that works through a client.
func (w *world) operator(c client.WithWatch) *Reconciler {
	return &Reconciler{
		Client: c, Reader: c, Hosts: c,
		Writer:  condition.Writer{Client: c, Recorder: events.NewFakeRecorder(10000)},
		Cluster: &clusteredge.Cluster{Client: c, Reader: c, Records: inventory.SIPClusters},
		Options: Options{Namespace: w.system, Bundles: bundles{}},
		Now:     func() time.Time { return w.now },
	}
}

// bundles is a bundle with an image for each kind, or one that cannot be used.
type bundles struct {
	login []byte
	err   error
}

func (b bundles) Open(context.Context) (services.Images, []byte, error) {
	if b.err != nil {
		return nil, nil, b.err
	}
	return func(kind services.Kind) (string, error) {
		return "mirror.site/services@sha256:" + strings.Repeat("a", 60) + strings.ToLower(string(kind[:1])) + "aaa", nil
	}, b.login, nil
}

// hosts makes free ones with addresses, each in a rack of its own.
func (w *world) hosts(names ...string) {
	for _, name := range names {
		w.host(metal3.Host{Name: name, Labels: map[string]string{"rack": name}, Address: fmt.Sprintf("10.1.%d.%d", len(name), name[len(name)-1])})
	}
}

func (w *world) host(h metal3.Host) {
	h.Namespace = w.metal
	if h.Labels == nil {
		h.Labels = map[string]string{}
	}
	h.Labels["flavor"] = w.ns
	require.NoError(w, metal3.Create(w.Context(), w, h))
}

func (w *world) bare(name string) *choose.BareMetalHost {
	o := &choose.BareMetalHost{}
	require.NoError(w, w.Get(w.Context(), types.NamespacedName{Namespace: w.metal, Name: name}, o))
	return o
}

// edit changes a host as someone else does: all but its status.
func (w *world) edit(name string, change func(*choose.BareMetalHost)) {
	o := w.bare(name)
	patch := client.MergeFrom(o.DeepCopyObject().(*choose.BareMetalHost)) //nolint:forcetypeassert,errcheck // it is one
	change(o)
	require.NoError(w, w.Patch(w.Context(), o, patch))
}

func (w *world) note(name, key, value string) {
	w.edit(name, func(o *choose.BareMetalHost) { metav1.SetMetaDataAnnotation(&o.ObjectMeta, key, value) })
}

// adopt has hosts adopted by the SIPCluster t.
func (w *world) adopt(role airship.Role, names ...string) {
	for _, name := range names {
		w.note(name, airship.AnnotationClaim, string(role)+" "+w.ns+"/t")
	}
}

// use has a machine of no known kind use a host, or none.
func (w *world) use(name string, used bool) {
	w.edit(name, func(o *choose.BareMetalHost) {
		o.Spec.ConsumerRef = map[bool]corev1.ObjectReference{true: {Kind: "Metal3Machine", Namespace: "t", Name: "m"}}[used]
	})
}

func (w *world) fails(name string, broken bool) {
	w.reports(name, map[bool]string{
		true: `{"operationalStatus":"error","errorType":"power management error"}`, false: `{"operationalStatus":"OK","errorType":""}`,
	}[broken])
}

// reports changes a host's status as Metal3 does.
func (w *world) reports(name, status string) {
	require.NoError(w, w.Status().Patch(w.Context(), w.bare(name), merge(`{"status":`+status+`}`)))
}

func (w *world) find(name string) *airship.SIPCluster {
	s := &airship.SIPCluster{}
	err := w.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, s)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w, err)
	return s
}

// sip makes a SIPCluster of a spec in YAML, where FLAVOR selects this world's hosts
// PORT1 to PORT4 are ports of its own, and the first jump host has a key.
func (w *world) sip(name, spec string) *airship.SIPCluster {
	s := &airship.SIPCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	w.parse(spec, &s.Spec)
	require.NoError(w, w.Create(w.Context(), s))
	return s
}

func (w *world) parse(spec string, into *airship.SIPClusterSpec) {
	spec = strings.ReplaceAll(spec, "FLAVOR", "labelSelector: {matchLabels: {flavor: "+w.ns+"}}")
	key := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE0IuIJYGZJxOCxWkqgqS5jTmJ5n2f7dRlVYqP7mJtZ2"
	spec = strings.ReplaceAll(spec, "jumpHost: [{", "jumpHost: [{sshAuthorizedKeys: ["+key+"], ")
	for i, port := range []string{"PORT1", "PORT2", "PORT3", "PORT4"} {
		spec = strings.ReplaceAll(spec, port, strconv.Itoa(int(w.port)+i))
	}
	require.NoError(w, yaml.UnmarshalStrict([]byte(spec), into))
}

func (w *world) change(name, spec string) {
	s := w.get(name)
	s.Spec = airship.SIPClusterSpec{}
	w.parse(spec, &s.Spec)
	require.NoError(w, w.Update(w.Context(), s))
}

func (w *world) get(name string) *airship.SIPCluster {
	s := w.find(name)
	require.NotNil(w, s, name)
	return s
}

func (w *world) ready(name string) metav1.Condition {
	c := meta.FindStatusCondition(w.get(name).Status.Conditions, v1alpha1.ConditionReady)
	require.NotNil(w, c)
	return *c
}

// pass is one pass of an operator over a SIPCluster, as the API server has it. It ends when the API server
// knows the rights that the operator gave itself.
func (w *world) pass(r *Reconciler, name string) error {
	_, err := reconcile.AsReconciler[*airship.SIPCluster](r.Client, r).Reconcile(w.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: w.ns, Name: name}})
	key := types.NamespacedName{Namespace: w.home(name), Name: servicesRole}
	if _, known := w.rights.Load(key.Namespace); known || w.Get(w.Context(), key, &rbacv1.RoleBinding{}) != nil {
		return err
	}
	right := rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}}
	require.NoError(w, cluster.SIPOperator.Await(w.Context(), w, key.Namespace, right))
	w.rights.Store(key.Namespace, true)
	return err
}

func (w *world) home(name string) string {
	return services.Namespace(types.NamespacedName{Namespace: w.ns, Name: name})
}

func read[T any, P interface {
	*T
	client.Object
}](w *world, name string) *T {
	o := P(new(T))
	require.NoError(w, w.Get(w.Context(), types.NamespacedName{Namespace: w.home("t"), Name: name}, o))
	return (*T)(o)
}

// told are the notes of events of a reason.
func told(r *Reconciler, reason string) string {
	recorder, isFake := r.Writer.Recorder.(*events.FakeRecorder)
	var all []string
	for isFake && len(recorder.Events) > 0 {
		if e := <-recorder.Events; strings.Contains(e, reason) {
			all = append(all, e)
		}
	}
	return strings.Join(all, "\n")
}

// Specs: one host alone; two with a load balancer; and two and a standby host, each in a rack of its own.
const (
	alone    = "nodes: {Worker: {FLAVOR, count: {active: 1}}}\n"
	balanced = `
nodes: {Worker: {FLAVOR, count: {active: 2}}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]}
`
	workers = `
nodes: {Worker: {FLAVOR, topologyKey: rack, count: {active: 2, standby: 1}}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]}
`
)

// active is balanced with another count of hosts.
func active(n int) string { return replace(balanced, "active: 2", fmt.Sprintf("active: %d", n)) }

// settled makes hosts, and the SIPCluster t of a spec, and settles.
func (w *world) settled(r *Reconciler, spec string, hosts ...string) *airship.SIPCluster {
	w.hosts(hosts...)
	w.sip("t", spec)
	w.settle(r, "t")
	return w.get("t")
}

// served is a SIPCluster t with the hosts a and b and a load balancer that leads to them.
func (w *world) served(r *Reconciler) *airship.SIPCluster {
	s := w.settled(r, balanced, "a", "b")
	w.stands(r, "t", airship.ReasonSucceeded, "a", "b")
	return s
}

// settle makes passes, with Deployments that roll out between them, until no one writes.
func (w *world) settle(r *Reconciler, name string) {
	for range 40 {
		before := w.writes.Load()
		require.NoError(w, w.pass(r, name))
		if !w.play(name) && w.writes.Load() == before {
			return
		}
	}
	require.Fail(w, "it does not settle")
}

// stands settles, and checks what Ready says and which hosts are labelled, and claimed.
func (w *world) stands(r *Reconciler, name, reason string, hosts ...string) {
	w.settle(r, name)
	require.Equal(w, reason, w.ready(name).Reason, w.ready(name).Message)
	require.Equal(w, hosts, names(w.labelled(name)))
	require.Equal(w, w.labelled(name), w.claimed(name))
}

// labels are those of what an operator makes for a SIPCluster.
func (w *world) labels(name string) client.MatchingLabels {
	return client.MatchingLabels{airship.LabelClusterNamespace: w.ns, airship.LabelClusterName: name}
}

// made are the objects of a kind that operators have made for a SIPCluster, in whatever namespace.
func (w *world) made(kind schema.GroupVersionKind, name string) []metav1.PartialObjectMetadata {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	require.NoError(w, w.List(w.Context(), list, w.labels(name)))
	return list.Items
}

// objects names all that operators have made for a SIPCluster.
func (w *world) objects(name string) (all []string) {
	for _, kind := range kinds {
		for _, o := range w.made(kind, name) {
			all = append(all, o.Namespace+"/"+o.Name)
		}
	}
	return all
}

// play does what the controllers of a cluster do for a SIPCluster: Deployments roll out, and what is deleted
// goes. It tells whether there was anything to do.
func (w *world) play(name string) (changed bool) {
	var deployments appsv1.DeploymentList
	require.NoError(w, w.List(w.Context(), &deployments, w.labels(name)))
	for i := range deployments.Items {
		d := &deployments.Items[i]
		n := *d.Spec.Replicas
		if d.DeletionTimestamp.IsZero() && d.Status.ObservedGeneration != d.Generation {
			d.Status = appsv1.DeploymentStatus{
				ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
			}
			require.NoError(w, w.Status().Update(w.Context(), d))
			changed = true
		}
	}
	for _, kind := range kinds {
		for _, o := range w.made(kind, name) {
			if !o.DeletionTimestamp.IsZero() && len(o.Finalizers) > 0 {
				require.NoError(w, client.IgnoreNotFound(w.Patch(w.Context(), &o, merge(`{"metadata":{"finalizers":null}}`))))
				changed = true
			}
		}
	}
	home := &corev1.Namespace{}
	if w.Get(w.Context(), types.NamespacedName{Name: w.home(name)}, home) != nil || home.DeletionTimestamp.IsZero() {
		return changed
	}
	for _, kind := range append(kinds, rbacv1.SchemeGroupVersion.WithKind("RoleBinding")) {
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(kind)
		require.NoError(w, w.DeleteAllOf(w.Context(), o, client.InNamespace(home.Name)))
	}
	home.Spec.Finalizers = nil
	require.NoError(w, w.SubResource("finalize").Update(w.Context(), home))
	w.rights.Delete(home.Name)
	return true
}

func merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

// labelled returns the roles of the hosts with labels of a SIPCluster, and claimed of those with a claim.
func (w *world) labelled(name string) map[string]string {
	return w.of(name, func(o *choose.BareMetalHost) string {
		by, role := choose.HolderByLabels(o.Labels)
		return fmt.Sprintf("%s %s", role, by)
	})
}

func (w *world) claimed(name string) map[string]string {
	return w.of(name, (*choose.BareMetalHost).Claim)
}

// of returns the roles of the hosts that are marked with ROLE NAMESPACE/NAME of a SIPCluster, whatever follows.
func (w *world) of(name string, mark func(*choose.BareMetalHost) string) map[string]string {
	var list choose.BareMetalHostList
	require.NoError(w, w.List(w.Context(), &list, client.InNamespace(w.metal)))
	out := map[string]string{}
	for i := range list.Items {
		if fields := strings.Fields(mark(&list.Items[i])); len(fields) > 1 && fields[1] == w.ns+"/"+name {
			out[list.Items[i].Name] = fields[0]
		}
	}
	return out
}

func names(of map[string]string) []string { return slices.Sorted(maps.Keys(of)) }

var backend = regexp.MustCompile(`(?m)^    server (\S+) ipv4@([0-9.]+)`)

// backends are the hosts that the first load balancer of a kind leads to.
func (w *world) backends(name string, kind services.Kind) []string {
	var cm corev1.ConfigMap
	key := types.NamespacedName{Namespace: w.home(name), Name: services.Name(name, kind, 0) + "-config"}
	require.NoError(w, w.Get(w.Context(), key, &cm))
	var all []string
	for _, found := range backend.FindAllStringSubmatch(cm.Data["haproxy.cfg"], -1) {
		all = append(all, strings.TrimSuffix(found[1], "."+w.metal)+"="+found[2])
	}
	return all
}

func replace(s, old, with string) string { return strings.ReplaceAll(s, old, with) }

// BenchmarkSIP is a site of 2,000 hosts and 100 SIPClusters of ten hosts with a load
// balancer each: what a pass takes that has nothing to do (at most 60 ms), and what one takes that adds one host
// (at most 2 s).
func BenchmarkSIP(b *testing.B) {
	const hosts, clusters = 2000, 100
	w, _ := start(b)
	for i := range hosts {
		w.host(metal3.Host{Name: fmt.Sprintf("h%04d", i), Labels: map[string]string{"rack": fmt.Sprint(i)}, Address: fmt.Sprintf("10.%d.%d.%d", 2+i/60000, i/250, 1+i%250)})
	}
	r := w.benched()
	for i := range clusters {
		w.sip(fmt.Sprintf("t%03d", i), bigSite(i, 10))
		w.settle(r, fmt.Sprintf("t%03d", i))
	}
	for _, c := range []struct {
		name   string
		change func(i int)
	}{
		{"nothing", func(int) {}},
		{"one-more-host", func(i int) {
			w.change(fmt.Sprintf("t%03d", i%clusters), bigSite(i%clusters, 11+i/clusters))
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				c.change(i)
				b.StartTimer()
				require.NoError(b, w.pass(r, fmt.Sprintf("t%03d", i%clusters)))
			}
		})
	}
}

// bigSite is the spec of one of many SIPClusters, with a port of its own.
func bigSite(i, active int) string {
	return fmt.Sprintf(`
nodes: {Worker: {FLAVOR, topologyKey: rack, count: {active: %d}}}
services: {loadBalancerWorker: [{nodePortRange: {start: %[2]d, end: %[2]d}, nodeInterfaceId: oam}]}
`, active, 32100+i)
}

// benched is an operator with a cache of hosts as the program has it.
func (w *world) benched() *Reconciler {
	hosts, err := cache.New(cluster.SIPOperator.Config(cluster.Config(w)), cache.Options{Scheme: w.Scheme(), ByObject: CacheOptions()})
	require.NoError(w, err)
	ctx, stop := context.WithCancel(context.Background())
	w.Cleanup(stop)
	go func() { _ = hosts.Start(ctx) }()
	require.True(w, hosts.WaitForCacheSync(w.Context()))
	require.NoError(w, hosts.List(w.Context(), &choose.BareMetalHostList{}), "it waits until the cache is filled")
	r := w.operator(w.own)
	r.Hosts = hosts
	return r
}
