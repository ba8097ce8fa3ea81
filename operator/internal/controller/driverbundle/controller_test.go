package driverbundle

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
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
				t.Helper()
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
	t.Helper()
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
	require.NoError(t, SetupWithManager(mgr, Options{Store: st}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	require.True(t, mgr.GetCache().WaitForCacheSync(ctx))
}
