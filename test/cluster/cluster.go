// Package cluster starts a real Kubernetes control plane on loopback, on which tests and the demo install drivers:
// etcd and the API server. On request it adds the controller manager, the scheduler, and nodes that KWOK simulates,
// so that DaemonSets and Deployments roll out.
//
// A cluster has its own CA, ports and directories, so any number of them run side by side. Its processes end with
// Stop, or if the program that started them is killed.
package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// Options say what to start. The zero value is etcd and an API server alone.
type Options struct {
	// Nodes to register, with the controller manager, the scheduler and KWOK; none of these run without nodes.
	Nodes []Node
	// Kubelets starts the controller manager and the scheduler, but no KWOK: nodes join with their own kubelets, see
	// [Cluster.WriteNodeKubeconfig].
	Kubelets bool
	// Address that the API server listens on, reachable by the nodes; default 127.0.0.1.
	Address string
	// Dir for keys, data and logs; default a new temporary directory, which Stop removes.
	Dir string
	// Progress receives messages about programs that are built; default none.
	Progress io.Writer
}

// Cluster is a running control plane.
type Cluster struct {
	opts      Options
	dir       string
	ownsDir   bool
	pki       files
	version   string
	etcdURL   string
	port      int
	mu        sync.Mutex
	processes map[string]*shell.Process
}

const (
	startTimeout = 3 * time.Minute
	besides      = "second kube-apiserver"
	adminToken   = "admin-token" //nolint:gosec // of a cluster on loopback that lives for one test
)

// Start starts a control plane and waits until it serves and its nodes are ready. A process that loses the race for
// its port is restarted on another one.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	opts.Progress, opts.Address = cmp.Or(opts.Progress, io.Discard), cmp.Or(opts.Address, "127.0.0.1")
	c := &Cluster{opts: opts, dir: opts.Dir, version: toolchain.FirstKubernetes, processes: map[string]*shell.Process{}}
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "vdo-cluster-")
		if err != nil {
			return nil, err
		}
		c.dir, c.ownsDir = dir, true
	}
	if err := errors.Join(count(), c.start(ctx)); err != nil {
		c.Stop()
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return c, nil
}

// count reports the start of a control plane to the test runner.
func count() error {
	name := os.Getenv(tier.ControlPlanes)
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("+")
	return errors.Join(err, f.Close())
}

func (c *Cluster) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute) // building from nothing included
	defer cancel()
	if c.pki, err = newFiles(filepath.Join(c.dir, "pki"), c.opts.Address); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{c.startEtcd, c.serve, c.registerNodes} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Config returns an administrator's client configuration.
func (c *Cluster) Config() *rest.Config {
	return &rest.Config{
		Host:            c.url(),
		BearerToken:     adminToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.pki.ca.PEM()},
		QPS:             500, Burst: 1000,
	}
}

// Kubeconfig returns the path of an administrator's kubeconfig file.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// Version returns the Kubernetes version that the API server reports.
func (c *Cluster) Version() string { return c.version }

// Upgrade replaces the API server by one of another version, over the same data and on the same address, and waits
// until it serves. It restarts the controller manager, the scheduler and KWOK. Otherwise each would look for the API
// server after up to half a minute, one after another.
func (c *Cluster) Upgrade(ctx context.Context, version string) error {
	for _, name := range []string{"kwok", "kube-scheduler", "kube-controller-manager"} {
		c.end(name, (*shell.Process).Stop)
	}
	c.end("kube-apiserver", (*shell.Process).Kill) // asked to, it would wait for all watches first
	c.version = version
	if err := c.serve(ctx); err != nil {
		return fmt.Errorf("cluster: upgrade to %s: %w", version, err)
	}
	return nil
}

