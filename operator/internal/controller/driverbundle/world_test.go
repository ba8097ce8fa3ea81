package driverbundle

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/store"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

func TestMain(m *testing.M) { cluster.Main(m) }

// The controller runs under the account of either operator, with the rights that are shipped and no
// more. Changes of what a DriverBundle reads start a pass, also while another one's mirror drips.
func TestTheAccountsOfTheOperatorsAcceptBundles(t *testing.T) {
	for name, account := range map[string]cluster.Account{"drivers": cluster.Operator, "sip": cluster.SIPOperator} {
		t.Run(name, func(t *testing.T) {
			cfg := cluster.Config(t)
			admin := cluster.Client(t, cfg)
			own, refused := account.Within(cfg)
			t.Cleanup(func() { refused.None(t) })
			require.NoError(t, account.Grant(t.Context(), admin))
			ns := cluster.Namespace(t, cfg)
			if name == "sip" { // policy denies it others
				ns = account.Namespace()
			}
			s := newSite(t, admin, ns)
			require.NoError(t, account.GrantIn(t.Context(), admin, s.ns))
			run(t, own, admin, s.ns)
			ready := func(want string) (b *v1alpha1.DriverBundle) {
				require.Eventually(t, func() bool {
					b = s.get()
					return status(b, v1alpha1.ConditionReady) == want && b.Status.ObservedGeneration == b.Generation
				}, 30*time.Second, 20*time.Millisecond, "%s: %+v", want, &b)
				return b
			}

			requested, never := make(chan string, 1), make(chan struct{})
			defer close(never)
			s.reg.Fail(registry.Fault{Match: registry.Match{Path: "/manifests/slow"}, Wait: never, Seen: requested})
			slow := &v1alpha1.DriverBundle{ObjectMeta: s.named("slow")}
			slow.Spec.Reference = s.repo.Reference("slow")
			s.create(slow)
			<-requested

			var secret corev1.Secret
			s.read(&secret, v1alpha1.DefaultPullSecretName)
			login := secret.Data[corev1.DockerConfigJsonKey]
			wrong := strings.ReplaceAll(string(login), `"auth":"`, `"auth":"d3Jvbmc6d3Jvbmc=","x":"`)
			secret.Data[corev1.DockerConfigJsonKey] = []byte(wrong)
			require.NoError(t, s.Update(t.Context(), &secret))
			first := s.publish(mirror.Bundle{Seed: 1, Serial: 1}, s.key)
			s.bundle()
			require.Empty(t, ready("False Unauthorized").Status.VerifiedLogin, "a login that is refused is not verified")
			secret.Data[corev1.DockerConfigJsonKey] = login
			require.NoError(t, s.Update(t.Context(), &secret))
			b := ready(good)
			require.Equal(t, first.String(), b.Status.Digest)
			require.Equal(t, string(secret.UID)+"/"+secret.ResourceVersion, b.Status.VerifiedLogin)

			s.put(v1alpha1.DefaultTrustName)
			ready("False InvalidInput")
			s.put(v1alpha1.DefaultTrustName, "release.pub", s.public)
			ready(good)
			second := s.publish(mirror.Bundle{Seed: 2, Serial: 2}, s.key)
			for _, request := range []string{"now", "again"} { // copies go with the pass after that of the new digest
				b = s.get()
				b.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: request}
				require.NoError(t, s.Update(t.Context(), b))
				require.Eventually(t, func() bool {
					return s.get().Status.HandledReconcileAt == request
				}, 30*time.Second, 20*time.Millisecond)
				require.Equal(t, second.String(), s.get().Status.Digest)
			}
			require.Len(t, s.parts(), 1)
			s.read(slow, "slow")
			require.Empty(t, slow.Status.Conditions, "its pass goes on meanwhile")
		})
	}
}

// run runs a manager with the controller until the test ends.
func run(t *testing.T, own *rest.Config, admin client.Client, ns string) {
	several, uncached := true, []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}
	mgr, err := manager.New(own, manager.Options{
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return admin.RESTMapper(), nil },
		Scheme:         admin.Scheme(), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &several},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{ns: {}}},
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: uncached}},
	})
	require.NoError(t, err)
	st := store.New(store.Options{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Timeout: time.Minute})
	writer := condition.Writer{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("vdo-operator")}
	r := &Reconciler{Reader: mgr.GetAPIReader(), Writer: writer, Store: st, Now: time.Now}
	require.NoError(t, r.SetupWithManager(mgr, mgr.GetCache()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	require.True(t, mgr.GetCache().WaitForCacheSync(ctx))
}

// site is a mirror that demands TLS and a login, a publisher's key, and the objects that an
// administrator makes of these in a namespace of an API server.
type site struct {
	client.Client
	t      *testing.T
	ns     string
	reg    *registry.Registry
	repo   *mirror.Repository
	key    *trust.Signer
	public string
}

func newSite(t *testing.T, c client.Client, ns string) *site {
	t.Helper()
	s := &site{Client: c, t: t, ns: ns}
	s.reg = registry.Start(t, registry.Options{TLS: true, Auth: registry.Basic})
	s.repo = mirror.New(t, s.reg, "vdo/drivers")
	s.key, s.public = mirror.NewKey(t)
	s.put(v1alpha1.DefaultCAName, "ca.crt", string(s.reg.CA()))
	s.put(v1alpha1.DefaultTrustName, "release.pub", s.public, "README", "x")
	s.create(&corev1.Secret{
		ObjectMeta: s.named(v1alpha1.DefaultPullSecretName), Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: s.reg.DockerConfig()},
	})
	return s
}

