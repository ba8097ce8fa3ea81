package driverbundle_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/driverbundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/store"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

func TestMain(m *testing.M) { cluster.Main(m) }

// world is a namespace of a real cluster, a mirror that demands TLS and a login, a
// publisher's key, and a running controller: that of the operator's account, with the rights
// that are shipped and no more. The test is an administrator.
type world struct {
	client.Client
	own    *rest.Config
	t      *testing.T
	scheme *runtime.Scheme
	ns     string
	reg    *registry.Registry
	repo   *mirror.Repository
	key    *trust.Signer
	public string
	stop   func()
	floor  *trust.Policy // from the next start on
	stall  time.Duration // likewise: how long a mirror may be silent
	limit  time.Duration // likewise: how long a pass may take; 0: as usual
	// vdoConfigs tells whether those are there, and what their predecessor has left.
	vdoConfigs bool
	clock      *clock
	log        *logs
	asked      int
}

type clock struct {
	mu  sync.Mutex
	now func() time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = func() time.Time { return t }
}

// logs are all lines that the manager logs.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.text.WriteString(prefix + " " + args + "\n")
	}, funcr.Options{Verbosity: 10})
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

const password = "canary-p4ssw0rd"

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, cluster.Operator, true)
}

// admin is the administrator's client of all tests; each new one reads all kinds again.
var admin client.Client

// newWorldOf has the controllers run as the account of either operator, beside VDOConfigs or not.
func newWorldOf(t *testing.T, account cluster.Account, vdoConfigs bool) *world {
	t.Helper()
	cfg := cluster.Config(t)
	if admin == nil {
		scheme := runtime.NewScheme()
		require.NoError(t, clientgoscheme.AddToScheme(scheme))
		require.NoError(t, v1alpha1.AddToScheme(scheme))
		c, err := client.New(cfg, client.Options{Scheme: scheme})
		require.NoError(t, err)
		admin = c
	}
	c, scheme := admin, admin.Scheme()
	own, refused := account.Within(cfg)
	t.Cleanup(func() { refused.None(t) })
	w := &world{
		Client: c, own: own, vdoConfigs: vdoConfigs, t: t, scheme: scheme, ns: cluster.Namespace(t, cfg), clock: &clock{now: time.Now}, log: &logs{}, stall: 5 * time.Second,
		reg: registry.Start(t, registry.Options{TLS: true, Auth: registry.Basic, Password: password}),
	}
	require.NoError(t, account.Grant(t.Context(), c))
	require.NoError(t, account.GrantIn(t.Context(), c, w.ns))
	w.repo = mirror.New(t, w.reg, "vdo/drivers")
	w.key, w.public = mirror.NewKey(t)
	w.create(&corev1.ConfigMap{ObjectMeta: w.named(v1alpha1.DefaultCAName), Data: map[string]string{"ca.crt": string(w.reg.CA())}})
	w.create(&corev1.ConfigMap{ObjectMeta: w.named(v1alpha1.DefaultTrustName), Data: map[string]string{"release.pub": w.public, "README": "x"}})
	w.create(&corev1.Secret{
		ObjectMeta: w.named(v1alpha1.DefaultPullSecretName), Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: w.reg.DockerConfig()},
	})
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start runs a manager with the controllers and a store without memory.
func (w *world) start() {
	w.t.Helper()
	several := true
	mgr, err := manager.New(w.own, manager.Options{
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return w.RESTMapper(), nil },
		Scheme:         w.scheme, Logger: w.log.logger(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &several},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{w.ns: {}}},
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}}},
	})
	require.NoError(w.t, err)
	st := store.New(store.Options{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Timeout: w.stall})
	require.NoError(w.t, driverbundle.SetupWithManager(mgr, driverbundle.Options{
		Open: func(ctx context.Context, b *v1alpha1.DriverBundle) (driverbundle.Mirror, error) {
			return st.Open(ctx, b)
		},
		Store: st, Now: w.clock.Now, Floor: w.floor, Timeout: w.limit,
	}))
	if w.vdoConfigs {
		require.NoError(w.t, driverbundle.SetupLegacyWithManager(mgr, mgr.GetCache()))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	require.True(w.t, mgr.GetCache().WaitForCacheSync(ctx))
	w.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w.t, <-done)
	})
}

