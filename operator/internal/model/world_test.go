package model

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/driverbundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vdoconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vspherecloudconfig"
	vclogins "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/store"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/random"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

const (
	namespace    = "vmware-system-vdo"
	csiNamespace = "vmware-system-csi"

	// Every secret has the canary in it.
	canary         = "-canary"
	mirrorPassword = "mirror-1" + canary //nolint:gosec // of a registry that lives for one test
)

// site is what all programs share: nothing in it is changed for good.
type site struct {
	*registry.Registry
	keys     map[string]string // public, in PEM: release, stranger
	vc       *vcsim.VCenter
	cfg      *rest.Config
	password int // numbers the vCenter's passwords, so that none comes twice
}

// world is one program's.
type world struct {
	client.Client // an administrator's, past everything
	ctx           context.Context
	site          *site
	rest          rest.Interface
	now           time.Time

	wire   *wire
	api    client.Client      // the operator's
	denied []*cluster.Refused // what each of them had no right to
	op     controllers
	events *transcript
	log    *transcript

	nodes      map[string]*node
	pods       map[types.NamespacedName]podState
	registered map[string]bool
	topology   bool                                   // the kind CSINodeTopology was made
	falls      func(x workload, template string) bool // whether pods fall over; nil: none do
	collected  int
	asked      int
	again      time.Duration // after the last pass
	trace      []string

	model
}

// fail ends the program over an invariant that did not hold.
func (w *world) fail(invariant, format string, args ...any) {
	detail := fmt.Sprintf(format, args...) + "\n\nwhat happened:\n  " + strings.Join(w.trace, "\n  ")
	panic(&random.Broken{Rule: invariant, Detail: detail})
}

// must ends the program over a fault of the test's own doings.
func (w *world) must(err error) {
	if err != nil {
		panic(fmt.Errorf("the world: %w\n%s", err, debug.Stack()))
	}
}

// run runs a program in a world that was put back to its beginning.
func (s *site) run(p program) error {
	_, err := enact(context.Background(), s, func(w *world) {
		for _, e := range p {
			w.happen(e)
		}
		w.heal()
		w.peace(true)
	})
	return err
}

// enact has something happen in such a world.
func enact(ctx context.Context, s *site, happens func(*world)) (w *world, err error) {
	w, err = newWorld(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() {
		switch v := recover().(type) {
		case nil:
		case error:
			err = v
		default:
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	w.reset()
	w.prepare()
	happens(w)
	return w, nil
}

func newWorld(ctx context.Context, s *site) (*world, error) {
	admin := rest.CopyConfig(s.cfg)
	admin.QPS = -1
	httpClient, err := rest.HTTPClientFor(admin)
	if err != nil {
		return nil, err
	}
	c, err := client.New(admin, client.Options{Scheme: cluster.Scheme(), HTTPClient: httpClient})
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(admin, httpClient)
	if err != nil {
		return nil, err
	}
	return &world{
		Client: c, ctx: ctx, site: s, rest: d.RESTClient(), now: time.Now().Add(10 * time.Minute),
		events: &transcript{}, log: &transcript{}, nodes: map[string]*node{}, pods: map[types.NamespacedName]podState{}, registered: map[string]bool{},
		model: model{
			mirrorLogins: []string{mirrorPassword},
			rolled:       map[string]*rolled{}, touched: map[string]bool{}, served: map[string]bool{},
		},
	}, nil
}

// transcript keeps the text of events or logs.
type transcript struct{ shell.Log }

// Eventf records an event.
func (s *transcript) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	_, _ = fmt.Fprintln(s, reason+": "+fmt.Sprintf(note, args...))
}

// controllers are the operator: what a restart recreates.
type controllers struct {
	bundle  reconcile.Reconciler
	vcenter reconcile.Reconciler
	drivers *vdoconfig.Reconciler
}

// start starts the operator, with its own rights and without any memory.
func (w *world) start() {
	cfg, denied := cluster.Operator.Within(w.site.cfg)
	cfg.QPS, w.denied = -1, append(w.denied, denied)
	if w.wire == nil {
		w.wire = &wire{}
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		w.wire.next = next
		return w.wire
	})
	httpClient, err := rest.HTTPClientFor(cfg)
	w.must(err)
	w.api, err = client.New(cfg, client.Options{Scheme: w.Scheme(), Mapper: w.RESTMapper(), HTTPClient: httpClient})
	w.must(err)
	versions, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, httpClient)
	w.must(err)
	now := func() time.Time { return w.now }
	bundles := store.New(store.Options{Client: w.api, Timeout: 5 * time.Second})
	writer := condition.Writer{Client: w.api, Recorder: w.events}
	records := &edge.Cluster{Client: w.api, Reader: w.api, Versions: versions}
	trust := &driverbundle.Reconciler{
		Reader: w.api, Writer: writer, Store: bundles, Now: now, Retained: func(ctx context.Context) ([]string, error) {
			return vdoconfig.Retained(ctx, w.api, namespace, records.LoadInventory)
		},
	}
	w.op.bundle = reconcile.AsReconciler(w.api, trust)
	known := &vclogins.Logins{Past: vspherecloudconfig.Past(w.api, namespace)}
	w.op.vcenter = reconcile.AsReconciler(w.api, &vspherecloudconfig.Reconciler{
		Reader: w.api, Writer: writer, Check: vcenter.Check, Now: now, Logins: known,
	})
	w.op.drivers = &vdoconfig.Reconciler{
		Client: w.api, Reader: w.api, Store: bundles, Trust: trust, Recorder: w.events, Now: now,
		Cluster: records,
	}
}

