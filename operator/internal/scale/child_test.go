package scale

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	_ "net/http/pprof" // of a child of a benchmark, on loopback
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator"
)

// asOperator is the environment variable that makes this program the operator: it has
// the name of its kubeconfig.
const asOperator = "VDO_SCALE_OPERATOR"

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(asOperator); kubeconfig != "" {
		os.Exit(child(kubeconfig))
	}
	ctrllog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// child is the operator, which tells on loopback what it has asked.
func child(kubeconfig string) int {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c := &counter{of: map[string]int{}}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { c.next = next; return counting{c, next} })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	http.HandleFunc("/seen", c.serve)
	go http.Serve(listener, nil) //nolint:errcheck,gosec // ends with the process
	fmt.Println(listener.Addr())
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	log := zap.New(zap.WriteTo(os.Stderr))
	ctrllog.SetLogger(log)
	operator.BoundMemory()
	if err := operator.Run(ctx, cfg, operator.Options{Log: log}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// counter counts requests by what they ask.
type counter struct {
	mu   sync.Mutex
	next http.RoundTripper
	of   map[string]int
}

type counting struct {
	*counter
	next http.RoundTripper
}

func (c counting) RoundTrip(req *http.Request) (*http.Response, error) {
	what := verb(req)
	c.mu.Lock()
	c.of[what]++
	c.mu.Unlock()
	return c.next.RoundTrip(req)
}

// verb is VERB RESOURCE.
func verb(req *http.Request) string {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	if len(parts) < 2 || (parts[0] != "api" && parts[0] != "apis") {
		return "discovery " + req.URL.Path
	}
	rest := parts[2:]
	if parts[0] == "apis" {
		if len(parts) < 4 {
			return "discovery " + req.URL.Path
		}
		rest = parts[3:]
	}
	if len(rest) > 2 && rest[0] == "namespaces" {
		rest = rest[2:]
	}
	if len(rest) == 0 {
		return "discovery " + req.URL.Path
	}
	named, q := len(rest) > 1, req.URL.Query()
	resource := rest[0]
	if len(rest) > 2 {
		resource += "/" + rest[2]
	}
	switch {
	case q.Has("dryRun"):
		return "dryrun " + resource
	case req.Method != http.MethodGet:
		return "write " + resource
	case q.Get("watch") != "":
		return "watch " + resource
	case named:
		return "get " + resource
	}
	return "list " + resource
}

// seen is what the operator tells of itself.
type seen struct {
	Requests map[string]int
	// Passes and PassSeconds are of VDOConfigs.
	Passes      float64
	PassSeconds float64
	Heap        uint64 // bytes of live objects and what is not swept yet
}

func (c *counter) serve(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	s := seen{Requests: map[string]int{}}
	for k, n := range c.of {
		s.Requests[k] = n
	}
	c.mu.Unlock()
	families, _ := ctrlmetrics.Registry.Gather() //nolint:errcheck // what there is counts
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "controller_runtime_reconcile_time_seconds" && l.GetName() == "controller" && l.GetValue() == "vdoconfig" {
					s.Passes, s.PassSeconds = float64(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum()
				}
			}
		}
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	s.Heap = mem.HeapAlloc
	_ = json.NewEncoder(w).Encode(s) //nolint:errcheck,errchkjson // the parent finds out
}

// process is a running child.
type process struct {
	b       *testing.B
	cmd     *exec.Cmd
	address string
}

func startOperator(b *testing.B, kubeconfig, log string) *process {
	b.Helper()
	self, err := os.Executable()
	require.NoError(b, err)
	p := &process{b: b, cmd: exec.Command(self)} //nolint:gosec // this program
	p.cmd.Env = append(os.Environ(), asOperator+"="+kubeconfig)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	require.NoError(b, err)
	p.cmd.Stderr, err = os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // of the benchmark
	require.NoError(b, err)
	require.NoError(b, p.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	p.address = strings.TrimSpace(line)
	return p
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
	_ = p.cmd.Wait()                          //nolint:errcheck // likewise
}

func (p *process) get(path string) []byte {
	resp, err := http.Get("http://" + p.address + path) //nolint:noctx // of a benchmark
	require.NoError(p.b, err)
	defer resp.Body.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(resp.Body)
	require.NoError(p.b, err)
	return data
}

func (p *process) seen() seen {
	var s seen
	require.NoError(p.b, json.Unmarshal(p.get("/seen"), &s))
	return s
}

// cpu is the processor time that the process has had.
func (p *process) cpu() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	require.NoError(p.b, err)
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(f)
		require.NoError(p.b, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// memory is a line of the process's status, in MiB: VmRSS is what is resident, VmHWM what was at most.
func (p *process) memory(name string) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(p.b, err)
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			require.NoError(p.b, err)
			return float64(kib) / 1024
		}
	}
	p.b.Fatalf("no %s", name)
	return 0
}