func (w *world) restart() {
	w.t.Helper()
	w.stop()
	w.start()
}

func (w *world) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.ns, Name: name}
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.Create(w.t.Context(), o))
}

// publish pushes a bundle under tag 1 and has it signed by keys.
func (w *world) publish(b mirror.Bundle, by ...*trust.Signer) image.Digest {
	w.t.Helper()
	root := w.repo.Push(w.t, "building", b)
	for _, k := range by {
		w.repo.Sign(w.t, root, k)
	}
	w.repo.Retag(w.t, "1", root)
	return root
}

// bundle creates the DriverBundle.
func (w *world) bundle(change ...func(*v1alpha1.DriverBundleSpec)) {
	w.t.Helper()
	b := &v1alpha1.DriverBundle{
		ObjectMeta: w.named("drivers"),
		Spec:       v1alpha1.DriverBundleSpec{Reference: w.repo.Reference("1"), Interval: metav1.Duration{Duration: time.Hour}},
	}
	for _, f := range change {
		f(&b.Spec)
	}
	w.create(b)
}

func (w *world) get() *v1alpha1.DriverBundle {
	w.t.Helper()
	var b v1alpha1.DriverBundle
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: "drivers"}, &b))
	return &b
}

// change edits the DriverBundle, again where somebody else did meanwhile.
func (w *world) change(f func(*v1alpha1.DriverBundle)) {
	w.t.Helper()
	b := w.get()
	patch := client.MergeFrom(b.DeepCopy())
	f(b)
	require.NoError(w.t, w.Patch(w.t.Context(), b, patch))
}

// poke asks for a pass and waits until it is over.
func (w *world) poke() *v1alpha1.DriverBundle {
	w.t.Helper()
	w.asked++
	at := fmt.Sprint("t", w.asked)
	w.change(func(b *v1alpha1.DriverBundle) {
		metav1.SetMetaDataAnnotation(&b.ObjectMeta, v1alpha1.AnnotationRequestedAt, at)
	})
	return w.until("the pass is over", func(b *v1alpha1.DriverBundle) bool { return b.Status.HandledReconcileAt == at })
}