// happen does an event.
func (w *world) happen(e event) {
	k, text := kindOf(e.Kind), e.Kind+": "+e.Arg
	if !slices.Contains(k.args, e.Arg) || (e.Kind == interruption && e.At == 0) {
		w.must(fmt.Errorf("there is no event %+v", e))
	}
	if e.At == 0 {
		w.note("event", text)
		k.do(w, e.Arg)
		return
	}
	w.note(fmt.Sprintf("armed at request %d:", e.At), text)
	if fault, ok := faults[e.Arg]; ok && e.Kind == interruption {
		w.wire.arm(armed{at: e.At, what: fault})
		return
	}
	w.wire.arm(armed{at: e.At, do: func() {
		defer func() { // not in this goroutine
			if v := recover(); v != nil {
				w.late = fmt.Errorf("%s: %v", text, v)
			}
		}()
		w.note("event", text)
		k.do(w, e.Arg)
		w.amid = true
	}})
}

// note adds a line to the trace of the program.
func (w *world) note(what, text string) { w.trace = append(w.trace, what+" "+text) }

// The passes.
const (
	passBundle  = "bundle"
	passVCenter = "vcenter"
	passDrivers = "drivers"
)

var passes = []string{passBundle, passVCenter, passDrivers}

// pass does a pass of each of some controllers over each of its resources.
func (w *world) pass(some ...string) {
	for _, which := range some {
		r, list := reconcile.Reconciler(w.op.drivers), client.ObjectList(&v1alpha1.VDOConfigList{})
		switch which {
		case passBundle:
			r, list = w.op.bundle, &v1alpha1.DriverBundleList{}
		case passVCenter:
			r, list = w.op.vcenter, &v1alpha1.VsphereCloudConfigList{}
		}
		w.must(meta.EachListItem(own(w, list), func(o runtime.Object) error {
			named, err := meta.Accessor(o)
			w.must(err)
			w.one(which, r, types.NamespacedName{Namespace: named.GetNamespace(), Name: named.GetName()})
			return nil
		}))
	}
}

// own reads the resources of one of the operator's own kinds.
func own[L client.ObjectList](w *world, list L) L {
	w.must(w.List(w.ctx, list, client.InNamespace(namespace)))
	return list
}

