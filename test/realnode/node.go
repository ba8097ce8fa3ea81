package realnode

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
)

// Spec describes a joining node.
type Spec struct {
	// Node has the name, and the UUID that the machine's firmware reports. A control-plane node is one by its label,
	// and accepts any pod.
	cluster.Node
	// MaxPods is the limit of pods; default 110.
	MaxPods int
	// Taken: a pod of the machine itself occupies one place until MakeRoom. No other pod has the priority to evict
	// it.
	Taken bool
}

// Node is a machine that runs pods.
type Node struct {
	Spec
	nodes *Nodes
	dir   string
	// namespaces is an idle process that holds the node's namespaces.
	namespaces, containerd, kubelet *exec.Cmd
	// subnets: the node is 192.0.2.(9+n), its pods' network the n-th of /27.
	n int
}

// machine is a node's first process. Files of the node replace the machine-wide settings that a kubelet would change.
const machine = `set -e
mount --make-rprivate /
for d in /run /var/lib /var/log; do mount -t tmpfs tmpfs $d; done
mkdir -p /run/lock /var/lib/kubelet
mount --bind "$1/machine-id" /etc/machine-id
for s in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  file=${s%=*}; own="$1/sysctl-${file//\//-}"
  echo ${s#*=} >"$own"
  if [ -e /proc/sys/$file ]; then mount --bind "$own" /proc/sys/$file; fi
done
mount --make-rshared /
ip link set lo up
echo ready
exec sleep infinity`

// Join starts a machine that joins the cluster. It returns when the node is Ready.
func (ns *Nodes) Join(t testing.TB, spec Spec) *Node {
	t.Helper()
	ns.joined++
	n := &Node{Spec: spec, nodes: ns, dir: filepath.Join(ns.opts.Dir, spec.Name), n: ns.joined}
	t.Cleanup(func() { n.showLogs(t) })
	for _, step := range []func(context.Context) error{n.write, n.startMachine, n.connect, n.startContainerd, n.startKubelet, n.register} {
		if err := step(t.Context()); err != nil {
			t.Fatalf("node %s: %v", n.Name, err)
		}
	}
	return n
}

// Restart kills everything on the machine at once, as a power failure does, and starts it again. Its disks keep their
// content.
func (n *Node) Restart(t testing.TB) {
	t.Helper()
	n.kill(n.kubelet)
	n.kill(n.containerd)
	if err := wait(t.Context(), "end all processes of "+n.Name, n.killRest); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(context.Context) error{n.startContainerd, n.startKubelet} {
		if err := step(t.Context()); err != nil {
			t.Fatalf("node %s: %v", n.Name, err)
		}
	}
}

// RestartKubelet restarts only the kubelet; pods continue.
func (n *Node) RestartKubelet(t testing.TB) {
	t.Helper()
	n.kill(n.kubelet)
	if err := n.startKubelet(t.Context()); err != nil {
		t.Fatalf("node %s: %v", n.Name, err)
	}
}

// Write writes a file of the node; nil removes it.
func (n *Node) Write(t testing.TB, path string, data []byte) {
	t.Helper()
	cmd := n.command("rm", "-f", path)
	if data != nil {
		cmd = n.command("tee", path)
		cmd.Stdin = bytes.NewReader(data)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("node %s: %s: %v\n%s", n.Name, path, err, out)
	}
}

// MakeRoom ends the machine's own pod.
func (n *Node) MakeRoom(t testing.TB) {
	t.Helper()
	if err := os.Remove(n.path(own)); err != nil {
		t.Fatal(err)
	}
}

// Hosts returns the directory of hosts.toml files, REGISTRY/hosts.toml, that its runtime reads at each pull.
func (n *Node) Hosts() string { return n.path("certs.d") }

func (n *Node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *Node) address() string { return fmt.Sprintf("192.0.2.%d", 9+n.n) }

// group is the node's control group, below the world's.
func (n *Node) group() string {
	return "/" + filepath.Base(os.Getenv(inside)) + "/" + n.Name
}

