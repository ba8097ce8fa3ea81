package vdoconfig_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vdoconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

// patience is for slow machines: what is waited for there takes minutes under the race detector.
const patience = 5 * time.Minute

// shared is the cluster that all tests of this package install on, one after another.
var shared struct {
	once sync.Once
	c    *cluster.Cluster
	err  error
}

func TestMain(m *testing.M) {
	debug.SetGCPercent(400)                                // a tenth of the processor's time, under the race detector
	if err := flag.Set("test.parallel", "1"); err != nil { // see start
		panic(err)
	}
	code := m.Run()
	if shared.c != nil {
		shared.c.Stop()
	}
	os.Exit(code)
}

func config(t *testing.T) *rest.Config {
	t.Helper()
	shared.once.Do(func() {
		shared.c, shared.err = cluster.Start(context.Background(), cluster.Options{Nodes: cluster.DefaultNodes(), Progress: os.Stderr})
		if shared.err == nil {
			shared.err = cluster.InstallCRDs(shared.c.Config())
		}
	})
	require.NoError(t, shared.err)
	cfg := rest.CopyConfig(shared.c.Config())
	cfg.QPS = -1 // as a manager has it: the API server sees to fairness
	return cfg
}

// bundleOf returns the contents of a bundle of releases: stand-ins, invented digests and the
// project's own matrix.
func bundleOf(t *testing.T, ids ...string) *bundle.Contents {
	t.Helper()
	c := &bundle.Contents{Lock: &bundle.Lock{Platforms: []image.Platform{{}}}, Manifests: map[string][]byte{}}
	known := map[string]bool{}
	for _, text := range ids {
		id, err := matrix.ParseReleaseID(text)
		require.NoError(t, err)
		release, manifests := upstream.Release(t, "", id, upstream.Hurried)
		maps.Copy(c.Manifests, manifests)
		for _, ref := range slices.Sorted(maps.Values(release.Images)) {
			if !known[ref] {
				known[ref] = true
				c.Lock.Images = append(c.Lock.Images, bundle.Image{Reference: image.MustReference(ref), Digest: image.DigestOf([]byte(ref))})
			}
		}
		c.Lock.Releases = append(c.Lock.Releases, release)
	}
	key := strings.Join(ids, " ")
	if _, ok := listed[key]; !ok {
		text, err := upstream.Listed(t, c.Manifests).Marshal()
		require.NoError(t, err)
		listed[key] = text
	}
	c.Matrix = listed[key]
	return c
}

// listed are the matrices of bundles: describing what their manifests need takes longer
// than all else of them.
var listed = map[string][]byte{}

// store gives what it is told.
type store struct {
	contents *bundle.Contents
	err      error
	broken   string                      // digest that cannot be read
	of       map[string]*bundle.Contents // by digest; others are contents
}

func (s *store) Contents(_ context.Context, b *v1alpha1.DriverBundle) (*bundle.Contents, error) {
	if s.broken != "" && b.Status.Digest == s.broken {
		return nil, errBroken
	}
	if b.Name == "" { // by which a copy is found
		return nil, &fault.Error{Reason: fault.NotFound, Op: "read the copy of", Subject: b.Status.Digest}
	}
	if c := s.of[b.Status.Digest]; c != nil {
		return c, nil
	}
	return s.contents, s.err
}

// events keeps the text of events.
type events struct {
	mu   sync.Mutex
	told []string
}

func (e *events) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, reason+": "+fmt.Sprintf(note, args...))
}

func (e *events) all() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.told, "\n")
}

// world is a site: a namespace of the operator's, a vCenter that was checked, a
// bundle that was accepted, and a reconciler whose writes can be counted and failed.
type world struct {
	next          reconcile.Result // of the last pass
	client.Client                  // past everything
	access        *access
	t             *testing.T
	ns            string
	store         *store
	trust         trust
	events        *events
	r             *vdoconfig.Reconciler
	now           time.Time
	ahead         time.Duration // of passes' clock
	lacks         bool          // the operator lacks rights for a while

	passes  int
	deletes []string // by the operator, and perhaps still there
	stuck   string   // state of the cluster in which it does not settle

	mu     sync.Mutex // of what follows
	writes int
	fail   func(n int) error               // asked before each write to the cluster
	deny   func(method, name string) error // asked before each write and dry run
}

const (
	repository = "mirror.site:5000/vdo/drivers"
	pair       = "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.5.1"
	newer      = pair + " csi@3.7.3"
)