// serve starts the API server and the programs that use it.
func (c *Cluster) serve(ctx context.Context) error {
	steps := []func(context.Context) error{c.startAPIServer}
	if len(c.opts.Nodes) > 0 || c.opts.Kubelets {
		steps = append(steps, c.startControllers)
	}
	if len(c.opts.Nodes) > 0 {
		steps = append(steps, c.startKWOK)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop kills all processes and removes the files of Start. Nothing of a cluster outlives it, so no process ends
// gracefully: the API server would wait for its clients' watches.
func (c *Cluster) Stop() {
	for _, name := range []string{"kwok", "kube-scheduler", "kube-controller-manager", besides, "kube-apiserver", "etcd"} {
		c.end(name, (*shell.Process).Kill)
	}
	if c.ownsDir {
		_ = os.RemoveAll(c.dir)
	}
}

func (c *Cluster) end(name string, how func(*shell.Process)) {
	c.mu.Lock()
	p := c.processes[name]
	delete(c.processes, name)
	c.mu.Unlock()
	if p != nil {
		how(p)
	}
}

func (c *Cluster) url() string { return "https://" + c.at(c.port) }

func (c *Cluster) at(port int) string { return net.JoinHostPort(c.opts.Address, strconv.Itoa(port)) }

func (c *Cluster) startEtcd(ctx context.Context) error {
	return c.run(ctx, toolchain.Tool{Name: "etcd"}, func(ports []int) ([]string, probe) {
		c.etcdURL = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
		peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
		return []string{
			"--data-dir", filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync",
			"--listen-client-urls", c.etcdURL, "--advertise-client-urls", c.etcdURL,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", "default=" + peer, "--log-level", "warn",
		}, httpProbe(&rest.Config{}, c.etcdURL+"/health")
	})
}

func (c *Cluster) startAPIServer(ctx context.Context) error {
	if err := c.run(ctx, toolchain.Tool{Name: "kube-apiserver", Version: c.version}, func(ports []int) ([]string, probe) {
		if c.port == 0 {
			c.port = ports[0]
		}
		return c.apiServer(c.port)
	}); err != nil {
		return err
	}
	return c.WriteKubeconfig(c.Kubeconfig(), &clientcmdapi.AuthInfo{Token: adminToken})
}

// Beside starts a second API server of another version over the same data, as during the upgrade of a control plane.
// It returns its HOST:PORT.
func (c *Cluster) Beside(ctx context.Context, version string) (address string, err error) {
	err = c.runAs(ctx, besides, toolchain.Tool{Name: "kube-apiserver", Version: version}, func(ports []int) ([]string, probe) {
		address = c.at(ports[0])
		return c.apiServer(ports[0])
	})
	return address, err
}

// apiServer returns the arguments of an API server on a port, and its readiness probe.
func (c *Cluster) apiServer(port int) ([]string, probe) {
	// A pod without a ServiceAccount can exist only if no controller creates the default one.
	disabled := "ServiceAccount"
	switch {
	case len(c.opts.Nodes) > 0:
		disabled = "TaintNodesByCondition"
	case c.opts.Kubelets:
		disabled = "DefaultIngressClass" // the flag needs a name; nothing depends on this one
	}
	return []string{
		"--etcd-servers", c.etcdURL,
		"--bind-address", c.opts.Address, "--advertise-address", c.opts.Address, "--secure-port", strconv.Itoa(port),
		"--tls-cert-file", c.pki.path("server.crt"), "--tls-private-key-file", c.pki.path("server.key"),
		"--client-ca-file", c.pki.path("ca.crt"), "--cert-dir", c.pki.dir,
		"--kubelet-client-certificate", c.pki.path("kubelet-client.crt"), "--kubelet-client-key", c.pki.path("kubelet-client.key"),
		"--kubelet-preferred-address-types", "InternalIP,Hostname",
		"--token-auth-file", c.pki.path("tokens.csv"),
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", c.pki.path("sa.crt"), "--service-account-signing-key-file", c.pki.path("sa.key"),
		"--service-cluster-ip-range", "10.96.0.0/16",
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction,OwnerReferencesPermissionEnforcement",
		"--disable-admission-plugins", disabled,
		"--endpoint-reconciler-type", "none", "--allow-privileged", "--profiling=false",
		"--shutdown-delay-duration", "0s", "--feature-gates", "", "--enable-priority-and-fairness=false",
	}, httpProbe(c.Config(), "https://"+c.at(port)+"/readyz")
}

func (c *Cluster) startControllers(ctx context.Context) error {
	manager := toolchain.Tool{Name: "kube-controller-manager", Version: toolchain.FirstKubernetes}
	if err := c.run(ctx, manager, func(ports []int) ([]string, probe) {
		return []string{
			"--kubeconfig", c.Kubeconfig(), "--leader-elect=false", "--use-service-account-credentials=false",
			"--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(ports[0]), "--cert-dir", c.pki.dir,
			"--service-account-private-key-file", c.pki.path("sa.key"), "--root-ca-file", c.pki.path("ca.crt"),
			"--authentication-skip-lookup", "--kube-api-qps", "200", "--kube-api-burst", "400",
			"--node-monitor-grace-period", "1h", // nodes do not fail here; a machine that is busy must not make it look so
		}, httpProbe(selfSigned, fmt.Sprintf("https://127.0.0.1:%d/healthz", ports[0]))
	}); err != nil {
		return err
	}
	scheduler := toolchain.Tool{Name: "kube-scheduler", Version: toolchain.FirstKubernetes}
	return c.run(ctx, scheduler, func(ports []int) ([]string, probe) {
		return []string{
			"--kubeconfig", c.Kubeconfig(), "--leader-elect=false",
			"--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(ports[0]), "--cert-dir", c.pki.dir,
			"--authentication-skip-lookup", "--kube-api-qps", "200", "--kube-api-burst", "400",
		}, httpProbe(selfSigned, fmt.Sprintf("https://127.0.0.1:%d/healthz", ports[0]))
	})
}

func (c *Cluster) startKWOK(ctx context.Context) error {
	stages, err := toolchain.ModuleDir(ctx, "kwok", "sigs.k8s.io/kwok")
	if err != nil {
		return err
	}
	// Without leases: a restarted one would wait until the end of its predecessor's.
	args := []string{"--kubeconfig", c.Kubeconfig(), "--manage-all-nodes", "--node-lease-duration-seconds", "0"}
	for _, stage := range []string{
		"pod/fast/pod-ready", "pod/fast/pod-complete", "pod/fast/pod-delete",
		"node/heartbeat/node-heartbeat", "node/fast/node-initialize",
	} {
		args = append(args, "-c", filepath.Join(stages, "kustomize", "stage", filepath.FromSlash(stage)+".yaml"))
	}
	return c.run(ctx, toolchain.Tool{Name: "kwok"}, func(ports []int) ([]string, probe) {
		address := fmt.Sprintf("127.0.0.1:%d", ports[0])
		return append(args[:len(args):len(args)], "--server-address", address),
			httpProbe(&rest.Config{}, "http://"+address+"/healthz")
	})
}

// probe reports why a process does not serve yet, or nil.
type probe func(ctx context.Context) error

// selfSigned is for controllers, which sign their own certificates.
var selfSigned = &rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}}

