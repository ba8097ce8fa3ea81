package driverbundle

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// older is a cluster whose CRDs and RBAC are of a release that had no CompatibilityConfig.
type older struct {
	client.Client
	t      *testing.T
	cfg    *rest.Config
	scheme *runtime.Scheme
	ns     string
	role   *rbacv1.Role
	looked atomic.Int32 // how often the operator looked for the kind
}

// looking counts the requests for the kinds of our group.
type looking struct {
	http.RoundTripper
	times *atomic.Int32
}

func (l looking) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Path == "/apis/"+v1alpha1.GroupVersion.String() {
		l.times.Add(1)
	}
	return l.RoundTripper.RoundTrip(req)
}

func newOlder(t *testing.T) *older {
	t.Helper()
	o := &older{t: t, cfg: cluster.Config(t), scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		require.NoError(t, add(o.scheme))
	}
	var err error
	o.Client, err = client.New(o.cfg, client.Options{Scheme: o.scheme})
	require.NoError(t, err)
	o.ns = cluster.Namespace(t, o.cfg)
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "compatibilityconfigs.vdo.vmware.com"}}
	require.NoError(t, o.Delete(t.Context(), crd))
	t.Cleanup(func() { require.NoError(t, cluster.InstallCRDs(o.cfg)) })
	o.eventually("the kind is gone", func() bool {
		return apierrors.IsNotFound(o.Get(t.Context(), client.ObjectKeyFromObject(crd), crd))
	})
	all := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	name := metav1.ObjectMeta{Namespace: o.ns, Name: "operator"}
	o.role = &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "configmaps/finalizers", "events"}, Verbs: all},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: all},
		{APIGroups: []string{"vdo.vmware.com"}, Resources: []string{"driverbundles", "driverbundles/finalizers", "compatibilityconfigs/finalizers"}, Verbs: all},
		{APIGroups: []string{"vdo.vmware.com"}, Resources: []string{"vdoconfigs"}, Verbs: []string{"get", "list", "watch"}},
	}}
	require.NoError(t, o.Create(t.Context(), o.role))
	require.NoError(t, o.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: name,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "operator"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "operator"}}}))
	return o
}

func (o *older) eventually(what string, ok func() bool) {
	o.t.Helper()
	require.Eventually(o.t, ok, 30*time.Second, 20*time.Millisecond, what)
}

// start runs a manager with the rights of the Role, and returns what stops it.
func (o *older) start() (stop func()) {
	o.t.Helper()
	cfg := rest.CopyConfig(o.cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "operator", Groups: []string{"system:authenticated"}}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return looking{next, &o.looked} })
	several := true
	own := cache.Options{DefaultNamespaces: map[string]cache.Config{o.ns: {}}, Scheme: o.scheme}
	mgr, err := manager.New(cfg, manager.Options{
		Scheme: o.scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &several}, Cache: own,
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{}}}},
	})
	require.NoError(o.t, err)
	watched, err := cache.New(cfg, own) // controllers wait for all of the manager's
	require.NoError(o.t, err)
	require.NoError(o.t, mgr.Add(watched))
	require.NoError(o.t, setupLegacy(mgr, watched, 100*time.Millisecond))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return func() {
		cancel()
		require.NoError(o.t, <-done, "the manager has not given up")
	}
}

// follows waits until the DriverBundle names what a resource does.
func (o *older) follows(reference string) {
	o.t.Helper()
	o.eventually(reference, func() bool {
		var b v1alpha1.DriverBundle
		err := o.Get(o.t.Context(), client.ObjectKey{Namespace: o.ns, Name: v1alpha1.LegacyMatrixName}, &b)
		require.NoError(o.t, client.IgnoreNotFound(err))
		return b.Spec.Reference == reference
	})
}

// CRDs and RBAC are replaced one after another, before or after the operator: whatever
// is there of them, the operator does the rest, and sees when the other comes.
func TestCompatibilityConfigsAreWatchedFromWhenTheyCanBe(t *testing.T) {
	o := newOlder(t)
	stop := o.start()
	defer func() { stop() }()
	c := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.ns, Name: v1alpha1.LegacyMatrixName},
		Data:       map[string]string{"versionConfigURL": "oci://mirror.site/vdo:1"},
	}
	require.NoError(t, o.Create(t.Context(), c))
	o.follows("mirror.site/vdo:1")

	require.NoError(t, cluster.InstallCRDs(o.cfg))
	compat := &v1alpha1.CompatibilityConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.ns, Name: "compat"},
		Spec:       v1alpha1.CompatibilityConfigSpec{MatrixURL: "oci://mirror.site/vdo:3"},
	}
	require.NoError(t, o.Create(t.Context(), compat))
	for _, reference := range []string{"mirror.site/vdo:2", "mirror.site/vdo:22"} {
		c.Data = map[string]string{"versionConfigURL": "oci://" + reference}
		require.NoError(t, o.Update(t.Context(), c))
		o.follows(reference)
		stop() // and started anew, with the kind and without the right to it
		stop = o.start()
	}

	o.role.Rules = append(o.role.Rules, rbacv1.PolicyRule{APIGroups: []string{"vdo.vmware.com"}, Resources: []string{"compatibilityconfigs"}, Verbs: []string{"get", "list", "watch", "patch"}})
	require.NoError(t, o.Update(t.Context(), o.role))
	require.NoError(t, o.Delete(t.Context(), c))
	o.follows("mirror.site/vdo:3")
	patch := client.MergeFrom(compat.DeepCopy())
	compat.Spec.MatrixURL = "oci://mirror.site/vdo:4"
	require.NoError(t, o.Patch(t.Context(), compat, patch))
	o.follows("mirror.site/vdo:4")
}

// CRDs that are applied while the operator runs are seen without a restart.
func TestACompatibilityConfigIsFollowedWhenItsKindComesLater(t *testing.T) {
	o := newOlder(t)
	o.role.Rules = append(o.role.Rules, rbacv1.PolicyRule{APIGroups: []string{"vdo.vmware.com"}, Resources: []string{"compatibilityconfigs"}, Verbs: []string{"get", "list", "watch", "patch"}})
	require.NoError(t, o.Update(t.Context(), o.role))
	stop := o.start()
	defer stop()
	o.eventually("the kind was looked for", func() bool { return o.looked.Load() > 1 })
	require.NoError(t, cluster.InstallCRDs(o.cfg))
	require.NoError(t, o.Create(t.Context(), &v1alpha1.CompatibilityConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.ns, Name: "compat"},
		Spec:       v1alpha1.CompatibilityConfigSpec{MatrixURL: "oci://mirror.site/vdo:1"},
	}))
	o.follows("mirror.site/vdo:1")
}
