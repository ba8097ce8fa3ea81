package sipcluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	clusteredge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
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
	ns     string           // of SIPClusters
	system string           // the operator's
	metal  string           // of hosts
	flavor string
	// wrong makes the double of the renderer fail for a kind.
	wrong map[services.Kind]error
	now   time.Time
	port  int32 // the first of a few that no other world uses
	// writes that operators have made.
	writes atomic.Int64
}

// access is how all worlds reach the API server: each new client reads all kinds again.
var access struct {
	admin, own client.WithWatch
	refused    *cluster.Refused
}

var worlds atomic.Int32

func connect(t testing.TB, cfg *rest.Config) {
	t.Helper()
	metal3.Install(t, cfg)
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), airship.AddToScheme(scheme)))
	admin, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	require.NoError(t, err)
	require.NoError(t, cluster.SIPOperator.Grant(t.Context(), admin))
	account, refused := cluster.SIPOperator.Within(cfg)
	own, err := client.NewWithWatch(account, client.Options{Scheme: scheme, Mapper: admin.RESTMapper()})
	require.NoError(t, err)
	access.admin, access.own, access.refused = admin, own, refused
}

func start(t testing.TB) *world {
	t.Helper()
	cfg := cluster.Config(t)
	if access.admin == nil {
		connect(t, cfg)
	}
	c := access.admin
	access.refused.Forget()
	t.Cleanup(func() { access.refused.None(t) })
	w := &world{
		TB: t, WithWatch: c, own: access.own, ns: cluster.Namespace(t, cfg), system: cluster.Namespace(t, cfg), metal: cluster.Namespace(t, cfg),
		wrong: map[services.Kind]error{}, now: time.Now(), port: 30000 + 20*worlds.Add(1),
	}
	w.flavor = w.ns
	w.permit(map[string]any{"names": []any{w.ns}})
	require.NoError(t, cluster.SIPOperator.GrantIn(t.Context(), c, w.system))
	require.NoError(t, cluster.SIPOperator.Bind(t.Context(), c, "vdo-sip-hosts", w.metal))
	require.NoError(t, cluster.SIPOperator.Bind(t.Context(), c, "vdo-sip-services", w.ns))
	return w
}

// permit replaces the HostDeployPolicy beside the hosts; nil leaves none.
func (w *world) permit(namespaces map[string]any) {
	w.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"hostClaimNamespaces": namespaces}}}
	o.SetGroupVersionKind(HostKind.GroupVersion().WithKind("HostDeployPolicy"))
	o.SetNamespace(w.metal)
	o.SetName("tenants")
	require.NoError(w, client.IgnoreNotFound(w.Delete(w.Context(), o.DeepCopy())))
	if namespaces != nil {
		require.NoError(w, w.Create(w.Context(), o))
	}
}

// operator is one reconciler, as one process has it, that works through a client.
func (w *world) operator(c client.WithWatch) *Reconciler {
	c = w.counting(c)
	return &Reconciler{
		Client: c, Reader: c, Hosts: c,
		Writer:  condition.Writer{Client: c, Recorder: events.NewFakeRecorder(10000)},
		Cluster: &clusteredge.Cluster{Client: c, Reader: c, Records: inventory.SIPClusters},
		Options: Options{
			Namespace: w.system, Render: w.render, Bundles: bundles{}, Permissions: deployPolicies{c},
			Now: func() time.Time { return w.now }, Rand: strings.NewReader(strings.Repeat("r", 1<<20)),
		},
	}
}

// bundles has an image for each kind.
type bundles struct{ err error }

func (b bundles) Open(context.Context) (services.Images, []byte, error) { return b, nil, b.err }

func (bundles) Image(_ string, kind services.Kind, asked string) (string, error) {
	if asked != "" {
		return asked, nil
	}
	return "mirror.site/services@sha256:" + strings.Repeat("a", 60) + strings.ToLower(string(kind[:1])) + "aaa", nil
}

// hosts makes free ones with addresses, each in a rack of its own.
func (w *world) hosts(names ...string) {
	w.Helper()
	for _, name := range names {
		w.host(metal3.Host{Name: name, Labels: map[string]string{"rack": name}, Address: fmt.Sprintf("10.1.%d.%d", len(name), name[len(name)-1])})
	}
}