// start returns a site on which nothing is installed yet. It has the test wait until those are
// done that share an installation: each change from one to the other removes and installs all.
func start(t *testing.T, releases string) *world {
	t.Helper()
	if !strings.Contains(t.Name(), "/") { // a parallel subtest would begin after the end of its test
		t.Parallel() // one at a time
	}
	w := newWorld(t, releases)
	if left != "" { // installed's
		left = ""
		w.clean()
		w.writes, w.events.told = 0, nil
	}
	w.ns = cluster.Namespace(t, config(t))
	w.here()
	t.Cleanup(w.clean)
	w.surroundings()
	return w
}

func newWorld(t *testing.T, releases string) *world {
	t.Helper()
	if reached == nil {
		reached = newAccess(t, config(t))
	}
	a := reached
	w := &world{
		Client: a.admin, access: a, t: t, now: time.Now(),
		store: &store{contents: bundleOf(t, strings.Fields(releases)...)}, events: &events{}, trust: trust{},
	}
	a.refused.Forget()
	t.Cleanup(func() {
		if !w.lacks {
			a.refused.None(t)
		}
	})
	a.asks = w.asked
	a.edge.Client, a.edge.Reader, a.edge.Versions, a.edge.View = a.own, a.own, a.versions, nil
	w.r = &vdoconfig.Reconciler{
		Client: a.own, Reader: a.own, Store: w.store, Trust: w.trust, Recorder: w.events, Now: func() time.Time { return w.now },
		Cluster: a.edge,
	}
	return w
}

// surroundings makes what a VDOConfig needs: the mirror's login, a vCenter that was
// checked, a bundle that was accepted.
func (w *world) surroundings() {
	w.t.Helper()
	w.pullSecret()
	w.vcenter("vc-one", "vc1.site.example", "secret-1")
	w.bundle("sha256:" + strings.Repeat("a", 64))
}

// asked lets the operator's writes to the cluster be counted and failed; dry runs are no writes, and what is written
// to its own resources does not count.
func (w *world) asked(req *http.Request) error {
	if strings.Contains(req.URL.Path, "/vdo.vmware.com/") {
		return nil
	}
	w.mu.Lock() // dry runs are concurrent
	defer w.mu.Unlock()
	if w.deny != nil {
		if err := w.deny(req.Method, path.Base(req.URL.Path)); err != nil {
			return err
		}
	}
	if req.URL.Query().Has("dryRun") {
		return nil
	}
	if req.Method == http.MethodDelete {
		w.deletes = append(w.deletes, req.URL.Path)
	}
	w.writes++
	if w.fail == nil {
		return nil
	}
	return w.fail(w.writes)
}

// clean removes everything that the test had installed, whatever became of it. The operator would
// remove the same in several reconciles, which other tests show.
func (w *world) clean() {
	if w.t.Failed() {
		w.t.Log("events:\n" + w.events.all())
	}
	w.fail, w.deny = nil, nil
	var all v1alpha1.VDOConfigList
	require.NoError(w.t, w.List(context.Background(), &all))
	for i := range all.Items {
		o := &all.Items[i]
		w.change(o, func() { o.Finalizers = nil })
		require.NoError(w.t, client.IgnoreNotFound(w.Delete(context.Background(), o)))
	}
	w.sweep()
}

// sweep clears what has our label, in whatever namespace, all workloads, and what the played
// drivers made. The next test counts what has our label.
func (w *world) sweep() {
	ctx := context.Background()
	for _, o := range w.workloads() {
		require.NoError(w.t, client.IgnoreNotFound(w.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationForeground))))
	}
	w.until("workloads gone", func() bool { return len(w.workloads()) == 0 })
	w.until("all that has our label gone", func() bool {
		left := w.ours()
		for _, key := range left {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(schema.GroupVersionKind{Group: key.Group, Version: "v1", Kind: key.Kind})
			o.SetNamespace(key.Namespace)
			o.SetName(key.Name)
			require.NoError(w.t, client.IgnoreNotFound(w.Delete(ctx, o)))
		}
		return len(left) == 0
	})
	require.NoError(w.t, w.DeleteAllOf(ctx, &storagev1.CSIDriver{}))
	require.NoError(w.t, client.IgnoreNotFound(w.Delete(ctx, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: cluster.TopologyCRD().Name}})))
	var nodes storagev1.CSINodeList
	require.NoError(w.t, w.List(ctx, &nodes))
	for i := range nodes.Items {
		require.NoError(w.t, client.IgnoreNotFound(w.Delete(ctx, &nodes.Items[i])))
	}
}

// workloads are all DaemonSets and Deployments.
func (w *world) workloads() (all []client.Object) {
	w.t.Helper()
	for _, list := range []client.ObjectList{&appsv1.DaemonSetList{}, &appsv1.DeploymentList{}} {
		require.NoError(w.t, w.List(context.Background(), list))
		require.NoError(w.t, meta.EachListItem(list, func(o runtime.Object) error {
			all = append(all, o.(client.Object))
			return nil
		}))
	}
	return all
}