// until waits for the DriverBundle to be as wanted.
func (w *world) until(what string, ok func(*v1alpha1.DriverBundle) bool) *v1alpha1.DriverBundle {
	w.t.Helper()
	var b *v1alpha1.DriverBundle
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		if b = w.get(); ok(b) {
			return b
		}
		select {
		case <-w.t.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	text, err := json.MarshalIndent(b.Status, "", " ")
	require.NoError(w.t, err)
	require.FailNow(w.t, "not "+what, "%s", text)
	return nil
}

func condition(b *v1alpha1.DriverBundle, typ string) string {
	c := meta.FindStatusCondition(b.Status.Conditions, typ)
	if c == nil {
		return "-"
	}
	return string(c.Status) + " " + c.Reason
}

func message(b *v1alpha1.DriverBundle, typ string) string {
	if c := meta.FindStatusCondition(b.Status.Conditions, typ); c != nil {
		return c.Message
	}
	return ""
}

// ready waits for Ready to be True or to have a reason.
func (w *world) ready(want string) *v1alpha1.DriverBundle {
	w.t.Helper()
	return w.until("Ready "+want, func(b *v1alpha1.DriverBundle) bool {
		return condition(b, v1alpha1.ConditionReady) == want && b.Status.ObservedGeneration == b.Generation
	})
}

// accepted publishes a good bundle and waits for it.
func (w *world) accepted(b mirror.Bundle) image.Digest {
	w.t.Helper()
	root := w.publish(b, w.key)
	w.bundle()
	require.Equal(w.t, root.String(), w.ready("True Succeeded").Status.Digest)
	return root
}

func TestAGoodBundleIsAcceptedAndListed(t *testing.T) {
	w := newWorld(t)
	root := w.accepted(mirror.Bundle{Seed: 1, Serial: 7})
	b := w.get()
	require.Equal(t, w.reg.Host+"/vdo/drivers", b.Status.Repository)
	require.Equal(t, "1", b.Status.Tag)
	require.Equal(t, []string{"release"}, b.Status.VerifiedBy)
	require.EqualValues(t, 7, b.Status.Matrix.Serial)
	require.EqualValues(t, 7, b.Status.HighestSerial)
	require.Equal(t, "1.31-1.33", b.Status.Kubernetes)
	require.Equal(t, []v1alpha1.ReleaseStatus{{Driver: "csi", Version: "3.5.1", State: "current", Kubernetes: "1.31 to 1.33", VSphere: b.Status.Releases[0].VSphere}}, b.Status.Releases)
	require.NotNil(t, b.Status.AcceptedAt)
	require.Equal(t, "True Succeeded", condition(b, v1alpha1.ConditionVerified))
	require.Equal(t, "True Succeeded", condition(b, v1alpha1.ConditionFresh))
	require.Contains(t, message(b, v1alpha1.ConditionReady), root.String())

	again := w.poke()
	b.Status.HandledReconcileAt = again.Status.HandledReconcileAt
	require.Equal(t, b.Status, again.Status, "a pass that finds nothing new changes nothing")
}

// The operator of SIPClusters accepts bundles under its own account, which has no more rights to
// them than to read them and to write their status.
func TestTheAccountOfDeploySIPAcceptsABundle(t *testing.T) {
	w := newWorldOf(t, cluster.SIPOperator, false)
	w.accepted(mirror.Bundle{Seed: 1, Serial: 1})
	second := w.publish(mirror.Bundle{Seed: 2, Serial: 2}, w.key)
	require.Equal(t, second.String(), w.poke().Status.Digest)
}

// Who installs holds what the status speaks of against the policies of now.
func TestTheStatusSaysWhichPoliciesItWasJudgedBy(t *testing.T) {
	w := newWorld(t)
	w.accepted(mirror.Bundle{Seed: 1, Serial: 7})
	now := func() string {
		version, err := source.PolicyVersion(t.Context(), w.Client, w.get(), "")
		require.NoError(t, err)
		return version
	}
	before := w.get().Status.VerifiedPolicy
	require.Equal(t, now(), before)

	var cm corev1.ConfigMap
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: v1alpha1.DefaultTrustName}, &cm))
	_, strangers := mirror.NewKey(t)
	cm.Data = map[string]string{"stranger.pub": strangers}
	require.NoError(t, w.Update(t.Context(), &cm))
	require.NotEqual(t, before, now())
	b := w.until("judged by it", func(b *v1alpha1.DriverBundle) bool { return b.Status.VerifiedPolicy == now() })
	require.Equal(t, "False Untrusted", condition(b, v1alpha1.ConditionVerified))

	require.NoError(t, w.Delete(t.Context(), &cm))
	w.until("no policy", func(b *v1alpha1.DriverBundle) bool {
		return condition(b, v1alpha1.ConditionVerified) == "Unknown NotFound" && b.Status.VerifiedPolicy == ""
	})
}

func TestARefusedBundleLeavesTheAcceptedOneServing(t *testing.T) {
	w := newWorld(t)
	first := w.accepted(mirror.Bundle{Seed: 1, Serial: 5})
	for name, c := range map[string]struct {
		bundle mirror.Bundle
		signed bool
		reason string
		text   string
	}{
		"unsigned":  {mirror.Bundle{Seed: 2, Serial: 6}, false, "Untrusted", "it has no signature"},
		"older":     {mirror.Bundle{Seed: 3, Serial: 4}, true, "Superseded", "its serial 4 is lower than 5"},
		"expired":   {mirror.Bundle{Seed: 4, Serial: 6, Expires: time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)}, true, "Expired", "it expired at 2021-01-01"},
		"no matrix": {mirror.Bundle{Seed: 5, Serial: 6, Matrix: []byte("a: b\n")}, true, "InvalidInput", "matrix of the bundle"},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			var by []*trust.Signer
			if c.signed {
				by = []*trust.Signer{w.key}
			}
			root := w.publish(c.bundle, by...)
			b := w.poke()
			require.Equal(t, "False "+c.reason, condition(b, v1alpha1.ConditionReady))
			for _, text := range []string{c.text, root.String(), "the bundle accepted before, " + first.String() + ", stays in use"} {
				require.Contains(t, message(b, v1alpha1.ConditionReady), text)
			}
			require.Equal(t, first.String(), b.Status.Digest)
			require.EqualValues(t, 5, b.Status.HighestSerial)
			require.Equal(t, "True Succeeded", condition(b, v1alpha1.ConditionVerified))
			require.Equal(t, "True Succeeded", condition(b, v1alpha1.ConditionFresh))
			contents, err := store.New(store.Options{Client: w.Client}).Contents(t.Context(), b)
			require.NoError(t, err)
			require.EqualValues(t, 5, contents.Lock.Matrix.Serial)
		})
	}
}