// one is one pass over one resource, and the look at the world after it.
func (w *world) one(which string, r reconcile.Reconciler, key types.NamespacedName) {
	w.before(which)
	ctx, cancel := context.WithCancel(log.IntoContext(w.ctx, w.logger()))
	defer cancel()
	w.amid = false
	w.wire.begin(cancel)
	result, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: key})
	if w.wire.end() {
		w.note("killed", "in a pass of "+which)
		w.deaths++
		w.start()
	}
	w.must(w.late)
	w.failed, w.again = err, result.RequeueAfter
	if err != nil {
		w.note("pass", fmt.Sprintf("%s %s: error %v", which, key.Name, err))
	} else {
		w.note("pass", fmt.Sprintf("%s %s: again in %s", which, key.Name, result.RequeueAfter))
	}
	w.after(which, key)
}

func (w *world) logger() logr.Logger {
	write := func(prefix, args string) { _, _ = fmt.Fprintln(w.log, prefix, args) }
	return funcr.New(write, funcr.Options{Verbosity: 1})
}

// settle does passes of all controllers until nothing is written any more. It tells
// whether that came to an end.
func (w *world) settle() bool {
	for range 40 {
		did := w.play()
		_, before := w.wire.written(0)
		w.pass(passes...)
		if _, now := w.wire.written(0); now == before && !did {
			return true
		}
		w.now = w.now.Add(2 * time.Second)
	}
	return false
}

// interval is longer than any that the resources have.
const interval = 11 * time.Minute

// peace lets four intervals go by in which nothing happens, and one more, in which
// nothing may be written. Four: a fault of a vCenter is seen in the second, has taken Ready
// from the VsphereCloudConfig by the third, and from the VDOConfig by the fourth. More while
// the time of a rollout runs, of which an interval counts two minutes.
func (w *world) peace(healed bool) {
	goes := func(r v1alpha1.RevisionStatus) bool { return r.Outcome == "Progressing" }
	rolls := func(v v1alpha1.VDOConfig) bool { return slices.ContainsFunc(v.Status.Revisions, goes) }
	for i := 0; i < 4 || i < 12 && slices.ContainsFunc(w.configs(), rolls); i++ {
		if !w.settle() {
			writes, n := w.wire.written(0)
			w.fail("in peace it comes to rest", "it goes on writing, at last:\n%s", lines(writes[max(0, n-20):]))
		}
		w.now = w.now.Add(interval)
	}
	_, before := w.wire.written(0)
	for _, which := range passes {
		w.pass(which)
		if w.failed != nil && w.wire.refuse == nil {
			w.fail("in peace no pass fails", "pass of %s: %v", which, w.failed)
		}
	}
	if kept := w.since(before); len(kept) > 0 {
		w.fail("at rest nothing is written", "%s", lines(kept))
	}
	w.atRest(healed)
}

// since are the writes from the n-th on that change something. An operator that starts asks the
// vCenter, and notes when.
func (w *world) since(n int) []write {
	writes, _ := w.wire.written(n)
	return slices.DeleteFunc(writes, func(x write) bool { return strings.Contains(x.path, "/vspherecloudconfigs/") })
}

func lines[T fmt.Stringer](all []T) string {
	var out strings.Builder
	for _, x := range all {
		out.WriteString("  " + x.String() + "\n")
	}
	return out.String()
}

// reset puts the cluster, the mirror and the vCenter back where nothing has happened yet.
func (w *world) reset() {
	w.site.Heal()
	w.site.vc.Mend()
	w.site.Password = mirrorPassword
	w.rights()
	for _, o := range []client.Object{&v1alpha1.VDOConfig{}, &v1alpha1.DriverBundle{}, &v1alpha1.VsphereCloudConfig{}} {
		w.wipe(o, client.InNamespace(namespace))
	}
	for _, o := range []client.Object{
		&admissionv1.ValidatingWebhookConfiguration{}, &admissionv1.MutatingWebhookConfiguration{},
		&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{},
	} {
		w.wipe(o, mine)
	}
	for _, ns := range []string{namespace, csiNamespace, "kube-system"} {
		w.empty(ns)
		w.wipe(&rbacv1.Role{}, client.InNamespace(ns), mine)
		w.wipe(&rbacv1.RoleBinding{}, client.InNamespace(ns), mine)
	}
	for _, o := range []client.Object{&storagev1.CSIDriver{}, &corev1.Node{}, &storagev1.CSINode{}, &corev1.PersistentVolume{}} {
		w.wipe(o)
	}
}