func (w *world) pullSecret() {
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "vdo-registry"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{".dockerconfigjson": []byte(`{"auths":{"mirror.site:5000":{"auth":"dTpw"}}}`)},
	})
}

// loginVersion identifies the login's Secret as it is.
func (w *world) loginVersion() string {
	w.t.Helper()
	_, version, err := w.r.Cluster.VersionedSecret(context.Background(), types.NamespacedName{Namespace: w.ns, Name: "vdo-registry"})
	require.NoError(w.t, err)
	return version
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.Create(context.Background(), o))
}

// change edits an object as it is now.
func (w *world) change(o client.Object, edit func()) {
	w.t.Helper()
	for {
		if err := w.Get(context.Background(), client.ObjectKeyFromObject(o), o); apierrors.IsNotFound(err) {
			return
		}
		edit()
		if err := w.Update(context.Background(), o); !apierrors.IsConflict(err) {
			require.NoError(w.t, err)
			return
		}
	}
}

// vcenter makes a VsphereCloudConfig whose check succeeded.
func (w *world) vcenter(name, host, password string) *v1alpha1.VsphereCloudConfig {
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name + "-creds"}, StringData: map[string]string{"username": "vdo@vsphere.local", "password": password}})
	vcc := &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec: v1alpha1.VsphereCloudConfigSpec{VcIP: host, Credentials: name + "-creds", Datacenters: []string{"dc"}}}
	w.create(vcc)
	w.checked(vcc, metav1.ConditionTrue, "Succeeded", "")
	return vcc
}

// checked writes the outcome of a check of what is there now.
func (w *world) checked(vcc *v1alpha1.VsphereCloudConfig, status metav1.ConditionStatus, reason, message string) {
	w.t.Helper()
	read, err := w.r.Cluster.Credentials(context.Background(), vcc)
	require.NoError(w.t, err)
	vcc.Status.Version, vcc.Status.ObservedGeneration, vcc.Status.CredentialsVersion = "8.0.3", vcc.Generation, read.Version
	if vcc.Status.VerifiedCredentials = ""; status == metav1.ConditionTrue {
		vcc.Status.VerifiedCredentials = read.Version
	}
	meta.SetStatusCondition(&vcc.Status.Conditions, metav1.Condition{Type: "Ready", Status: status, Reason: reason, Message: message, ObservedGeneration: vcc.Generation})
	require.NoError(w.t, w.Status().Update(context.Background(), vcc))
}

// bundle makes an accepted DriverBundle.
func (w *world) bundle(digest string) *v1alpha1.DriverBundle {
	b := &v1alpha1.DriverBundle{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "site"}, Spec: v1alpha1.DriverBundleSpec{Reference: repository + ":1"}}
	w.create(b)
	b.Status.Digest, b.Status.Repository, b.Status.VerifiedLogin = digest, repository, w.loginVersion()
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Succeeded"})
	w.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
	return b
}

// verified writes what the trust policy of now says of the accepted bundle.
func (w *world) verified(b *v1alpha1.DriverBundle, status metav1.ConditionStatus, reason, message string) {
	w.t.Helper()
	policy, err := w.r.Cluster.PolicyVersion(context.Background(), b)
	require.NoError(w.t, err)
	b.Status.VerifiedPolicy = policy
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{Type: "Verified", Status: status, Reason: reason, Message: message, ObservedGeneration: b.Generation})
	require.NoError(w.t, w.Status().Update(context.Background(), b))
}

// config makes a VDOConfig with the predecessor's fields alone.
func (w *world) config(name string) *v1alpha1.VDOConfig {
	w.t.Helper()
	v := &v1alpha1.VDOConfig{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, Spec: pairSpec()}
	w.create(v)
	return v
}

func pairSpec() v1alpha1.VDOConfigSpec {
	return v1alpha1.VDOConfigSpec{
		CloudProvider:   &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"vc-one"}},
		StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "vc-one"},
	}
}

// pass does one pass.
func (w *world) pass(key types.NamespacedName) {
	w.t.Helper()
	w.passes++
	w.now = time.Now().Add(10*time.Minute + w.ahead) // past all grace: what is amiss counts
	var err error
	w.next, err = w.r.Reconcile(context.Background(), reconcile.Request{NamespacedName: key})
	require.NoError(w.t, err)
}

// look does a pass and reads the VDOConfig again.
func (w *world) look(v *v1alpha1.VDOConfig) *v1alpha1.VDOConfig {
	w.t.Helper()
	w.pass(client.ObjectKeyFromObject(v))
	require.NoError(w.t, w.Get(context.Background(), client.ObjectKeyFromObject(v), v))
	return v
}

