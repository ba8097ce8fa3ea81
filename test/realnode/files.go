package realnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// own is the file of the machine's own pod, in its directory.
const own = "pods/own.yaml"

func (n *Node) write(context.Context) error {
	bin, err := plugins()
	if err != nil {
		return err
	}
	mirror := n.nodes.opts.Mirror
	files := map[string]string{
		"machine-id":      n.SystemUUID + "\n", // without firmware, a kubelet uses it as the system UUID
		"mirror-ca.crt":   string(mirror.CA()),
		"containerd.toml": n.containerdConfig(bin),
		"kubelet.yaml":    n.kubeletConfig(),
		"net.d/10-pods.conflist": fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": "cni0", "isGateway": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "198.51.100.%d/27"}]], "routes": [{"dst": "0.0.0.0/0"}]}
}]}
`, 32*(n.n-1)),
		"certs.d/" + mirror.Host + "/hosts.toml":        hosts(mirror, fmt.Sprintf("ca = %q\n", n.path("mirror-ca.crt"))),
		"certs.d/" + n.nodes.plain.Host + "/hosts.toml": hosts(n.nodes.plain, ""),
	}
	if n.Taken {
		files[own] = fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: own, namespace: default}
spec:
  priorityClassName: system-node-critical
  priority: 2000001000
  hostNetwork: true
  containers:
  - {name: c, image: %q}
`, n.nodes.pause)
	}
	errs := []error{makeGroup(n.group()), os.MkdirAll(n.path("pki"), 0o700), os.MkdirAll(filepath.Dir(n.path(own)), 0o700)}
	for name, text := range files {
		errs = append(errs, os.MkdirAll(filepath.Dir(n.path(name)), 0o700), os.WriteFile(n.path(name), []byte(text), 0o600))
	}
	return errors.Join(append(errs, n.nodes.opts.Cluster.WriteNodeKubeconfig(n.Name, n.path("kubeconfig")))...)
}

// hosts maps a registry's name to it. It names the CA twice: the runtime asks the server again for content that the
// host lacks. Without the CA there, a missing image would look like an untrusted one.
func hosts(r *registry.Registry, ca string) string {
	return fmt.Sprintf("server = %[1]q\n%[2]s[host.%[1]q]\n  capabilities = [\"pull\", \"resolve\"]\n  %[2]s", r.URL(), ca)
}

func (n *Node) containerdConfig(plugins string) string {
	return fmt.Sprintf(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true # root may lack CAP_SYS_RESOURCE
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native" # the disk is in memory; overlays are not for every kernel
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = %q
`, n.nodes.pause, plugins, n.path("net.d"), n.Hosts())
}

func (n *Node) kubeletConfig() string {
	return strings.TrimLeft(fmt.Sprintf(`
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: %q}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: %s
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
resolvConf: /dev/null
maxPods: %d
staticPodPath: %s
fileCheckFrequency: 1s
serializeImagePulls: false
nodeStatusUpdateFrequency: 2s
`, n.nodes.opts.Cluster.CAFile(), n.group(), cmp.Or(n.MaxPods, 110), filepath.Dir(n.path(own))), "\n")
}

// Missing returns which requirements of a world this machine lacks, or nil.
func Missing() error {
	var errs []error
	for _, program := range []string{"bash", "containerd", "ctr", "ip", "mount", "nsenter", "runc", "sleep"} {
		if _, err := exec.LookPath(program); err != nil {
			errs = append(errs, fmt.Errorf("%s is not installed", program))
		}
	}
	if _, err := plugins(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, rights(), writable())...)
}

// plugins returns the directory of the CNI's plug-ins.
func plugins() (string, error) {
	for _, dir := range []string{"/opt/cni/bin", "/usr/lib/cni"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("containernetworking-plugins is not installed")
}

// rights tries the needs of a world and its containers: namespaces, mounts, networks and devices.
func rights() error {
	const try = `mount -t tmpfs tmpfs /tmp && ip link add vdo0 type bridge && mknod /tmp/null c 1 3`
	out, err := exec.Command("unshare", "--pid", "--net", "--mount", "--fork", "sh", "-c", try).CombinedOutput()
	if err != nil {
		return fmt.Errorf("no right to mount, make networks and devices (CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_MKNOD): %w: %s", err, out)
	}
	return nil
}

// writable returns an error unless control groups can be made.
func writable() error {
	name := fmt.Sprintf("%stry-%d", prefix, os.Getpid())
	err := makeGroup(name)
	if err := removeGroups(name); err != nil {
		return err
	}
	if err != nil {
		return fmt.Errorf("control groups cannot be made: %w", err)
	}
	if all, err := os.ReadDir(controllers); err != nil || len(all) == 0 {
		return fmt.Errorf("no control groups in %s", controllers)
	}
	return nil
}