// A signed bundle of before, put under the tag again, is not taken for a new one where
// the matrix is still the same.
func TestARollBackUnderTheSameSerialNeedsConsent(t *testing.T) {
	w := newWorld(t)
	old := w.accepted(mirror.Bundle{Seed: 1, Serial: 5, Version: "3.5.1"})
	fixed := w.publish(mirror.Bundle{Seed: 2, Serial: 5, Version: "3.5.2"}, w.key)
	require.Equal(t, fixed.String(), w.poke().Status.Digest)

	w.repo.Retag(t, "1", old)
	b := w.poke()
	require.Equal(t, "False Superseded", condition(b, v1alpha1.ConditionReady))
	require.Equal(t, fixed.String(), b.Status.Digest)
	for _, text := range []string{
		"check the releases: under the same matrix serial 5 it has csi@3.5.1 for 3.5.2, and nothing newer",
		fixed.String() + ", stays in use", "accept this one: spec.acceptOlder: " + old.String(),
	} {
		require.Contains(t, message(b, v1alpha1.ConditionReady), text)
	}
	require.Equal(t, "True Succeeded", condition(b, v1alpha1.ConditionFresh), "of the accepted one")

	w.change(func(b *v1alpha1.DriverBundle) { b.Spec.AcceptOlder = old.String() })
	require.Equal(t, old.String(), w.ready("True Succeeded").Status.Digest)

	// With consent taken back it stays, and forward goes without; a newer matrix may have
	// lower versions.
	w.change(func(b *v1alpha1.DriverBundle) { b.Spec.AcceptOlder = "" })
	require.Equal(t, old.String(), w.ready("True Succeeded").Status.Digest)
	w.repo.Retag(t, "1", fixed)
	require.Equal(t, fixed.String(), w.poke().Status.Digest)
	lower := w.publish(mirror.Bundle{Seed: 3, Serial: 6, Version: "3.4.0"}, w.key)
	require.Equal(t, lower.String(), w.poke().Status.Digest)
}

func TestAMovedTagIsFollowedAndOldCopiesGo(t *testing.T) {
	w := newWorld(t)
	w.accepted(mirror.Bundle{Seed: 1, Serial: 5})
	second := w.publish(mirror.Bundle{Seed: 2, Serial: 6}, w.key)
	require.Equal(t, second.String(), w.poke().Status.Digest)
	var copies corev1.ConfigMapList
	w.eventually("the old copy is gone", func() bool { // it goes once the status has the new digest
		require.NoError(t, w.List(t.Context(), &copies, client.InNamespace(w.ns), client.HasLabels{"vdo.vmware.com/copy"}))
		return len(copies.Items) == 1
	})
	require.Equal(t, second.Hex()[:63], copies.Items[0].Labels["vdo.vmware.com/digest"])
	require.Equal(t, w.get().UID, copies.Items[0].OwnerReferences[0].UID)
}

func TestTheAcceptedBundleOutlivesTheMirrorAndARestart(t *testing.T) {
	w := newWorld(t)
	root := w.accepted(mirror.Bundle{Seed: 1, Serial: 5})
	require.NoError(t, w.reg.Close())
	check := func(b *v1alpha1.DriverBundle) {
		require.Equal(t, "True Succeeded", condition(b, v1alpha1.ConditionReady), "for two minutes")
		require.Equal(t, "True Unreachable", condition(b, v1alpha1.ConditionReconciling))
		require.Equal(t, "True Succeeded", condition(b, v1alpha1.ConditionVerified))
		require.Equal(t, "True Succeeded", condition(b, v1alpha1.ConditionFresh))
		require.Equal(t, root.String(), b.Status.Digest)
	}
	check(w.poke())
	w.restart()
	check(w.poke())
}

