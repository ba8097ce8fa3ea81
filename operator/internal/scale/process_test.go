package scale

import (
	"bufio"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	stdlog "log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// seen is what the operator has done so far.
type seen struct {
	Requests            map[string]int // to the API server, by verb and resource
	Passes, PassSeconds float64        // reconciles of VDOConfigs
	CPU                 time.Duration  // of the processor
}

// process is a running operator.
type process struct {
	*shell.Process
	b       testing.TB
	metrics string // their address
	admin   *rest.Config

	mu       sync.Mutex
	requests map[string]int
}

// startOperator starts the program. A proxy before the API server gives it its account and counts its requests.
func startOperator(b testing.TB, admin *rest.Config, log string) *process {
	dir := b.TempDir()
	require.NoError(b, toolchain.Programs(b.Context(), dir, "./operator/cmd/vdo-operator"))
	port, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	p := &process{b: b, metrics: port.Addr().String(), admin: admin, requests: map[string]int{}}
	require.NoError(b, port.Close())
	kubeconfig := filepath.Join(dir, "kubeconfig")
	require.NoError(b, clientcmd.WriteToFile(p.counted(), kubeconfig))
	args := []string{"--kubeconfig", kubeconfig, "--metrics-bind-address", p.metrics}
	p.Process, err = (&shell.Shell{}).Start(log, filepath.Join(dir, "vdo-operator"), args...)
	require.NoError(b, err)
	return p
}

// counted starts the proxy, and returns a kubeconfig that leads to it.
func (p *process) counted() clientcmdapi.Config {
	account := cluster.Operator.Config(p.admin)
	account.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{p, next} })
	transport, err := rest.TransportFor(account)
	require.NoError(p.b, err)
	to, err := url.Parse(p.admin.Host)
	require.NoError(p.b, err)
	proxy := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, ErrorLog: stdlog.New(io.Discard, "", 0),
	})
	proxy.EnableHTTP2 = true
	proxy.StartTLS()
	p.b.Cleanup(func() { _ = proxy.Config.Close() }) // its own Close waits for watches
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: proxy.URL, CertificateAuthorityData: ca}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	return *config
}

// counting counts requests by verb and resource.
type counting struct {
	*process
	next http.RoundTripper
}

func (c counting) RoundTrip(req *http.Request) (*http.Response, error) {
	what := verb(req)
	c.mu.Lock()
	c.requests[what]++
	c.mu.Unlock()
	return c.next.RoundTrip(req)
}

// ofResource matches a path: its groups are the resource, the name and the subresource.
var ofResource = regexp.MustCompile(`^/(?:api|apis/[^/]+)/[^/]+/(?:namespaces/[^/]+/)?([^/]+)(/[^/]+)?(/[^/]+)?/?$`)

func verb(req *http.Request) string {
	path := ofResource.FindStringSubmatch(req.URL.Path)
	if path == nil {
		return "discovery " + req.URL.Path
	}
	of, q := path[1]+path[3], req.URL.Query()
	switch {
	case strings.HasSuffix(of, "reviews"): // of those who read metrics
		return "get " + of
	case q.Has("dryRun"):
		return "dryrun " + of
	case req.Method != http.MethodGet:
		return "write " + of
	case q.Get("watch") != "":
		return "watch " + of
	case path[2] != "":
		return "get " + of
	}
	return "list " + of
}

// seen reads what the operator has done from its metrics.
func (p *process) seen() seen {
	s := p.trySeen()
	require.Positive(p.b, s.CPU, "it serves no metrics")
	return s
}

// trySeen returns only the requests while it serves no metrics.
func (p *process) trySeen() (s seen) {
	p.mu.Lock()
	s.Requests = maps.Clone(p.requests)
	p.mu.Unlock()
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // on loopback
	}}
	req, err := http.NewRequestWithContext(p.b.Context(), http.MethodGet, "https://"+p.metrics+"/metrics", nil)
	require.NoError(p.b, err)
	req.Header.Set("Authorization", "Bearer "+p.admin.BearerToken)
	resp, err := client.Do(req)
	if err != nil {
		return s
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		n, _ := strconv.ParseFloat(value, 64) //nolint:errcheck // of a comment
		switch name {
		case `controller_runtime_reconcile_time_seconds_count{controller="vdoconfig"}`:
			s.Passes = n
		case `controller_runtime_reconcile_time_seconds_sum{controller="vdoconfig"}`:
			s.PassSeconds = n
		case "process_cpu_seconds_total":
			s.CPU = time.Duration(n * float64(time.Second))
		}
	}
	return s
}

// memory is a line of the process's status, in MiB: VmRSS is what is resident, VmHWM what was at most.
func (p *process) memory(name string) float64 {
	kib := shell.Memory(p.Pid(), name)
	require.Positive(p.b, kib)
	return float64(kib) / 1024
}

// forgetPeak has VmHWM count from now on: proc(5), clear_refs.
func (p *process) forgetPeak() {
	require.NoError(p.b, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Pid()), []byte("5"), 0o200))
}
