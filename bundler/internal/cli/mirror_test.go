package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

const driver = "registry.test/csi/driver:v3.5.1"

// pushPaths fills the mirror with a bundle and its images under their upstream names.
func (w *world) pushPaths(t *testing.T) {
	t.Helper()
	w.write(t, "certs/ca.crt", w.mirror.CA())
	w.write(t, "conf.d/50-vdo.conf", nil)
	w.key(t, "k")
	w.must(t, "pull", "@up", "--sign-key", "k.key", "-o", "a.tar")
	w.must(t, "push", "a.tar", w.mirror.Host+"/vdo/drivers:1", "--layout", "paths", "--ca-file", "ca.crt")
}

func TestPushWithPathsPutsEveryImageUnderItsUpstreamName(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.pushPaths(t)
	for name, want := range map[string]string{
		"registry.test/cloud/ccm:v1.34.0": "x/cloud/ccm:v1.34.0", driver: "x/csi/driver:v3.5.1", "registry.test/csi/sidecar:v1": "x/csi/sidecar:v1",
		"registry.test/csi/sidecar:v2": "x/csi/sidecar:v2", "k8s.gcr.io/snap/controller:v8.2.0": "x/snap/controller:v8.2.0",
	} {
		upstream := w.skopeo(t, "inspect", "--raw", "--tls-verify=false", "docker://"+w.upstream.Host+"/"+want)
		mirrored := w.skopeo(t, "inspect", "--raw", "--cert-dir", filepath.Join(w.dir, "certs"), "--authfile", filepath.Join(w.dir, "login/config.json"), "docker://"+w.mirror.Host+"/vdo/drivers/"+name)
		require.Equal(t, upstream, mirrored, name)
	}
	for _, r := range w.mirror.Requests() {
		if strings.HasPrefix(r.Path, "/v2/vdo/drivers/") && strings.Contains(r.Path, "/blobs/") && !strings.HasPrefix(r.Path, "/v2/vdo/drivers/blobs/") {
			require.Zero(t, r.Received, "%s %s: what the bundle's repository has is mounted", r.Method, r.Path)
		}
	}
	// Again, there is nothing to send.
	w.mirror.ForgetRequests()
	w.must(t, "push", "a.tar", w.mirror.Host+"/vdo/drivers:1", "--layout", "paths", "--ca-file", "ca.crt")
	require.Zero(t, w.mirror.Count("POST", "/blobs/uploads/"))
	require.Zero(t, w.mirror.Count("PUT", "/registry.test/"))
}

func (w *world) skopeo(t *testing.T, args ...string) string {
	cmd := exec.CommandContext(t.Context(), toolchain.Installed(t, "skopeo"), append([]string{"--insecure-policy", "--registries-conf", filepath.Join(w.dir, "conf.d", "50-vdo.conf")}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+w.dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	return string(out)
}

// Debian's containerd, given hosts.toml, pulls an image by its upstream name from the
// mirror, over TLS and with its login; upstream does not exist.
func TestContainerdPullsByTheUpstreamName(t *testing.T) {
	w := newWorld(t, t.TempDir())
	ctr := startContainerd(t)
	w.pushPaths(t)
	w.write(t, "node/ca.crt", w.mirror.CA())
	for _, mode := range [][]string{nil, {"--mirror-only", "--replace"}} {
		t.Run(strings.Join(mode, ""), func(t *testing.T) {
			certs := filepath.Join(w.dir, "certs.d"+strings.Join(mode, ""))
			args := append([]string{"mirror-config", "a.tar", w.mirror.Host + "/vdo/drivers", "--runtime", "containerd", "-o", certs,
				"--node-ca", filepath.Join(w.dir, "node/ca.crt"), "--with-login"}, mode...)
			out := w.must(t, args...)
			require.Equal(t, certs+"/k8s.gcr.io/hosts.toml\n"+certs+"/registry.test/hosts.toml\n", out)
			info := must(os.Stat(certs + "/registry.test/hosts.toml"))(t)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

			w.mirror.ForgetRequests()
			for _, name := range []string{driver, "registry.test/csi/sidecar:v2", "k8s.gcr.io/snap/controller:v8.2.0"} {
				output, err := ctr("images", "pull", "--hosts-dir", certs, "--snapshotter", "native", "--platform", "linux/amd64", name)
				require.NoError(t, err, output)
			}
			list, err := ctr("images", "ls")
			require.NoError(t, err, list)
			require.Contains(t, list, driver)
			require.Positive(t, w.mirror.Count("", "/v2/vdo/drivers/registry.test/csi/driver/manifests/"))
			output, err := ctr("images", "rm", driver, "registry.test/csi/sidecar:v2", "k8s.gcr.io/snap/controller:v8.2.0")
			require.NoError(t, err, output)
		})
	}
	// Without the login there is nothing.
	certs := filepath.Join(w.dir, "no-login")
	w.must(t, "mirror-config", "a.tar", w.mirror.Host+"/vdo/drivers", "--runtime", "containerd", "-o", certs, "--node-ca", filepath.Join(w.dir, "node/ca.crt"), "--mirror-only")
	output, err := ctr("images", "pull", "--hosts-dir", certs, "--snapshotter", "native", "--platform", "linux/arm64", driver)
	require.Error(t, err, output)
}

// startContainerd runs a containerd of the test's own, and returns how to speak to it.
func startContainerd(t *testing.T) func(args ...string) (string, error) {
	t.Helper()
	daemon, client := toolchain.Installed(t, "containerd"), toolchain.Installed(t, "ctr")
	if os.Geteuid() != 0 {
		t.Skip("containerd needs root")
	}
	dir := must(os.MkdirTemp("", "ctd"))(t) // sockets have short names
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := "version = 2\nroot = \"" + dir + "/root\"\nstate = \"" + dir + "/state\"\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\n  address = \"" + dir + "/c.sock\"\n"
	require.NoError(t, os.WriteFile(dir+"/config.toml", []byte(config), 0o600))
	var log bytes.Buffer
	cmd := exec.Command(daemon, "--config", dir+"/config.toml")
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	run := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, client, append([]string{"-a", dir + "/c.sock"}, args...)...).CombinedOutput()
		return string(out), err
	}
	require.Eventually(t, func() bool { _, err := run("version"); return err == nil }, time.Minute, 50*time.Millisecond, "%s", &log)
	return run
}