func describe(v *v1alpha1.VDOConfig) string {
	var out strings.Builder
	for _, c := range v.Status.Conditions {
		fmt.Fprintf(&out, "%s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	fmt.Fprintf(&out, "%+v\n%+v", v.Status.Drivers, v.Status.Nodes)
	return out.String()
}

func isTrue(v *v1alpha1.VDOConfig, typ string) bool {
	return meta.IsStatusConditionTrue(v.Status.Conditions, typ)
}

func cond(t *testing.T, v *v1alpha1.VDOConfig, typ string) metav1.Condition {
	t.Helper()
	c := meta.FindStatusCondition(v.Status.Conditions, typ)
	require.NotNil(t, c, "%s\n%s", typ, describe(v))
	return *c
}

func driver(v *v1alpha1.VDOConfig, name string) v1alpha1.DriverStatus {
	for _, d := range v.Status.Drivers {
		if d.Driver == name {
			return d
		}
	}
	return v1alpha1.DriverStatus{}
}

// play does what running drivers do: the cloud provider initialises nodes, the
// storage driver's controller makes its kind, and the node plugins register.
func (w *world) play() {
	w.t.Helper()
	ctx := context.Background()
	var nodes corev1.NodeList
	require.NoError(w.t, w.List(ctx, &nodes))
	clouds := w.running("kube-system", client.MatchingLabels{"name": "vsphere-cloud-controller-manager"})
	plugins := w.running("vmware-system-csi", client.MatchingLabels{"app": "vsphere-csi-node"})
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if _, away := n.Labels[cluster.LabelAway]; away {
			w.silence(n)
			continue
		}
		if len(clouds) > 0 {
			w.initialize(n)
		}
		if plugins[n.Name] {
			w.register(n)
		}
	}
	if len(w.running("vmware-system-csi", client.MatchingLabels{"app": "vsphere-csi-controller"})) > 0 {
		crd := cluster.TopologyCRD()
		if apierrors.IsNotFound(w.Get(ctx, client.ObjectKeyFromObject(crd), &apiextensionsv1.CustomResourceDefinition{})) {
			require.NoError(w.t, w.Create(ctx, crd))
		}
	}
}

func (w *world) initialize(n *corev1.Node) {
	w.t.Helper()
	uninitialized := func(t corev1.Taint) bool { return t.Key == cluster.TaintUninitialized }
	if id := "vsphere://" + n.Name; n.Spec.ProviderID != id || slices.ContainsFunc(n.Spec.Taints, uninitialized) {
		w.change(n, func() {
			n.Spec.ProviderID, n.Spec.Taints = id, slices.DeleteFunc(n.Spec.Taints, uninitialized)
		})
	}
}

// running are the nodes that have such a pod, and it runs.
func (w *world) running(ns string, labels client.MatchingLabels) map[string]bool {
	var pods corev1.PodList
	require.NoError(w.t, w.List(context.Background(), &pods, client.InNamespace(ns), labels))
	on := map[string]bool{}
	for _, p := range pods.Items {
		if p.Status.Phase == corev1.PodRunning {
			on[p.Spec.NodeName] = true
		}
	}
	return on
}

func (w *world) register(n *corev1.Node) {
	csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	_, err := controllerutil.CreateOrUpdate(context.Background(), w, csi, func() error {
		csi.Spec.Drivers = []storagev1.CSINodeDriver{{Name: drivers.CSIDriver, NodeID: n.Name}}
		return nil
	})
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
		require.NoError(w.t, err)
	}
}

func (w *world) inventory(v *v1alpha1.VDOConfig) inventory.Inventory {
	w.t.Helper()
	var cm corev1.ConfigMap
	require.NoError(w.t, w.Get(context.Background(), types.NamespacedName{Namespace: w.ns, Name: inventory.VDOConfigs.ConfigMap(v.Name)}, &cm))
	inv, err := inventory.Parse("x", []byte(cm.Data[inventory.DataKey]))
	require.NoError(w.t, err)
	return inv
}

// get reads an object that has to be there.
func get[T client.Object](w *world, o T, namespace, name string) T {
	w.t.Helper()
	require.NoError(w.t, w.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: name}, o))
	return o
}

func gone(w *world, o client.Object, namespace, name string) bool {
	w.t.Helper()
	return apierrors.IsNotFound(w.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: name}, o))
}

// trust says of bundles that were accepted before whether they are trusted still.
type trust map[string]error // by digest

func (t trust) Trusted(_ context.Context, b *v1alpha1.DriverBundle) error { return t[b.Status.Digest] }

// dropRecord deletes the inventory.
func (w *world) dropRecord(v *v1alpha1.VDOConfig) {
	w.t.Helper()
	name := inventory.VDOConfigs.ConfigMap(v.Name)
	require.NoError(w.t, w.Delete(context.Background(), get(w, &corev1.ConfigMap{}, w.ns, name)))
}