func TestFailuresOfTheMirrorAreTold(t *testing.T) {
	w := newWorld(t)
	root := w.accepted(mirror.Bundle{Seed: 1})
	for status, want := range map[int]struct{ ready, other, told string }{
		404: {"False NotFound", v1alpha1.ConditionStalled, "True NotFound"},
		503: {"True Succeeded", v1alpha1.ConditionReconciling, "True Unreachable"}, // it has two minutes to pass
	} {
		w.reg.Fail(registry.Fault{Match: registry.Match{Path: "/manifests/"}, Status: status})
		b := w.poke()
		require.Equal(t, want.ready, condition(b, v1alpha1.ConditionReady))
		require.Equal(t, want.told, condition(b, want.other))
		require.Equal(t, root.String(), b.Status.Digest)
		since := meta.FindStatusCondition(b.Status.Conditions, want.other).LastTransitionTime
		b = w.poke()
		require.Equal(t, since, meta.FindStatusCondition(b.Status.Conditions, want.other).LastTransitionTime)
		w.reg.Heal()
		require.Equal(t, "True Succeeded", condition(w.poke(), v1alpha1.ConditionReady))
	}
}

// A mirror may answer so that it is never silent for long, and never done.
func TestASlowMirrorHoldsBackNobodyElseAndIsGivenUp(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.stall = time.Minute
	w.start()
	asked, never := make(chan string, 1), make(chan struct{})
	defer close(never)
	w.reg.Fail(registry.Fault{Match: registry.Match{Path: "/manifests/slow"}, Wait: never, Seen: asked})
	slow := &v1alpha1.DriverBundle{ObjectMeta: w.named("slow"), Spec: v1alpha1.DriverBundleSpec{Reference: w.repo.Reference("slow")}}
	w.create(slow)
	<-asked
	w.accepted(mirror.Bundle{Seed: 1})
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(slow), slow))
	require.Empty(t, slow.Status.Conditions, "its pass goes on meanwhile")

	w.stop()
	w.limit = time.Second
	w.start()
	w.eventually("given up", func() bool {
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(slow), slow))
		return condition(slow, v1alpha1.ConditionReady) == "False Unreachable"
	})
	require.Contains(t, message(slow, v1alpha1.ConditionReady), "does not answer in time")
}

func TestSecretsAndConfigMapsAreWatched(t *testing.T) {
	w := newWorld(t)
	var ca corev1.ConfigMap
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: v1alpha1.DefaultCAName}, &ca))
	require.NoError(t, w.Delete(t.Context(), ca.DeepCopy()))
	root := w.publish(mirror.Bundle{Seed: 1}, w.key)
	w.bundle()
	require.Contains(t, message(w.ready("False CertificateInvalid"), v1alpha1.ConditionReady), "x509")
	ca.ResourceVersion = ""
	w.create(&ca)
	w.ready("True Succeeded")

	var secret corev1.Secret
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: v1alpha1.DefaultPullSecretName}, &secret))
	good := secret.Data[corev1.DockerConfigJsonKey]
	login := string(secret.UID) + "/" + secret.ResourceVersion
	require.Equal(t, login, w.get().Status.VerifiedLogin)
	secret.Data[corev1.DockerConfigJsonKey] = []byte(strings.ReplaceAll(string(good), `"auth":"`, `"auth":"d3Jvbmc6d3Jvbmc=","x":"`))
	require.NoError(t, w.Update(t.Context(), &secret))
	require.Equal(t, login, w.ready("False Unauthorized").Status.VerifiedLogin, "a login that is refused is not verified")
	secret.Data[corev1.DockerConfigJsonKey] = good
	require.NoError(t, w.Update(t.Context(), &secret))
	require.Equal(t, string(secret.UID)+"/"+secret.ResourceVersion, w.ready("True Succeeded").Status.VerifiedLogin)

	// the key is rotated: the accepted bundle is no longer good, but stays
	second, public := mirror.NewKey(t)
	var keys corev1.ConfigMap
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: v1alpha1.DefaultTrustName}, &keys))
	keys.Data = map[string]string{"second.pub": public}
	require.NoError(t, w.Update(t.Context(), &keys))
	b := w.ready("False Untrusted")
	require.Equal(t, "False Untrusted", condition(b, v1alpha1.ConditionVerified))
	require.Contains(t, message(b, v1alpha1.ConditionVerified), "stays in use")
	require.Equal(t, root.String(), b.Status.Digest)
	w.repo.Sign(t, root, second)
	b = w.poke()
	require.Equal(t, "True Succeeded", condition(b, v1alpha1.ConditionReady))
	require.Equal(t, []string{"second"}, b.Status.VerifiedBy)

	require.NoError(t, w.Delete(t.Context(), &keys))
	b = w.ready("False NotFound")
	require.Contains(t, message(b, v1alpha1.ConditionReady), "kubectl create configmap vdo-trust")
	require.Equal(t, "Unknown NotFound", condition(b, v1alpha1.ConditionVerified), "with the policy gone nothing is known to be verified")
	require.Contains(t, message(b, v1alpha1.ConditionVerified), "the trust policy cannot be read")
}