func (w *world) host(h metal3.Host) {
	w.Helper()
	h.Namespace = w.metal
	if h.Labels == nil {
		h.Labels = map[string]string{}
	}
	h.Labels["flavor"] = w.flavor
	require.NoError(w, metal3.Create(w.Context(), w, h))
}

// bare reads a host.
func (w *world) bare(name string) *unstructured.Unstructured {
	w.Helper()
	o := hostObject(types.NamespacedName{})
	require.NoError(w, w.Get(w.Context(), types.NamespacedName{Namespace: w.metal, Name: name}, o))
	return o
}

// edit changes a host as somebody else does.
func (w *world) edit(name string, change func(*unstructured.Unstructured)) {
	w.Helper()
	o := w.bare(name)
	patch := client.MergeFrom(o.DeepCopy())
	change(o)
	require.NoError(w, w.Patch(w.Context(), o, patch))
}

// note writes an annotation of a host.
func (w *world) note(name, key, value string) {
	w.Helper()
	w.edit(name, func(o *unstructured.Unstructured) {
		notes := o.GetAnnotations()
		if notes == nil {
			notes = map[string]string{}
		}
		notes[key] = value
		o.SetAnnotations(notes)
	})
}

// adopt has hosts adopted by the SIPCluster of the name that they are for.
func (w *world) adopt(names ...string) {
	w.Helper()
	for _, name := range names {
		w.note(name, airship.AnnotationAdopt, "true")
	}
}

func (w *world) use(name string) {
	w.Helper()
	w.edit(name, func(o *unstructured.Unstructured) {
		require.NoError(w, unstructured.SetNestedMap(o.Object, map[string]any{"kind": "Metal3Machine", "namespace": "t", "name": "m"}, "spec", "consumerRef"))
	})
}

func (w *world) mends(name string) {
	w.Helper()
	require.NoError(w, metal3.SetStatus(w.Context(), w, w.bare(name), "available", "OK", ""))
}

// find reads a SIPCluster, nil where there is none.
func (w *world) find(name string) *airship.SIPCluster {
	w.Helper()
	s := &airship.SIPCluster{}
	err := w.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, s)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w, err)
	return s
}

func (w *world) breaks(name string) {
	w.Helper()
	require.NoError(w, metal3.SetStatus(w.Context(), w, w.bare(name), "available", "error", "power management error"))
}

// sip makes a SIPCluster of a spec in YAML, where FLAVOR selects this world's hosts
// and PORT1 to PORT4 are ports of its own.
func (w *world) sip(name, spec string) *airship.SIPCluster {
	w.Helper()
	s := &airship.SIPCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	w.parse(spec, &s.Spec)
	require.NoError(w, w.Create(w.Context(), s))
	return s
}

func (w *world) parse(spec string, into *airship.SIPClusterSpec) {
	w.Helper()
	spec = strings.ReplaceAll(spec, "FLAVOR", "labelSelector: {matchLabels: {flavor: "+w.flavor+"}}")
	for i, port := range []string{"PORT1", "PORT2", "PORT3", "PORT4"} {
		spec = strings.ReplaceAll(spec, port, strconv.Itoa(int(w.port)+i))
	}
	require.NoError(w, yaml.UnmarshalStrict([]byte(spec), into))
}

// change replaces the spec of a SIPCluster.
func (w *world) change(name, spec string) {
	w.Helper()
	s := w.get(name)
	s.Spec = airship.SIPClusterSpec{}
	w.parse(spec, &s.Spec)
	require.NoError(w, w.Update(w.Context(), s))
}

func (w *world) get(name string) *airship.SIPCluster {
	w.Helper()
	s := &airship.SIPCluster{}
	require.NoError(w, w.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, s))
	return s
}

func (w *world) ready(name string) metav1.Condition {
	w.Helper()
	c := meta.FindStatusCondition(w.get(name).Status.Conditions, v1alpha1.ConditionReady)
	require.NotNil(w, c)
	return *c
}

// pass is one pass of an operator over a SIPCluster, as the API server has it.
func (w *world) pass(r *Reconciler, name string) error {
	_, err := reconcile.AsReconciler[*airship.SIPCluster](r.Client, r).Reconcile(w.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: w.ns, Name: name}})
	return err
}

