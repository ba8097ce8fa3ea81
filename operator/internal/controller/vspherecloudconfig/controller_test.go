package vspherecloudconfig

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	cluster.Main(m)
}

// site answers as a vCenter would that knows one password.
type site struct {
	mu    sync.Mutex
	asked []vcenter.Target
}

const password, silent = "right-canary", "silent.site"

func (s *site) check(ctx context.Context, q vcenter.Target) (vcenter.Report, error) {
	s.mu.Lock()
	s.asked = append(s.asked, q)
	s.mu.Unlock()
	if q.Host == silent { // it accepts connections, and answers nothing
		<-ctx.Done()
		return vcenter.Report{}, &fault.Error{Reason: fault.Unreachable, Op: "connect to", Subject: silent, Err: ctx.Err()}
	}
	found := vcenter.Report{Version: "8.0.3", APIVersion: "8.0.3.0", Build: "42", InstanceUUID: "u-u", Thumbprint: "AA:BB"}
	if err := q.Turn(ctx, func() error {
		if string(q.Password) != password {
			return &fault.Error{Reason: fault.Unauthorized, Op: "log in to", Subject: q.Host, Err: errors.New("refused"), Hint: "correct the Secret"}
		}
		return nil
	}); err != nil {
		return found, err
	}
	found.User, found.Datacenters = q.Username, []string{"/dc"}
	return found, nil
}

func (s *site) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// world is a namespace, a client past all caches, and a running controller.
type world struct {
	client.Client
	t    *testing.T
	ns   string
	site *site
	stop func()
}

func start(t *testing.T) *world {
	t.Helper()
	cfg := cluster.Config(t)
	c := cluster.Client(t, cfg)
	w := &world{Client: c, t: t, ns: cluster.Namespace(t, cfg), site: &site{}}
	require.NoError(t, cluster.Operator.Grant(t.Context(), c))
	require.NoError(t, cluster.Operator.GrantIn(t.Context(), c, w.ns))
	own, refused := cluster.Operator.Within(cfg)
	t.Cleanup(func() { refused.None(t) })
	w.stop = sync.OnceFunc(run(t, own, c.Scheme(), w.ns, w.site))
	t.Cleanup(w.stop)
	return w
}

// run starts a manager with the controller; the function returned stops it.
func run(t *testing.T, cfg *rest.Config, scheme *kruntime.Scheme, ns string, s *site) (stop func()) {
	t.Helper()
	several := true
	mgr, err := manager.New(cfg, manager.Options{
		Scheme:     scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &several},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{ns: {}},
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Secret{}: {Namespaces: map[string]cache.Config{ns: {}, metav1.NamespaceSystem: {}}}},
		},
	})
	require.NoError(t, err)
	require.NoError(t, SetupWithManager(mgr, Options{Check: s.check}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	require.True(t, mgr.GetCache().WaitForCacheSync(ctx))
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

func (w *world) secret(ns, name, password string) *corev1.Secret {
	w.t.Helper()
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Type: corev1.SecretTypeBasicAuth,
		StringData: map[string]string{"username": "vdo@site", "password": password}}
	require.NoError(w.t, w.Create(w.t.Context(), s))
	if ns == metav1.NamespaceSystem {
		w.t.Cleanup(func() { _ = w.Delete(context.Background(), s) })
	}
	return s
}

func (w *world) config(name string, spec v1alpha1.VsphereCloudConfigSpec) *v1alpha1.VsphereCloudConfig {
	w.t.Helper()
	if spec.VcIP == "" {
		spec.VcIP = "vc.site"
	}
	spec.Interval = metav1.Duration{Duration: time.Hour}
	v := &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, Spec: spec}
	require.NoError(w.t, w.Create(w.t.Context(), v))
	return v
}

// until waits until the resource is as ok says.
func (w *world) until(v *v1alpha1.VsphereCloudConfig, what string, ok func(*v1alpha1.VsphereCloudConfig) bool) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		return w.Get(w.t.Context(), client.ObjectKeyFromObject(v), v) == nil && ok(v)
	}, time.Minute, 20*time.Millisecond, "%s: %+v", what, v)
}

func (w *world) untilReason(v *v1alpha1.VsphereCloudConfig, reason string) {
	w.t.Helper()
	w.until(v, reason, func(v *v1alpha1.VsphereCloudConfig) bool { return foundOf(v) == reason })
}