// What was accepted is remembered by the DriverBundle's name and by its repository.
func TestToDeleteADriverBundleDoesNotOpenTheWayToOlderOnes(t *testing.T) {
	w := newWorld(t)
	w.accepted(mirror.Bundle{Seed: 1, Serial: 5})
	spec := w.get().Spec
	older := w.publish(mirror.Bundle{Seed: 2, Serial: 4}, w.key)
	require.NoError(t, w.Delete(t.Context(), w.get()))
	for _, name := range []string{"drivers", "another"} {
		w.create(&v1alpha1.DriverBundle{ObjectMeta: w.named(name), Spec: spec})
		var b v1alpha1.DriverBundle
		require.Eventually(t, func() bool {
			return w.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, &b) == nil && condition(&b, v1alpha1.ConditionReady) == "False Superseded"
		}, 30*time.Second, 20*time.Millisecond, "%s: %+v", name, &b.Status)
		require.Contains(t, message(&b, v1alpha1.ConditionReady), "its serial 4 is lower than 5")
		require.Empty(t, b.Status.Digest)
	}
	w.change(func(b *v1alpha1.DriverBundle) { b.Spec.AcceptOlder = older.String() })
	require.Equal(t, older.String(), w.ready("True Succeeded").Status.Digest)

	// A record that is no number is not taken for none.
	w.serials("five")
	require.Equal(t, "False Corrupt", condition(w.poke(), v1alpha1.ConditionReady))
	require.Equal(t, older.String(), w.get().Status.Digest)
}

// serials writes text in the place of each highest serial.
func (w *world) serials(text string) *corev1.Secret {
	w.t.Helper()
	var secret corev1.Secret
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: "vdo-highest-serials"}, &secret))
	for key := range secret.Data {
		secret.Data[key] = []byte(text)
	}
	require.NoError(w.t, w.Update(w.t.Context(), &secret))
	return &secret
}

// A wrong serial blocks newer bundles until the administrator deletes the Secret, as the message says.
func TestAWrongHighestSerialIsDeletedByTheAdministrator(t *testing.T) {
	w := newWorld(t)
	w.accepted(mirror.Bundle{Seed: 1, Serial: 5})
	secret := w.serials("9000000000000000000")
	newer := w.publish(mirror.Bundle{Seed: 2, Serial: 6}, w.key)
	b := w.poke()
	require.Equal(t, "False Superseded", condition(b, v1alpha1.ConditionReady))
	for _, typ := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionFresh} {
		require.Contains(t, message(b, typ), "which Secret "+w.ns+"/vdo-highest-serials has")
		require.Contains(t, message(b, typ), "if the higher serial is wrong: kubectl delete secret -n "+w.ns+" vdo-highest-serials")
	}
	require.NoError(t, w.Delete(t.Context(), secret))
	b = w.poke()
	require.Equal(t, newer.String(), b.Status.Digest)
	require.EqualValues(t, 6, b.Status.HighestSerial)
}