// mine are the labels of what the operator has installed.
var mine = client.MatchingLabels{"app.kubernetes.io/managed-by": "vdo-operator"}

// wipe deletes all of a kind, finalizers or not.
func (w *world) wipe(of client.Object, opts ...client.DeleteAllOfOption) {
	w.must(w.DeleteAllOf(w.ctx, of, append(opts, client.PropagationPolicy(metav1.DeletePropagationBackground))...))
	gvks, _, err := w.Scheme().ObjectKinds(of)
	w.must(err)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvks[0])
	var all client.DeleteAllOfOptions
	all.ApplyOptions(opts)
	w.must(w.List(w.ctx, list, &all.ListOptions))
	for i := range list.Items {
		if o := &list.Items[i]; len(o.GetFinalizers()) > 0 {
			o.SetFinalizers(nil)
			w.must(client.IgnoreNotFound(w.Update(w.ctx, o)))
		}
	}
}

// empty empties a namespace of what programs put there.
func (w *world) empty(ns string) {
	for _, o := range []client.Object{
		&appsv1.DaemonSet{}, &appsv1.Deployment{}, &corev1.ConfigMap{}, &corev1.Secret{}, &corev1.Service{},
		&corev1.ServiceAccount{}, &corev1.Event{},
	} {
		w.wipe(o, client.InNamespace(ns))
	}
	w.wipe(&corev1.Pod{}, client.InNamespace(ns), client.GracePeriodSeconds(0))
}

// rights gives the operator what it is shipped with.
func (w *world) rights() {
	w.endNamespaces()
	w.must(cluster.Operator.Grant(w.ctx, w.Client))
}

// prepare makes a site where all is right and nothing is installed yet.
func (w *world) prepare() {
	w.changePassword()
	w.inputs, w.began, w.refused = 0, w.now, w.site.vc.Refused(vcsim.Admin.Username)
	w.retag(bundleFirst)
	nodes := map[string]bool{"cp-1": true, "w-1": false, "w-2": false, "w-3": false}
	for name, plane := range nodes {
		w.nodes[name] = &node{controlPlane: plane, ready: true}
		w.bringNode(name)
	}
	w.put(w.credentials(w.vcPassword()), w.authority(), w.mirrorAuthority(), w.pullSecret(w.site.DockerConfig()),
		w.trustOf("release"), w.cloudConfig(), w.driverBundle("drivers"), w.vdoConfig("m-site"))
	w.start()
}

// put makes objects what they shall be: each is created, or replaced.
func (w *world) put(objects ...client.Object) {
	for _, o := range objects {
		err := w.Create(w.ctx, o)
		if !apierrors.IsAlreadyExists(err) {
			w.must(err)
			continue
		}
		was := o.DeepCopyObject().(client.Object) //nolint:forcetypeassert // it is a copy
		w.must(w.Get(w.ctx, client.ObjectKeyFromObject(o), was))
		o.SetResourceVersion(was.GetResourceVersion())
		o.SetFinalizers(was.GetFinalizers())
		w.must(w.Update(w.ctx, o))
	}
}

// drop deletes an object, where it is there.
func (w *world) drop(o client.Object) { w.must(client.IgnoreNotFound(w.Delete(w.ctx, o))) }

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func (w *world) vcPassword() string { return fmt.Sprintf("vcenter-%d%s", w.site.password, canary) }

func (w *world) credentials(password string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: named("vc-creds"), Data: map[string][]byte{
		"username": []byte(vcsim.Admin.Username), "password": []byte(password)}}
}