func (n *Node) startMachine(ctx context.Context) error {
	n.namespaces = exec.Command("bash", "-c", machine, "machine", n.dir)
	n.namespaces.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	log, err := n.log("machine")
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	n.namespaces.Stdout, n.namespaces.Stderr = log, log
	if err := n.namespaces.Start(); err != nil {
		return err
	}
	return wait(ctx, "start the machine", func() error {
		said, err := os.ReadFile(log.Name())
		if err == nil && !bytes.Contains(said, []byte("ready\n")) {
			err = fmt.Errorf("not ready: %s", said)
		}
		return err
	})
}

func (n *Node) connect(ctx context.Context) error {
	pid, at := strconv.Itoa(n.namespaces.Process.Pid), fmt.Sprintf("veth%d", n.n)
	for _, words := range []string{
		"ip link add " + at + " type veth peer name eth0 netns " + pid,
		"ip link set " + at + " master vdo0 up",
		"nsenter -t " + pid + " --net ip addr add " + n.address() + "/24 dev eth0",
		"nsenter -t " + pid + " --net ip link set eth0 up",
		"nsenter -t " + pid + " --net ip route add default via " + Address,
	} {
		args := strings.Fields(words)
		if _, err := new(shell.Shell).Run(ctx, args[0], args[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// command returns a command that runs on the node.
func (n *Node) command(name string, args ...string) *exec.Cmd {
	pid := strconv.Itoa(n.namespaces.Process.Pid)
	return exec.Command("nsenter", append([]string{"-t", pid, "--net", "--mount", "--", name}, args...)...)
}

// daemon starts a program on the node; its output goes to a file of its name.
func (n *Node) daemon(as, name string, args ...string) (*exec.Cmd, error) {
	log, err := n.log(as)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := n.command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd, cmd.Start()
}

func (n *Node) log(name string) (*os.File, error) {
	return os.OpenFile(n.path(name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

func (n *Node) startContainerd(ctx context.Context) (err error) {
	if n.containerd, err = n.daemon("containerd", "containerd", "--config", n.path("containerd.toml")); err != nil {
		return err
	}
	socket := fmt.Sprintf("/proc/%d/root/run/containerd/containerd.sock", n.namespaces.Process.Pid)
	return wait(ctx, "start containerd", func() error { return listens(socket) })
}

func (n *Node) startKubelet(context.Context) (err error) {
	n.kubelet, err = n.daemon("kubelet", n.nodes.kubelet,
		"--config", n.path("kubelet.yaml"), "--kubeconfig", n.path("kubeconfig"), "--cert-dir", n.path("pki"),
		"--hostname-override", n.Name, "--node-ip", n.address(), "--cloud-provider", "external",
		"--root-dir", "/var/lib/kubelet", "--v", "1")
	return err
}

func (n *Node) kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// killRest kills the machine's other processes: shims, which have its mounts, and containers, which are in its
// control group.
func (n *Node) killRest() error {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", n.namespaces.Process.Pid))
	if err != nil {
		return err
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	left := 0
	for _, p := range processes {
		pid, _ := strconv.Atoi(filepath.Base(p)) //nolint:errcheck // by the pattern
		mounts, err := os.Readlink(p + "/ns/mnt")
		if err != nil || pid == n.namespaces.Process.Pid {
			continue // it has ended, or is the machine itself
		}
		in, _ := os.ReadFile(p + "/cgroup") //nolint:errcheck // it has ended
		if mounts == own || bytes.Contains(in, []byte(n.group()+"/")) {
			left++
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if left > 0 {
		return fmt.Errorf("%d processes", left)
	}
	return nil
}

// register waits until the node is Ready, and labels it: a kubelet may not do that.
func (n *Node) register(ctx context.Context) error {
	if err := n.nodes.opts.Cluster.AwaitReady(ctx, n.Name); err != nil || !n.ControlPlane {
		return err
	}
	client, err := kubernetes.NewForConfig(n.nodes.opts.Cluster.Config())
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`), metav1.PatchOptions{})
	return err
}

func (n *Node) showLogs(t testing.TB) {
	if !t.Failed() {
		return
	}
	for _, name := range []string{"machine", "containerd", "kubelet"} {
		if text, err := os.ReadFile(n.path(name + ".log")); err == nil {
			t.Logf("node %s: %s's log ends with:\n%s", n.Name, name, text[max(0, len(text)-8<<10):])
		}
	}
}
