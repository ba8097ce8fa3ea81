package cluster_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
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
		at := netip.MustParseAddrPort(a)
		found.Ports = append(found.Ports, discoveryv1.EndpointPort{Port: new(int32(at.Port()))})
		found.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{at.Addr().String()}}}
	}
	return nil
}

// A control plane that is being upgraded: two real API servers over the same data.
func TestEveryAPIServerIsAskedForItsVersion(t *testing.T) {
	c := cluster.New(t, cluster.Options{})
	cfg := c.Config()
	k := must.Have(client.NewWithWatch(cfg, client.Options{Scheme: clientgoscheme.Scheme}))(t)
	versions := must.Have(discovery.NewDiscoveryClientForConfig(cfg))(t)
	e := &edge.Cluster{Client: k, Reader: k, Versions: versions, Ask: edge.Asking(cfg)}
	servers := must.Have(e.APIServers(ctx))(t)
	require.Equal(t, []assess.APIServer{{Version: "v" + toolchain.FirstKubernetes}}, servers, "no endpoints are kept")

	second := must.Have(c.Beside(ctx, toolchain.NextKubernetes))(t)
	dead := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
	require.NoError(t, dead.Close())
	e.Reader = endpoints{k, []string{cfg.Host[len("https://"):], second, dead.Addr().String()}}
	servers = must.Have(e.APIServers(ctx))(t)
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
	other.TLS = &tls.Config{Certificates: []tls.Certificate{own.TLS()}}
	other.StartTLS()
	t.Cleanup(other.Close)
	ask := edge.Asking(cluster.Config(t))
	_, err := ask(ctx, other.Listener.Addr().String())
	require.ErrorContains(t, err, "certificate signed by unknown authority")

	mute := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { require.NoError(t, mute.Close()) })
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, must.Err(ask(short, mute.Addr().String())), context.DeadlineExceeded)
}

type servers struct{ version string }

func (s *servers) ServerVersion() (*version.Info, error) {
	return &version.Info{GitVersion: s.version}, nil
}

// The API server is asked once what it would make of an object, until the object, what is
// there, or the API server is another one. What it would change, or refuses, is asked again.
func TestTheAPIServerIsAskedOnceWhatItWouldChange(t *testing.T) {
	c, k, ns := start(t)
	requested, refuse := 0, error(nil)
	s := &servers{"v1.33.1"}
	counted := &edge.Cluster{Reader: k, Versions: s, Client: interceptor.NewClient(k, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if requested++; refuse != nil {
				return refuse
			}
			return c.Apply(ctx, o, opts...)
		}})}
	desired := configMap(ns, "x", map[string]any{"a": "1"})
	id := plan.IDOf(desired)
	try := func(note string, questions int, changes bool) {
		live, _, err := counted.Read(ctx, []inventory.ID{id})
		require.NoError(t, err)
		requested = 0
		dry := must.Have(counted.DryRun(ctx, []render.Object{{Unstructured: desired, Apply: render.Merge}}, live))(t)
		require.Equal(t, questions, requested, note)
		if live[id.Key] != nil && dry[id.Key].Err == nil {
			require.Equal(t, changes, len(plan.Diff(live[id.Key], dry[id.Key].Object)) > 0, note)
		}
	}
	try("it is not there", 1, true)
	try("it is not there", 1, true)
	must.Have(c.Apply(ctx, step(desired, plan.Create), nil))(t)
	try("it was made", 1, false)
	try("all is the same", 0, false)

	edited := configMap(ns, "x", map[string]any{"a": "2", "b": "3"})
	require.NoError(t, k.Apply(ctx, client.ApplyConfigurationFromUnstructured(edited.DeepCopy()), client.FieldOwner("somebody"), client.ForceOwnership))
	try("somebody changed it", 1, true)
	try("it is not mended", 1, true)
	must.Have(c.Apply(ctx, step(desired, plan.Change), nil))(t)
	try("it was mended", 1, false)
	try("all is the same", 0, false)

	desired = configMap(ns, "x", map[string]any{"a": "1", "c": "4"})
	try("another one is wanted", 1, true)
	try("what changes something is asked again", 1, true)
	desired = configMap(ns, "x", map[string]any{"a": "1"})
	try("it waits for an approval, and is asked for beside the one that is there", 0, false)
	try("all is the same", 0, false)

	must.Have(counted.APIServers(ctx))(t)
	try("the version is known now", 1, false)
	must.Have(counted.APIServers(ctx))(t)
	try("it is the same", 0, false)
	s.version = "v1.34.0"
	must.Have(counted.APIServers(ctx))(t)
	refuse = errors.New("denied by a policy")
	try("the API server is another one", 1, false)
	try("it refused", 1, false)
	refuse = nil
	try("it does not refuse any more", 1, false)
	try("all is the same", 0, false)
}

