package vdoconfig_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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
	stale      bool
}

// reached is the access to the shared API server. A test that removes kinds makes it stale, because
// clients remember them.
var reached *access

func newAccess(t *testing.T, cfg *rest.Config) *access {
	t.Helper()
	a := &access{edge: &edge.Cluster{}}
	a.connect(t, cfg)
	return a
}

// connect makes new clients; what was tried before stays.
func (a *access) connect(t *testing.T, cfg *rest.Config) {
	t.Helper()
	a.stale = false
	account, refused := cluster.Operator.Within(cfg)
	a.refused = refused
	web, err := rest.HTTPClientFor(account)
	require.NoError(t, err)
	a.kinds = newKinds(t, account, web)
	own, err := client.NewWithWatch(account, client.Options{HTTPClient: web, Scheme: scheme(), Mapper: a.kinds})
	require.NoError(t, err)
	admin, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme(), Mapper: a.kinds})
	require.NoError(t, err)
	a.own, a.admin = a.noting(own), a.noting(admin)
	a.versions, err = discovery.NewDiscoveryClientForConfigAndClient(account, web)
	require.NoError(t, err)
}

// kinds remembers for a while which kinds the API server does not serve. Without it, each
// question about such a kind reads all kinds twice, several times in each reconcile.
type kinds struct {
	meta.RESTMapper
	mu       sync.Mutex
	unserved map[schema.GroupKind]error
	changed  time.Time
}

// kindsSettle is how long the API server may take to serve a new kind.
const kindsSettle = 5 * time.Second

func newKinds(t *testing.T, cfg *rest.Config, web *http.Client) *kinds {
	t.Helper()
	m, err := apiutil.NewDynamicRESTMapper(cfg, web)
	require.NoError(t, err)
	return &kinds{RESTMapper: m, unserved: map[schema.GroupKind]error{}}
}

// RESTMapping returns how a kind is served.
func (k *kinds) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	k.mu.Lock()
	err := k.unserved[gk]
	k.mu.Unlock()
	if err != nil {
		return nil, err
	}
	mapping, err := k.RESTMapper.RESTMapping(gk, versions...)
	k.mu.Lock()
	defer k.mu.Unlock()
	if meta.IsNoMatchError(err) && time.Since(k.changed) > kindsSettle {
		k.unserved[gk] = err
	}
	return mapping, err
}

// wrote notes a write; after one of a CustomResourceDefinition other kinds are served.
func (k *kinds) wrote(o any) {
	object, ok := o.(interface{ GetObjectKind() schema.ObjectKind })
	_, typed := o.(*apiextensionsv1.CustomResourceDefinition)
	if !typed && (!ok || object.GetObjectKind().GroupVersionKind().Kind != "CustomResourceDefinition") {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changed = time.Now()
	clear(k.unserved)
}

// noting has a client tell of the kinds that it makes and removes.
func (a *access) noting(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			defer a.kinds.wrote(o)
			return c.Create(ctx, o, opts...)
		},
		Apply: func(
			ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption,
		) error {
			defer a.kinds.wrote(o)
			return c.Apply(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			defer a.kinds.wrote(o)
			return c.Delete(ctx, o, opts...)
		},
	})
}
