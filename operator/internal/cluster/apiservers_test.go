package cluster_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// endpoints are what API servers keep of themselves. Those of tests listen on loopback,
// which the API server takes in no EndpointSlice, so they are put into its answer.
type endpoints struct {
	client.Reader
	addresses []string
}

func (e endpoints) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	found, ours := o.(*discoveryv1.EndpointSlice)
	if !ours || key != (client.ObjectKey{Namespace: "default", Name: "kubernetes"}) {
		return e.Reader.Get(ctx, key, o, opts...)
	}
	for _, a := range e.addresses {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			return err
		}
		number := int32(n)
		found.Ports = append(found.Ports, discoveryv1.EndpointPort{Port: &number})
		found.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{host}}}
	}
	return nil
}

// A control plane that is being upgraded: two real API servers over the same data.
func TestEveryAPIServerIsAskedForItsVersion(t *testing.T) {
	c := cluster.New(t, cluster.Options{})
	cfg := c.Config()
	k, err := client.NewWithWatch(cfg, client.Options{Scheme: clientgoscheme.Scheme})
	require.NoError(t, err)
	versions, err := discovery.NewDiscoveryClientForConfig(cfg)
	require.NoError(t, err)
	e := &edge.Cluster{Client: k, Reader: k, Versions: versions, Ask: edge.Asking(cfg)}
	servers, err := e.APIServers(ctx)
	require.NoError(t, err)
	require.Equal(t, []assess.APIServer{{Version: "v" + toolchain.FirstKubernetes}}, servers, "no endpoints are kept")

	second, err := c.Beside(ctx, toolchain.NextKubernetes)
	require.NoError(t, err)
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, dead.Close())
	e.Reader = endpoints{k, []string{cfg.Host[len("https://"):], second, dead.Addr().String()}}
	servers, err = e.APIServers(ctx)
	require.NoError(t, err)
	found := map[string]int{}
	for _, s := range servers {
		found[s.Version]++
		if s.Version == "" {
			require.ErrorContains(t, s.Err, "connection refused")
			require.NotContains(t, s.Err.Error(), "->", "what changes from try to try")
		}
	}
	require.Equal(t, map[string]int{"v" + toolchain.FirstKubernetes: 2, "v" + toolchain.NextKubernetes: 1, "": 1}, found, "%v", servers)
}

// Whatever may be written into endpoints, the question goes to API servers of this
// cluster alone, and does not wait.
func TestAnAddressThatIsNoAPIServerIsNotBelieved(t *testing.T) {
	own := pki.Root(t, "other").Issue(t, pki.Spec{DNS: []string{"kubernetes.default.svc"}})
	other := httptest.NewUnstartedServer(http.NotFoundHandler())
	served := tls.Certificate{Certificate: [][]byte{own.Certificate.Raw}, PrivateKey: own.Key}
	other.TLS = &tls.Config{Certificates: []tls.Certificate{served}}
	other.StartTLS()
	t.Cleanup(other.Close)
	ask := edge.Asking(cluster.Config(t))
	_, err := ask(ctx, other.Listener.Addr().String())
	require.ErrorContains(t, err, "certificate signed by unknown authority")

	mute, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mute.Close()) })
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err = ask(short, mute.Addr().String())
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// Something in between may answer for an API server, with JSON even.
func TestAnAnswerWithoutAVersionIsNone(t *testing.T) {
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write([]byte(`{}`))
		assert.NoError(t, err)
	}))
	t.Cleanup(proxy.Close)
	ask := edge.Asking(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	_, err := ask(ctx, proxy.Listener.Addr().String())
	require.ErrorContains(t, err, "it has no gitVersion")
}