func httpProbe(cfg *rest.Config, url string) probe {
	return func(ctx context.Context) error {
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) //nolint:errcheck // only for the message
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s: %s", url, resp.Status, bytes.TrimSpace(body))
		}
		return nil
	}
}

// run starts a tool with the arguments for two free ports and waits until its probe succeeds. Another process may
// take a port meanwhile: the tool then exits at once and run tries again.
func (c *Cluster) run(ctx context.Context, tool toolchain.Tool, args func(ports []int) ([]string, probe)) error {
	return c.runAs(ctx, tool.Name, tool, args)
}

func (c *Cluster) runAs(ctx context.Context, name string, tool toolchain.Tool, args func(ports []int) ([]string, probe)) error {
	path, err := toolchain.Ensure(ctx, c.opts.Progress, tool)
	if err != nil {
		return err
	}
	// Garbage collection is a sixth of a small control plane's work, and waking its other threads an eighth. Many
	// control planes share the machine with the tests.
	sh := shell.Shell{Env: []string{"GOGC=400", "GOMAXPROCS=1"}}
	var last error
	for range 3 {
		ports, err := freePorts(2)
		if err != nil {
			return err
		}
		arguments, ready := args(ports)
		p, err := sh.Start(filepath.Join(c.dir, name+".log"), path, arguments...)
		if err != nil {
			return err
		}
		last = await(ctx, tool.Name, p, ready)
		if last == nil {
			c.mu.Lock()
			c.processes[name] = p
			c.mu.Unlock()
			return nil
		}
		p.Stop()
		if !errors.Is(last, errExited) {
			return last
		}
	}
	return last
}

func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		ports[i] = l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // of a TCP listener
	}
	return ports, nil
}

// errExited reports that a process ended before it served.
var errExited = errors.New("the process ended")

// await probes until the process of a tool serves or ends, or the timeout.
func await(ctx context.Context, name string, p *shell.Process, ready probe) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		if last = ready(ctx); last == nil {
			return nil
		}
		select {
		case <-p.Ended:
			return fmt.Errorf("%s: %w; its log ends with:\n%s", name, errExited, tail(p.Log))
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve: %w; its log ends with:\n%s", name, last, tail(p.Log))
		case <-tick.C:
		}
	}
}

// tail returns the last 2 KiB of a file.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2<<10):])
}