// change edits a resource, also where its status is written at the same time.
func change[T client.Object](w *world, o T, edit func(T)) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		if err := w.Get(w.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return false
		}
		edit(o)
		err := w.Update(w.t.Context(), o)
		if err != nil && !apierrors.IsConflict(err) {
			w.t.Error(err)
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

func readyOf(v *v1alpha1.VsphereCloudConfig) metav1.Condition {
	if c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// event waits for an event about the resource.
func (w *world) event(v *v1alpha1.VsphereCloudConfig, reason string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		var list corev1.EventList
		if err := w.List(w.t.Context(), &list, client.InNamespace(w.ns)); err != nil {
			return false
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Name == v.Name && e.Reason == reason && !strings.Contains(e.Message, password) {
				return true
			}
		}
		return false
	}, time.Minute, 20*time.Millisecond, "event %s", reason)
}

// Secrets in both namespaces, ConfigMaps and what the CA is in start a pass, and neither the status nor
// other annotations do. One vCenter that is silent holds up itself alone, though all have one account: a
// password that it has not seen yet it cannot refuse.
func TestWhatAResourceRefersToIsWatched(t *testing.T) {
	w := start(t)
	name := "creds-" + w.ns
	v := w.config("vc", v1alpha1.VsphereCloudConfigSpec{Credentials: name})
	w.untilReason(v, "NotFound")
	require.Zero(t, w.site.count())
	w.secret(metav1.NamespaceSystem, name, "wrong-canary")
	w.untilReason(v, "Unauthorized")
	require.True(t, meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.ConditionStalled))
	require.NotContains(t, fmt.Sprint(v.Status), "canary")
	w.event(v, "Unauthorized")
	own := w.secret(w.ns, name, "wrong") // the own namespace comes first
	require.Eventually(t, func() bool { return w.site.count() == 2 }, time.Minute, 20*time.Millisecond)
	change(w, own, func(s *corev1.Secret) { s.Data["password"] = []byte(password + "\n") })
	w.untilReason(v, "Succeeded")
	st := v.Status
	require.Equal(t, []string{"8.0.3.0", "42", "u-u", "AA:BB", "vdo@site", readyOf(v).Message},
		[]string{st.APIVersion, st.Build, st.InstanceUUID, st.Thumbprint, st.User, st.Message})

	// A pass that is requested is the fence: what came before it has been handled.
	change(w, v, func(v *v1alpha1.VsphereCloudConfig) { metav1.SetMetaDataAnnotation(&v.ObjectMeta, "other", "x") })
	change(w, v, func(v *v1alpha1.VsphereCloudConfig) {
		metav1.SetMetaDataAnnotation(&v.ObjectMeta, v1alpha1.AnnotationRequestedAt, "now")
	})
	w.until(v, "handled", func(v *v1alpha1.VsphereCloudConfig) bool { return v.Status.HandledReconcileAt == "now" })
	require.Equal(t, 4, w.site.count())
	require.Equal(t, []string{"u-u", ""}, w.site.asked[3].InstanceUUIDs, "no other vCenter is logged in to")

	for want, ca := range map[string]struct {
		ref v1alpha1.KeyReference
		in  client.Object
	}{
		"PEM":  {v1alpha1.KeyReference{ConfigMap: "ca"}, &corev1.ConfigMap{Data: map[string]string{"ca.crt": "PEM"}}},
		"PEM2": {v1alpha1.KeyReference{Secret: "ca2", Key: "root"}, &corev1.Secret{StringData: map[string]string{"root": "PEM2"}}},
	} {
		change(w, v, func(v *v1alpha1.VsphereCloudConfig) { v.Spec.CA = &ca.ref })
		w.untilReason(v, "NotFound")
		ca.in.SetNamespace(w.ns)
		ca.in.SetName(ca.ref.ConfigMap + ca.ref.Secret)
		require.NoError(t, w.Create(t.Context(), ca.in))
		w.untilReason(v, "Succeeded")
		require.Equal(t, want, string(w.site.asked[w.site.count()-1].Trust.CA))
	}

	asked := w.site.count()
	down := w.config("down", v1alpha1.VsphereCloudConfigSpec{Credentials: name, VcIP: silent})
	require.Eventually(t, func() bool { return w.site.count() > asked }, time.Minute, 10*time.Millisecond)
	for i := range 4 {
		w.untilReason(w.config(fmt.Sprintf("vc-%d", i), v1alpha1.VsphereCloudConfigSpec{Credentials: name, VcIP: fmt.Sprintf("vc%d.site", i)}), "Succeeded")
	}
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(down), down))
	require.Empty(t, readyOf(down).Reason, "it is being asked still")
}