// skopeo reads registries.conf as CRI-O does: with the same library.
func TestCRIOsLibraryPullsByTheUpstreamName(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.pushPaths(t)
	want := w.skopeo(t, "inspect", "--raw", "--tls-verify=false", "docker://"+w.upstream.Host+"/x/csi/driver:v3.5.1")
	for _, mode := range [][]string{nil, {"--mirror-only", "--replace"}} {
		require.Equal(t, w.dir+"/conf.d/50-vdo.conf\n", w.must(t, append([]string{"mirror-config", "a.tar", w.mirror.Host + "/vdo/drivers", "--runtime", "crio", "-o", w.dir + "/conf.d"}, mode...)...))
		got := w.skopeo(t, "inspect", "--raw", "--cert-dir", filepath.Join(w.dir, "certs"), "--authfile", filepath.Join(w.dir, "login/config.json"), "docker://"+driver)
		require.Equal(t, want, got)
	}
}

// A node can be led to a served bundle as to a mirror: the layout is the same.
func TestContainerdPullsFromAServedBundle(t *testing.T) {
	w := newWorld(t, t.TempDir())
	ctr := startContainerd(t)
	w.must(t, "pull", "@up", "-o", "a.tar")
	cert, err := w.mirror.Certificate()
	require.NoError(t, err)
	hash := must(bcrypt.GenerateFromPassword([]byte(w.mirror.Password), bcrypt.MinCost))(t)
	w.write(t, "host.crt", cert.PEM())
	w.write(t, "host.key", cert.KeyPEM())
	w.write(t, "users", fmt.Appendf(nil, "%s:%s\n", w.mirror.Username, hash))
	s := w.serve(t, "a.tar", "--tls-cert", "host.crt", "--tls-key", "host.key", "--htpasswd", "users")
	w.write(t, "login/config.json", bytes.ReplaceAll(w.mirror.DockerConfig(), []byte(w.mirror.Host), []byte(s.Address)))
	certs := filepath.Join(w.dir, "certs.d")
	w.must(t, "mirror-config", "a.tar", s.Address+"/vdo/drivers", "--runtime", "containerd", "-o", certs, "--node-ca", filepath.Join(w.dir, "ca.crt"), "--with-login", "--mirror-only")
	for _, name := range []string{driver, "registry.test/cloud/ccm:v1.34.0"} {
		output, err := ctr("images", "pull", "--hosts-dir", certs, "--snapshotter", "native", "--platform", "linux/amd64", name)
		require.NoError(t, err, output)
	}
	s.end(t)
}
