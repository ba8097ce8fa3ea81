// Program is the operator as shipped, for the benchmarks of package scale. It also serves, on loopback, its requests
// to the API server and the time of its reconciles. It is a separate program, to measure the operator's memory.
//
//	program KUBECONFIG
//
// It prints its loopback address: /seen is a JSON object [seen].
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator"
)

func main() { os.Exit(run(os.Args[len(os.Args)-1])) }

// account is the operator's, with exactly the shipped permissions.
var account = rest.ImpersonationConfig{
	UserName: "system:serviceaccount:vmware-system-vdo:vdo-operator",
	Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:vmware-system-vdo", "system:authenticated"},
}

// run runs the operator under its account, with an administrator's kubeconfig.
func run(kubeconfig string) int {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cfg.Impersonate = account
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

// counter counts requests by verb and resource.
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

// resource matches a path: its groups are the resource, the name and the subresource.
var resource = regexp.MustCompile(`^/(?:api|apis/[^/]+)/[^/]+/(?:namespaces/[^/]+/)?([^/]+)(/[^/]+)?(/[^/]+)?/?$`)

func verb(req *http.Request) string {
	path := resource.FindStringSubmatch(req.URL.Path)
	if path == nil {
		return "discovery " + req.URL.Path
	}
	of, q := path[1]+path[3], req.URL.Query()
	switch {
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

// seen is the response of /seen.
type seen struct {
	Requests map[string]int
	// Passes and PassSeconds count reconciles of VDOConfigs and their time.
	Passes      float64
	PassSeconds float64
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
	_ = json.NewEncoder(w).Encode(s) //nolint:errcheck,errchkjson // the parent finds out
}