func (w *world) authority() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: named("vc-ca"), Data: map[string]string{"ca.crt": string(w.site.vc.CA)}}
}

func (w *world) mirrorAuthority() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: named(v1alpha1.DefaultCAName), Data: map[string]string{"ca.crt": string(w.site.CA())}}
}

func (w *world) pullSecret(config []byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: named(v1alpha1.DefaultPullSecretName), Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: config}}
}

func (w *world) trustOf(key string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: named(v1alpha1.DefaultTrustName), Data: map[string]string{key + ".pub": w.site.keys[key]}}
}

func (w *world) cloudConfig() *v1alpha1.VsphereCloudConfig {
	return &v1alpha1.VsphereCloudConfig{ObjectMeta: named("vc"), Spec: v1alpha1.VsphereCloudConfigSpec{
		VcIP: w.site.vc.Host, Port: int32(w.site.vc.Port), Credentials: "vc-creds", //nolint:gosec // a port
		CA: &v1alpha1.KeyReference{ConfigMap: "vc-ca"}, Datacenters: []string{"site/prod/east"}}}
}

func (w *world) driverBundle(name string) *v1alpha1.DriverBundle {
	return &v1alpha1.DriverBundle{ObjectMeta: named(name), Spec: v1alpha1.DriverBundleSpec{Reference: w.site.Host + "/" + repository + ":site"}}
}

func (w *world) vdoConfig(name string) *v1alpha1.VDOConfig {
	return &v1alpha1.VDOConfig{ObjectMeta: named(name), Spec: v1alpha1.VDOConfigSpec{
		// Datacenters come and go here, and no node is in any of them.
		CloudProvider: &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"vc"}, AcceptNodeDeletion: []string{
			w.site.vc.Host + "/site/prod/east", w.site.vc.Host + "/site/west", w.site.vc.Host + "/site/missing"}},
		StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "vc"},
	}}
}

// The bundles in the mirror, in the order of their serials: tags of the
// repository, which the tag "site" moves between.
const (
	bundleFirst     = "first"     // cpi@1.33.1, snapshot-controller@8.2.0, csi@3.5.1
	bundleRebuilt   = "rebuilt"   // the same releases, of other images
	bundleNewer     = "newer"     // csi@3.7.3 beside them
	bundleUnsigned  = "unsigned"  // by no one
	bundleStrangers = "strangers" // by someone else's key
	bundleNext      = "next"      // what newer has, of other images
)

const repository = "vdo/drivers"

// deliver pushes every bundle into a mirror, signed by the key release or stranger, or by no one.
func deliver(t *testing.T) *site {
	reg, err := registry.New(registry.Options{TLS: true, Auth: registry.Basic, Password: mirrorPassword})
	require.NoError(t, err)
	s := &site{Registry: reg, keys: map[string]string{}}
	signers := map[string]*trust.Signer{}
	for _, name := range []string{"release", "stranger"} {
		signers[name], s.keys[name] = mirror.NewKey(t)
	}
	newer := slices.Concat(pair, []string{"csi@3.7.3"})
	to := mirror.New(t, reg, repository)
	for i, b := range []struct {
		tag, signer string
		mirror.Bundle
	}{
		{bundleFirst, "release", mirror.Bundle{Releases: pair}},
		{bundleRebuilt, "release", mirror.Bundle{Releases: pair, Seed: 2}},
		{bundleNewer, "release", mirror.Bundle{Releases: newer}},
		{bundleUnsigned, "", mirror.Bundle{Releases: newer}},
		{bundleStrangers, "stranger", mirror.Bundle{Releases: newer}},
		{bundleNext, "release", mirror.Bundle{Releases: newer, Seed: 2}},
	} {
		b.Serial = int64(101 + i)
		root := to.Push(t, b.tag, b.Bundle)
		if b.signer != "" {
			to.Sign(t, root, signers[b.signer])
		}
	}
	return s
}

var pair = []string{"cpi@1.33.1", "snapshot-controller@8.2.0", "csi@3.5.1"}
