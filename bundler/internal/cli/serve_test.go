package cli_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

// serving is a running `vdo-bundle serve`.
type serving struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	Address, Reference,
	Root string
	TLS, Login   bool
	Bundles      []struct{ Reference, Root string }
	Repositories []string
}

// serve starts it, and waits until it answers.
func (w *world) serve(t *testing.T, args ...string) *serving {
	t.Helper()
	cmd, _, stderr := w.command(t.Context(), append([]string{"serve", "--format", "json", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Stdout = nil
	out := must(cmd.StdoutPipe())(t)
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
	require.LessOrEqual(t, bytes.Count(s.stderr.Bytes(), []byte("\n")), 1, "no more than that signatures are not checked")
}

// Several bundles, with images of the same names: each blob comes from the bundle that has it.
func TestSeveralBundlesAreServed(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.must(t, "lock", "@up", "-q", "--release", "csi@3.5.1", "-o", "old.yaml")
	w.must(t, "pull", "@up", "-q", "--lock", "old.yaml", "-o", "old.tar", "--volume-size", "300kB")
	w.must(t, "pull", "@up", "-q", "-o", "a.tar")
	s := w.serve(t, "a.tar", "old.tar.parts", "--as", "site/new:1", "--as", "site/old:1",
		"--listen", ":0", "--allow-plain-http")
	_, port, err := net.SplitHostPort(s.Address)
	require.NoError(t, err)
	require.Len(t, s.Bundles, 2)
	require.Equal(t, s.Reference, s.Bundles[0].Reference)
	for n, as := range []string{"site/new", "site/old"} {
		require.Equal(t, must(os.Hostname())(t)+":"+port+"/"+as+"@"+s.Bundles[n].Root, s.Bundles[n].Reference)
		w.must(t, "copy", "localhost:"+port+"/"+as+":1", "oci:"+path.Base(as), "--plain-http", "localhost:"+port)
		require.Contains(t, s.Repositories, as+"/registry.test/csi/driver")
	}
	s.end(t)
}

func TestARenewedCertificateIsServed(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.must(t, "pull", "@up", "-q", "-o", "a.tar")
	ca := pki.Root(t, "site")
	of := pki.Spec{DNS: []string{"localhost"}}
	first, second := ca.Issue(t, of), ca.Issue(t, of)
	w.write(t, "host.crt", first.PEM())
	w.write(t, "host.key", first.KeyPEM())
	s := w.serve(t, "a.tar", "--tls-cert", "host.crt", "--tls-key", "host.key")
	serves := func(want pki.Authority) {
		conn, err := tls.Dial("tcp", s.Address, &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"})
		require.NoError(t, err)
		require.Equal(t, want.Certificate.Raw, conn.ConnectionState().PeerCertificates[0].Raw)
		require.NoError(t, conn.Close())
	}
	serves(first)
	w.write(t, "host.crt", second.PEM())
	serves(first) // its key is not there yet
	w.write(t, "host.key", second.KeyPEM())
	serves(second)
	s.end(t)
}