// Suspended means that the mirror is left alone, not that revoked keys count.
func TestARevocationIsSeenWhileSuspended(t *testing.T) {
	w := newWorld(t)
	root := w.accepted(mirror.Bundle{Seed: 1})
	w.change(func(b *v1alpha1.DriverBundle) {
		b.Spec.Suspend = true
		b.Spec.Trust = &v1alpha1.TrustPolicy{Keys: []v1alpha1.TrustKey{{ID: "a", PublicKey: w.public}}, RevokedDigests: []string{root.String()}}
	})
	b := w.until("distrusted", func(b *v1alpha1.DriverBundle) bool {
		return condition(b, v1alpha1.ConditionVerified) == "False Untrusted"
	})
	require.Equal(t, b.Generation, meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionVerified).ObservedGeneration)
	second := w.publish(mirror.Bundle{Seed: 2}, w.key)
	w.reg.ForgetRequests()
	b = w.poke()
	require.Empty(t, w.reg.Requests())
	require.Equal(t, root.String(), b.Status.Digest)
	require.Equal(t, "True Succeeded", condition(b, v1alpha1.ConditionReady), "what was found stays")
	w.change(func(b *v1alpha1.DriverBundle) { b.Spec.Suspend = false })
	w.until("resumed", func(b *v1alpha1.DriverBundle) bool { return b.Status.Digest == second.String() })
}

func TestARevokedDigestAndAnExpiringKey(t *testing.T) {
	w := newWorld(t)
	root := w.publish(mirror.Bundle{Seed: 1}, w.key)
	until := time.Now().Add(time.Hour)
	w.bundle(func(s *v1alpha1.DriverBundleSpec) {
		s.Trust = &v1alpha1.TrustPolicy{Keys: []v1alpha1.TrustKey{{ID: "a", PublicKey: w.public, NotAfter: &metav1.Time{Time: until}}}}
	})
	w.ready("True Succeeded")
	w.clock.set(until.Add(time.Hour))
	b := w.poke()
	require.Equal(t, "True Succeeded", condition(b, v1alpha1.ConditionReady), "the key was in force when it was accepted")
	require.Equal(t, "True Succeeded", condition(b, v1alpha1.ConditionVerified))

	w.change(func(b *v1alpha1.DriverBundle) { b.Spec.Trust.RevokedDigests = []string{root.String()} })
	b = w.ready("False Untrusted")
	require.Contains(t, message(b, v1alpha1.ConditionReady), "revoked this digest")
	require.Equal(t, "False Untrusted", condition(b, v1alpha1.ConditionVerified))
	require.Equal(t, root.String(), b.Status.Digest)
}

func TestALostCopyIsMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.accepted(mirror.Bundle{Seed: 1})
	copies := func() []corev1.ConfigMap {
		var list corev1.ConfigMapList
		require.NoError(t, w.List(t.Context(), &list, client.InNamespace(w.ns), client.HasLabels{"vdo.vmware.com/copy"}))
		return list.Items
	}
	require.NoError(t, w.Delete(t.Context(), &copies()[0]))
	require.Equal(t, "True Succeeded", condition(w.poke(), v1alpha1.ConditionReady))
	require.Len(t, copies(), 1)
}

// The password is in the Secret and on the wire to the registry, and in no other place.
func TestThePasswordIsNowhere(t *testing.T) {
	w := newWorld(t)
	w.accepted(mirror.Bundle{Seed: 1})
	for _, status := range []int{401, 403, 500} {
		w.reg.Fail(registry.Fault{
			Match: registry.Match{Path: "/manifests/"}, Status: status,
			Body: `{"errors":[{"code":"DENIED","message":"` + password + `"}]}` + password,
		})
		w.poke()
		w.reg.Heal()
	}
	w.reg.Fail(registry.Fault{Match: registry.Match{Path: "/v2/"}, Status: 401, Body: password})
	w.poke()
	var events eventsv1.EventList
	require.Eventually(t, func() bool {
		require.NoError(t, w.List(t.Context(), &events, client.InNamespace(w.ns)))
		return len(events.Items) > 0
	}, 30*time.Second, 50*time.Millisecond)
	w.stop()
	status, err := json.Marshal(w.get())
	require.NoError(t, err)
	told, err := json.Marshal(events)
	require.NoError(t, err)
	var copies corev1.ConfigMapList
	require.NoError(t, w.List(t.Context(), &copies, client.InNamespace(w.ns)))
	kept, err := json.Marshal(copies)
	require.NoError(t, err)
	require.NotEmpty(t, w.log.String())
	for where, text := range map[string]string{"status": string(status), "events": string(told), "log": w.log.String(), "ConfigMaps": string(kept)} {
		require.NotContains(t, text, password, where)
		require.NotContains(t, text, "Authorization", where)
	}
}