// settle makes passes, with Deployments that roll out between them, until nobody writes.
func (w *world) settle(r *Reconciler, name string) {
	w.Helper()
	for range 40 {
		before := w.writes.Load()
		require.NoError(w, w.pass(r, name))
		if !w.play() && w.writes.Load() == before {
			return
		}
	}
	w.Fatal("it does not settle")
}

// state identifies everything that there is.
func (w *world) state() string {
	var out strings.Builder
	for _, list := range []client.ObjectList{hostList(), &airship.SIPClusterList{}, &appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}} {
		for _, ns := range []string{w.ns, w.system, w.metal} {
			require.NoError(w, w.List(w.Context(), list, client.InNamespace(ns)))
			require.NoError(w, meta.EachListItem(list, func(o runtime.Object) error {
				a, err := meta.Accessor(o)
				fmt.Fprintln(&out, a.GetName(), a.GetUID(), a.GetResourceVersion())
				return err
			}))
		}
	}
	return out.String()
}

// play does what the controllers of a cluster do: Deployments roll out, and what is deleted
// in the foreground goes. It tells whether there was anything to do.
func (w *world) play() (changed bool) {
	w.Helper()
	var deployments appsv1.DeploymentList
	require.NoError(w, w.List(w.Context(), &deployments, client.InNamespace(w.ns)))
	for i := range deployments.Items {
		d := &deployments.Items[i]
		n := *d.Spec.Replicas
		if d.DeletionTimestamp.IsZero() && d.Status.ObservedGeneration != d.Generation {
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
			require.NoError(w, w.Status().Update(w.Context(), d))
			changed = true
		}
	}
	for _, kind := range []schema.GroupVersionKind{
		{Group: "apps", Version: "v1", Kind: "Deployment"}, {Version: "v1", Kind: "Service"}, {Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"},
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}, {Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		require.NoError(w, w.List(w.Context(), list, client.InNamespace(w.ns)))
		for i := range list.Items {
			if o := &list.Items[i]; !o.GetDeletionTimestamp().IsZero() && len(o.GetFinalizers()) > 0 {
				patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
				require.NoError(w, client.IgnoreNotFound(w.Patch(w.Context(), o, patch)))
				changed = true
			}
		}
	}
	return changed
}

// labelled returns the hosts with labels of a SIPCluster, by role, and claimed those with a
// claim.
func (w *world) labelled(name string) map[string]string {
	w.Helper()
	return w.of(func(o *unstructured.Unstructured) string {
		if l := o.GetLabels(); l[airship.LabelClusterNamespace] == w.ns && l[airship.LabelClusterName] == name {
			return l[airship.LabelNodeType]
		}
		return ""
	})
}

func (w *world) claimed(name string) map[string]string {
	w.Helper()
	return w.of(func(o *unstructured.Unstructured) string {
		claim := strings.Fields(o.GetAnnotations()[airship.AnnotationClaim])
		if len(claim) > 1 && claim[1] == w.ns+"/"+name {
			return claim[0]
		}
		return ""
	})
}

func (w *world) of(role func(*unstructured.Unstructured) string) map[string]string {
	list := hostList()
	require.NoError(w, w.List(w.Context(), list, client.InNamespace(w.metal)))
	out := map[string]string{}
	for i := range list.Items {
		if r := role(&list.Items[i]); r != "" {
			out[list.Items[i].GetName()] = r
		}
	}
	return out
}

// objects are the names of what was made for SIPClusters, and of their records.
func (w *world) objects() []string {
	w.Helper()
	var out []string
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}} {
		for _, ns := range []string{w.ns, w.system} {
			require.NoError(w, w.List(w.Context(), list, client.InNamespace(ns)))
			require.NoError(w, meta.EachListItem(list, func(o runtime.Object) error {
				a, err := meta.Accessor(o)
				if strings.HasPrefix(a.GetName(), "sip-") {
					out = append(out, a.GetName())
				}
				return err
			}))
		}
	}
	return out
}

// backends are the hosts that a service leads to.
func (w *world) backends(name string, kind services.Kind) []string {
	w.Helper()
	var cm corev1.ConfigMap
	require.NoError(w, w.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: services.Name(name, kind, 0)}, &cm))
	return strings.Fields(cm.Data["hosts"])
}

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func replace(s, old, with string) string { return strings.ReplaceAll(s, old, with) }

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return string(data)
}

// nextIP is another address of the Service network.
func nextIP(ip string) string { return netip.MustParseAddr(ip).Next().String() }