func (s *site) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.ns, Name: name}
}

func (s *site) create(o client.Object) {
	require.NoError(s.t, s.Create(s.t.Context(), o))
}

func (s *site) read(o client.Object, name string) {
	require.NoError(s.t, s.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, o))
}

// put makes a ConfigMap hold keys and values alone.
func (s *site) put(name string, keysAndValues ...string) {
	c := &corev1.ConfigMap{ObjectMeta: s.named(name)}
	err := s.Get(s.t.Context(), client.ObjectKeyFromObject(c), c)
	c.Data = map[string]string{}
	for i := 0; i < len(keysAndValues); i += 2 {
		c.Data[keysAndValues[i]] = keysAndValues[i+1]
	}
	if err != nil {
		s.create(c)
		return
	}
	require.NoError(s.t, s.Update(s.t.Context(), c))
}

// bundle creates a DriverBundle named drivers.
func (s *site) bundle() {
	s.t.Helper()
	b := &v1alpha1.DriverBundle{ObjectMeta: s.named("drivers")}
	b.UID = types.UID(fmt.Sprint("uid-", time.Now().UnixNano())) // an API server sets its own
	b.Spec.Reference, b.Spec.Interval.Duration = s.repo.Reference("1"), time.Hour
	s.create(b)
}

func (s *site) get() *v1alpha1.DriverBundle {
	s.t.Helper()
	b := &v1alpha1.DriverBundle{}
	s.read(b, "drivers")
	return b
}

// publish pushes a bundle under tag 1 and has it signed by keys.
func (s *site) publish(b mirror.Bundle, by ...*trust.Signer) image.Digest {
	root := s.repo.Push(s.t, "building", b)
	for _, k := range by {
		s.repo.Sign(s.t, root, k)
	}
	_, err := s.reg.Retag(s.repo.Path, root.String(), "1")
	require.NoError(s.t, err)
	return root
}

// at is a digest in the mirror.
func (s *site) at(d image.Digest) string { return s.reg.Host + "/vdo/drivers@" + d.String() }

// parts are those of copies, or of the copy of one digest.
func (s *site) parts(of ...image.Digest) []corev1.ConfigMap {
	opts := []client.ListOption{client.InNamespace(s.ns), client.HasLabels{"vdo.vmware.com/copy"}}
	for _, d := range of {
		opts = append(opts, client.MatchingLabels{"vdo.vmware.com/digest": d.Hex()[:63]})
	}
	var list corev1.ConfigMapList
	require.NoError(s.t, s.List(s.t.Context(), &list, opts...))
	return list.Items
}

// world is a site, and passes over its DriverBundle: one at each call of pass.
type world struct {
	*site
	now   time.Time // the zero value: the clock
	floor *trust.Policy
	limit time.Duration
	keeps []string // what revisions retain
	store *store.Store
	r     *Reconciler // of the last pass
}

func newWorld(t *testing.T) *world {
	t.Helper()
	api := fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithStatusSubresource(&v1alpha1.DriverBundle{}).Build()
	w := &world{site: newSite(t, api, "vdo")}
	w.restart()
	return w
}

// restart forgets what is in memory alone.
func (w *world) restart() {
	w.store = store.New(store.Options{Client: w.Client, Timeout: 5 * time.Second})
}

// pass makes a change, and a pass over the DriverBundle as it is then.
func (w *world) pass(change ...func(*v1alpha1.DriverBundle)) *v1alpha1.DriverBundle {
	b := w.get()
	for _, f := range change {
		f(b)
	}
	require.NoError(w.t, w.Update(w.t.Context(), b))
	w.r = &Reconciler{
		Reader: w.Client, Writer: condition.Writer{Client: w.Client, Recorder: &events.FakeRecorder{}},
		Store: w.store, Floor: w.floor, Timeout: w.limit, Now: func() time.Time {
			if w.now.IsZero() {
				return time.Now()
			}
			return w.now
		}, Retained: func(context.Context) ([]string, error) { return w.keeps, nil },
	}
	_, err := reconcile.AsReconciler(w.Client, w.r).Reconcile(
		w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
	require.NoError(w.t, err)
	return w.get()
}

// accepted publishes a good bundle, and accepts it.
func (w *world) accepted(b mirror.Bundle) image.Digest {
	root := w.publish(b, w.key)
	w.bundle()
	is := w.pass()
	require.Equal(w.t, "True Succeeded "+root.String(), status(is, v1alpha1.ConditionReady)+" "+is.Status.Digest)
	return root
}

func status(b *v1alpha1.DriverBundle, typ string) string {
	c := meta.FindStatusCondition(b.Status.Conditions, typ)
	if c == nil {
		return "-"
	}
	return string(c.Status) + " " + c.Reason
}

func message(b *v1alpha1.DriverBundle, typ string) string {
	return ptr.Deref(meta.FindStatusCondition(b.Status.Conditions, typ), metav1.Condition{}).Message
}

// requireIs requires Ready and Verified, the digest, and texts of Ready's message.
func requireIs(t *testing.T, b *v1alpha1.DriverBundle, ready, verified string, digest image.Digest, texts ...string) {
	says := message(b, v1alpha1.ConditionReady)
	require.Equal(t, []string{ready, verified, digest.String()}, []string{
		status(b, v1alpha1.ConditionReady), status(b, v1alpha1.ConditionVerified), b.Status.Digest,
	}, says)
	for _, text := range texts {
		require.Contains(t, says, text)
	}
}