// logs are those of containers, as the API server answers questions for them.
type logs struct {
	mu     sync.Mutex
	answer func(w http.ResponseWriter, container string)
	asked  []string
}

func (l *logs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, r.URL.Path+"?"+r.URL.Query().Encode())
	l.answer(w, r.URL.Query().Get("container"))
}

func said(t *testing.T, c *edge.Cluster) string {
	o, err := c.Observe(ctx)
	require.NoError(t, err)
	o.Now = time.Now()
	rep := assess.Assess(assess.Input{Observed: o, Requested: []matrix.Driver{matrix.CPI}})
	var all []string
	for _, f := range rep.Drivers[matrix.CPI].Findings {
		all = append(all, fmt.Sprintf("%s | %s | %s", f.Reason, f.Message, f.Remedy))
	}
	return strings.Join(all, "\n")
}

// The log of a container that falls over and leaves no message tells why, read from the API server
// once for each container whatever the number of pods.
func TestLastWordsAreReadFromTheLog(t *testing.T) {
	const canary = "Canary-6"
	c, k, _ := start(t)
	node := &logs{answer: func(w http.ResponseWriter, container string) {
		if container == "c" {
			_, _ = w.Write([]byte("I1122 10:11:12.1       1 a.go:1] hello\nE1122 10:11:12.2       1 a.go:2] password=" + canary + ": ServerFaultCode: Cannot complete login due to an incorrect user name or password.\nI1122 10:11:12.3       1 a.go:3] bye\n"))
			return
		}
		_, _ = w.Write([]byte("F1122 10:11:12.1       1 main.go:9] the socket is in use\n"))
	}}
	server := httptest.NewServer(node)
	defer server.Close()
	populate(t, k, crashing("c", ""), crashing("d", ""))
	require.Contains(t, said(t, c), "exit code 3", "without a reader")
	require.Empty(t, node.asked)

	var err error
	c.Log, err = edge.Logs(&rest.Config{Host: server.URL}, http.DefaultClient)
	require.NoError(t, err)
	got := said(t, c)
	require.Contains(t, got, "Unauthorized | container c ends again and again on 3 nodes (view-0, view-1, view-2): password (hidden): Cannot complete login")
	require.Contains(t, got, "correct user and password")
	require.Contains(t, got, "container d ends again and again on 3 nodes (view-0, view-1, view-2): the socket is in use")
	require.NotContains(t, got, canary)
	require.ElementsMatch(t, []string{
		"/api/v1/namespaces/kube-system/pods/view-0/log?container=c&previous=true&tailLines=20",
		"/api/v1/namespaces/kube-system/pods/view-0/log?container=d&previous=true&tailLines=20"}, node.asked)

	node.answer = func(w http.ResponseWriter, _ string) {
		for range 100 << 10 { // 100 MiB, were it read
			if _, err := w.Write([]byte(strings.Repeat("x", 1<<10))); err != nil {
				return
			}
		}
	}
	require.LessOrEqual(t, len(said(t, c)), 4<<10)

	// What cannot be read, as where a right is missing, or a kubelet is silent, is no fault.
	for name, log := range map[string]func(context.Context) (string, error){
		"an error": func(context.Context) (string, error) { return "", errors.New("forbidden") },
		"nothing":  func(context.Context) (string, error) { return "", nil },
		"silence":  func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() },
	} {
		c.Log = func(ctx context.Context, _, _, _ string) (string, error) { return log(ctx) }
		began := time.Now()
		require.Contains(t, said(t, c), "exit code 3", name)
		require.Less(t, time.Since(began), 20*time.Second, name)
	}
}
