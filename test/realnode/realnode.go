// Package realnode gives a test nodes that really pull images and run pods. Each has kubelet, containerd, runc and
// the CNI's bridge, and joins a control plane of package cluster.
//
// Such a test runs itself again in a world of its own:
//
//	func TestRealNodes(t *testing.T) {
//		if !realnode.Enter(t) {
//			return // it ran in there
//		}
//		s, err := site.New(ctx, site.Options{Kubelets: true, Address: realnode.Address})
//		nodes := realnode.New(t, realnode.Options{Dir: dir, Cluster: s.Cluster, Mirror: s.Mirror})
//		n := nodes.Join(t, realnode.Spec{Node: s.Machines[0]})
//		n.Restart(t)
//
// The world has its own processes, network and mounts (kernel namespaces), and no way out. It has a bridge with
// [Address]. Each node is connected to it, with its own network and mounts. So nothing of the world outlives the
// test: the kernel ends all processes with the first one, and removes mounts and networks with the last. A directory
// and control groups of one name remain; the test removes them, unless it was killed. The sysctls that a kubelet sets
// for the whole machine are already set, in files that only it sees.
//
// The kubelet's statistics of disks do not work, and so eviction does not.
//
// It needs root with CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_MKNOD, and writable control groups (version 1 or 2). It
// needs Debian's containerd, runc, containernetworking-plugins, iproute2 and util-linux. If anything is missing,
// [Enter] skips the test and says why.
package realnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	polling "k8s.io/apimachinery/pkg/util/wait"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// Address is the world's own, where nodes reach its servers. The networks are those for documentation: TEST-NET-1 for
// nodes, TEST-NET-2 for pods.
const Address = "192.0.2.1"

// Options say which cluster nodes join and which mirror they pull from.
type Options struct {
	// Dir for configuration and logs.
	Dir     string
	Cluster *cluster.Cluster
	// Mirror that the nodes' runtimes trust, without a pull secret.
	Mirror *registry.Registry
}

// Nodes are a cluster's nodes.
type Nodes struct {
	opts    Options
	kubelet string
	pause   string // reference of the image that holds a pod's network
	plain   *registry.Registry
	joined  int
}

// Driver compiles the program that stands in for those of the drivers, see the command driver below, and returns its
// path.
func Driver(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := (toolchain.Builder{}).Project(t.Context(), dir, "./test/realnode/driver"); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "driver")
}

// New prepares for nodes to join. The runtimes pull their own image from a registry without login, so that only pods
// send requests to the mirror.
func New(t testing.TB, o Options) *Nodes {
	t.Helper()
	ns := &Nodes{opts: o}
	var err error
	if ns.kubelet, err = toolchain.Ensure(t.Context(), os.Stderr, Tool()); err != nil {
		t.Fatal(err)
	}
	ns.plain = registry.Start(t, registry.Options{Address: Address + ":0"})
	ref, _ := images.Push(t, ns.plain, "registry.test/pause:1", images.Spec{Program: Driver(t), ProgramName: "pause", Platforms: images.Linux[:1]})
	ns.pause = ref.String()
	return ns
}

// Tool returns the kubelet.
func Tool() toolchain.Tool {
	return toolchain.Tool{Name: "kubelet", Version: toolchain.FirstKubernetes}
}

// wait calls ok until it returns nil or the timeout.
func wait(ctx context.Context, what string, ok func() error) error {
	var last error
	try := func(context.Context) (bool, error) {
		last = ok()
		return last == nil, nil
	}
	if err := polling.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, try); err != nil {
		return fmt.Errorf("%s: %w", what, errors.Join(err, last))
	}
	return nil
}

// listens returns an error unless a socket accepts connections.
func listens(path string) error {
	c, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	return c.Close()
}

const (
	prefix      = "vdo-realnode-" // of a world's folder, and of its control groups
	controllers = "/sys/fs/cgroup"
)

// groups returns the control groups of a world in all hierarchies, children first.
func groups(dir string) (all []string) {
	name := filepath.Base(dir)
	for _, pattern := range []string{"*/" + name, name} {
		roots, _ := filepath.Glob(filepath.Join(controllers, pattern)) //nolint:errcheck // the pattern is good
		for _, root := range roots {
			_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					all = append(all, path)
				}
				return nil
			})
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	return slices.Compact(all)
}

// removeGroups removes a world's control groups. A group can be removed once its last process is gone, soon after its
// kill.
func removeGroups(dir string) error {
	return wait(context.Background(), "remove control groups", func() error {
		var errs []error
		for _, g := range groups(dir) {
			if err := syscall.Rmdir(g); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("%s: %w", g, err))
			}
		}
		return errors.Join(errs...)
	})
}

// makeGroup makes a control group in each hierarchy, below the world's own.
func makeGroup(name string) error {
	hierarchies, err := os.ReadDir(controllers)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(controllers, "cgroup.controllers")); err == nil {
		return os.MkdirAll(filepath.Join(controllers, name), 0o755)
	}
	var errs []error
	for _, h := range hierarchies {
		if h.IsDir() {
			errs = append(errs, os.MkdirAll(filepath.Join(controllers, h.Name(), name), 0o755))
		}
	}
	return errors.Join(errs...)
}
