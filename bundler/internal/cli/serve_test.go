package cli_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/archive"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// serving is a running `vdo-bundle serve`.
type serving struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	Address, Reference,
	Root string
	TLS, Login   bool
	Repositories []string
}

// serve starts it, and waits until it answers.
func (w *world) serve(t *testing.T, args ...string) *serving {
	t.Helper()
	cmd, _, stderr := w.command(t.Context(), append([]string{"serve", "--format", "json", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	s := &serving{cmd: cmd, stderr: stderr}
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(s); err != nil {
		_ = cmd.Wait() // what it wrote is read once it has ended
		require.NoError(t, err, stderr.String())
	}
	return s
}

// end ends it as systemd does.
func (s *serving) end(t *testing.T) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, s.cmd.Wait(), s.stderr.String())
	require.Empty(t, s.stderr.String())
}

// What is being sent when it is ended comes to its end, for as long as --grace says.
func TestServeEndsWhenWhatIsBeingSentHasCome(t *testing.T) {
	w := newWorld(t, t.TempDir())
	b := bundles.New(t, bundles.Options{Seed: 180, PlainSize: 16 << 20, Layers: 1}) // more than sockets hold
	to, err := archive.CreateFile(filepath.Join(w.dir, "b.tar"), archive.Options{})
	require.NoError(t, err)
	missing, err := to.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	for _, d := range missing {
		require.NoError(t, to.Put(t.Context(), d, b.Store.Opener(t.Context(), d)))
	}
	require.NoError(t, to.Commit(t.Context()))
	large := slices.MaxFunc(missing, func(a, b ocispec.Descriptor) int { return cmp.Compare(a.Size, b.Size) }).Digest

	s := w.serve(t, "b.tar")
	resp, err := http.Get("http://" + s.Address + "/v2/vdo/drivers/blobs/" + large.String())
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // of a test
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", s.Address)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, time.Minute, 20*time.Millisecond, "it listens no longer")
	time.Sleep(tier.Pick(0, 7*time.Second)) // longer than other commands are waited for
	got := digest.SHA256.Digester()
	_, err = io.Copy(got.Hash(), resp.Body)
	require.NoError(t, err)
	require.Equal(t, large, got.Digest())
	require.NoError(t, s.cmd.Wait(), s.stderr.String())
}

// A served bundle is a bundle in a registry: it can be verified, inspected and
// pushed on, and gives the same digest.
func TestServedBundleIsAsGoodAsTheArchive(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.key(t, "k")
	w.must(t, "lock", "@up", "-q", "--release", "csi@3.5.1", "-o", "old.yaml")
	w.must(t, "pull", "@up", "-q", "--lock", "old.yaml", "-o", "old.tar", "--volume-size", "300kB")
	pull := []string{"pull", "@up", "--sign-key", "k.key", "-o"}
	for src, c := range map[string]struct{ pull, serve []string }{
		"a.tar":       {append(pull, "a.tar"), nil},
		"oci:a":       {append(pull, "oci:a"), nil},
		"p.tar.parts": {append(pull, "p.tar", "--volume-size", "300kB"), nil},
		"d.tar":       {append(pull, "d.tar", "--base", "old.tar.parts"), []string{"--base", "old.tar.parts"}},
		"oci:d":       {append(pull, "oci:d", "--base", "old.tar.parts"), []string{"--base", "old.tar"}},
	} {
		t.Run(src, func(t *testing.T) {
			root, _, _ := strings.Cut(w.must(t, c.pull...), " ")
			s := w.serve(t, append(c.serve, src, "--key", "k.pub", "--as", "site/boot:7")...)
			require.Equal(t, root, s.Root)
			require.Equal(t, s.Address+"/site/boot@"+root, s.Reference)
			require.False(t, s.TLS || s.Login)
			require.Contains(t, s.Repositories, "site/boot/registry.test/csi/driver")
			w.must(t, "verify", s.Address+"/site/boot:7", "--key", "k.pub", "--plain-http", s.Address)
			require.NotContains(t, w.must(t, "inspect", s.Reference, "--plain-http", s.Address), "delta")
			pushed := w.must(t, "push", s.Reference, w.mirror.Host+"/vdo/on-"+filepath.Base(strings.ReplaceAll(src, ":", "-"))+":1", "--plain-http", s.Address, "--ca-file", "ca.crt", "--key", "k.pub")
			require.Contains(t, pushed, "@"+root)
			s.end(t)
		})
	}
}

// Other tools pull the bundle and its images, over TLS and with a login.
func TestServedBundleOverTLSWithALogin(t *testing.T) {
	skopeo := toolchain.Installed(t, "skopeo")
	w := newWorld(t, t.TempDir())
	cert, key, err := w.mirror.Certificate()
	require.NoError(t, err)
	hash, err := bcrypt.GenerateFromPassword([]byte(w.mirror.Password), bcrypt.MinCost)
	require.NoError(t, err)
	w.write(t, "tls/host.crt", cert)
	w.write(t, "tls/host.key", key)
	w.write(t, "certs/ca.crt", w.mirror.CA())
	w.write(t, "users", fmt.Appendf(nil, "%s:%s\n", w.mirror.Username, hash))
	w.must(t, "pull", "@up", "-o", "a.tar")
	s := w.serve(t, "a.tar", "--tls-cert", "tls/host.crt", "--tls-key", "tls/host.key", "--htpasswd", "users")
	require.True(t, s.TLS && s.Login)

	copied := func(credentials ...string) (string, error) {
		args := append([]string{"--insecure-policy", "copy", "--all", "--src-cert-dir", filepath.Join(w.dir, "certs")}, credentials...)
		cmd := exec.CommandContext(t.Context(), skopeo, append(args, "docker://"+s.Address+"/vdo/drivers/registry.test/csi/driver:v3.5.1", "oci:"+w.dir+"/copy:1")...)
		cmd.Env = append(os.Environ(), "REGISTRY_AUTH_FILE=/nonexistent", "HOME="+w.dir)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := copied()
	require.Error(t, err)
	require.Contains(t, out, "nauthorized")
	out, err = copied("--src-creds", w.mirror.Username+":"+w.mirror.Password)
	require.NoError(t, err, out)

	cmd, _, stderr := w.command(t.Context(), "inspect", s.Reference, "--ca-file", "ca.crt")
	require.Error(t, cmd.Run())
	require.Equal(t, 6, cmd.ProcessState.ExitCode(), stderr.String())
	s.end(t)
}
