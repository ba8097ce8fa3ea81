package vdoconfig_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// scheme has the kinds of all tests; building it takes as long as a reconcile.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
})

// access reaches one API server: as an administrator, and as the operator. Tests share one,
// because each new client reads all kinds again, and each new edge tries all objects again.
type access struct {
	admin, own client.WithWatch
	versions   discovery.DiscoveryInterface
	refused    *cluster.Refused
	kinds      *kinds
	edge       *edge.Cluster
	raw        rest.Interface                // an administrator's
	asks       func(req *http.Request) error // before the operator's requests
}

// reached is the access to the shared API server.
var reached *access

func newAccess(t *testing.T, cfg *rest.Config) *access {
	t.Helper()
	a := &access{edge: &edge.Cluster{}, kinds: &kinds{}}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return wire{next, func(*http.Request) error { return nil }, a.kinds.wrote}
	})
	account, refused := cluster.Operator.Within(cfg)
	account.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return wire{next, func(req *http.Request) error { return a.asks(req) }, func(string) {}}
	})
	a.refused = refused
	web, err := rest.HTTPClientFor(account)
	require.NoError(t, err)
	a.versions, err = discovery.NewDiscoveryClientForConfigAndClient(account, web)
	require.NoError(t, err)
	a.kinds.DeferredDiscoveryRESTMapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(a.versions))
	a.own, err = client.NewWithWatch(account, client.Options{HTTPClient: web, Scheme: scheme(), Mapper: a.kinds})
	require.NoError(t, err)
	a.admin, err = client.NewWithWatch(cfg, client.Options{Scheme: scheme(), Mapper: a.kinds})
	require.NoError(t, err)
	admin, err := discovery.NewDiscoveryClientForConfig(cfg)
	require.NoError(t, err)
	a.raw = admin.RESTClient()
	return a
}

// wire is the way to the API server.
type wire struct {
	next   http.RoundTripper
	before func(req *http.Request) error
	after  func(path string)
}

func (w wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return w.next.RoundTrip(req)
	}
	if err := w.before(req); err != nil {
		return nil, err
	}
	defer w.after(req.URL.Path)
	return w.next.RoundTrip(req)
}

// kinds reads which kinds the API server serves once, and again while a CustomResourceDefinition was just written.
type kinds struct {
	*restmapper.DeferredDiscoveryRESTMapper
	changed atomic.Int64
}

// kindsSettle is how long the API server may take to serve a new kind.
const kindsSettle = 5 * time.Second

// RESTMapping returns how a kind is served.
func (k *kinds) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if time.Since(time.UnixMilli(k.changed.Load())) < kindsSettle {
		k.Reset()
	}
	return k.DeferredDiscoveryRESTMapper.RESTMapping(gk, versions...)
}

// wrote notes a write.
func (k *kinds) wrote(path string) {
	if strings.Contains(path, "/customresourcedefinitions") {
		k.changed.Store(time.Now().UnixMilli())
	}
}

// The operator of these tests is its service account, with the rights of the manifests that are
// shipped and no more. The test itself is an administrator.

// granted is set once those manifests are applied: tests that take some of it away put it back.
var granted bool

func (w *world) grant() {
	w.t.Helper()
	require.NoError(w.t, cluster.Operator.Grant(context.Background(), w.Client))
	granted = true
}

// here makes the test's namespace what the operator's own is.
func (w *world) here() {
	w.t.Helper()
	if !granted {
		w.grant()
	}
	require.NoError(w.t, cluster.Operator.GrantIn(context.Background(), w.Client, w.ns))
}

// allow gives the operator the rights of a manifest that is applied where it is needed only,
// until the test ends.
func (w *world) allow(manifest string) {
	w.t.Helper()
	require.NoError(w.t, cluster.Operator.Grant(context.Background(), w.Client, manifest))
	w.t.Cleanup(func() {
		w.clean()
		require.NoError(w.t, cluster.Operator.Revoke(context.Background(), w.Client, manifest))
	})
}
