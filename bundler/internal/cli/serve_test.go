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
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

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

// exitCode runs a command to its end.
func exitCode(t *testing.T, cmd *exec.Cmd) int {
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil {
		require.ErrorAs(t, err, &exit)
	}
	return cmd.ProcessState.ExitCode()
}

// Whatever is named and is no regular file, the program says so, and does not wait for
// someone to write into it.
func TestAPipeInThePlaceOfAFileIsNamed(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.key(t, "k")
	w.must(t, "pull", "@up", "-q", "--sign-key", "k.key", "-o", "a.tar")
	w.must(t, "pull", "@up", "-q", "-o", "oci:layout")
	require.NoError(t, syscall.Mkfifo(filepath.Join(w.dir, "pipe"), 0o600))
	require.NoError(t, syscall.Mkfifo(filepath.Join(w.dir, "pipe.tar"), 0o600))
	require.NoError(t, os.Remove(filepath.Join(w.dir, "layout", "index.json")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(w.dir, "layout", "index.json"), 0o600))
	to := w.mirror.Host + "/vdo/drivers:1"
	for _, args := range [][]string{
		{"inspect", "pipe.tar"},
		{"verify", "a.tar", "--key", "/dev/zero"},
		{"verify", "a.tar", "--policy", "pipe"},
		{"sign", "oci:layout", "--key", "k.key"},
		{"push", "a.tar", to, "--ca-file", "ca.crt", "--hosts-config", "pipe"},
		{"split", "pipe.tar", "--volume-size", "1MB"},
		{"pull", "@up", "--base", "pipe", "-o", "b.tar"},
		{"pull", "@up", "--verify-upstream", "pipe", "-o", "b.tar"},
		{"pull", "@up", "-o", "pipe.tar"},
		{"lock", "--matrix", "pipe"},
		{"keygen", "-o", "new", "--key-password-file", "pipe"},
	} {
		cmd, _, stderr := w.command(t.Context(), args...)
		code := exitCode(t, cmd)
		require.Contains(t, []int{2, 7}, code, "%v: %s", args, stderr)
		require.Regexp(t, `^error: .*(pipe|/dev/zero|layout).*(not a regular file|not a directory)`, stderr.String(), "%v", args)
	}
	require.NoFileExists(t, filepath.Join(w.dir, "b.tar"))
}

// A pipe that the caller hands over is read; and where no one writes it, the first
// signal ends the program.
func TestAHandedOverPipeIsReadAndTheFirstSignalEndsItsWait(t *testing.T) {
	w := newWorld(t, t.TempDir())
	lock := w.must(t, "lock", "@up", "-q")
	out, err := w.typed(t, lock, "pull", "@up", "-q", "--lock", "/dev/stdin", "-o", "a.tar")
	require.NoError(t, err, out)

	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer write.Close()
	defer read.Close()
	cmd, _, stderr := w.command(t.Context(), "pull", "@up", "--lock", "/dev/stdin", "-o", "b.tar")
	cmd.Stdin = read
	require.NoError(t, cmd.Start())
	_, err = write.WriteString("# half of a lock\n") // which is never ended
	require.NoError(t, err)
	require.Eventually(t, func() bool { // it has read that, and waits for more
		left, err := unix.IoctlGetInt(int(read.Fd()), unix.TIOCINQ)
		return err == nil && left == 0
	}, time.Minute, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, cmd.Wait())
	require.Equal(t, 130, cmd.ProcessState.ExitCode(), stderr)
	require.Contains(t, stderr.String(), "interrupted by SIGTERM")
}

// Standard output that takes nothing is the place's fault, whatever is printed; what
// no one has been told of is not left behind.
func TestAFullStandardOutputIsStorage(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	w := newWorld(t, t.TempDir())
	w.key(t, "k")
	w.must(t, "lock", "@up", "-q", "-o", "lock.yaml")
	w.must(t, "pull", "@up", "-q", "--lock", "lock.yaml", "--sign-key", "k.key", "-o", "a.tar")
	before := w.names(t)
	for _, args := range [][]string{
		{"version"}, {"completion", "bash"}, {"inspect", "--help"},
		{"inspect", "a.tar", "--format", "json"}, {"lock", "@up", "-q"}, {"diff", "a.tar", "a.tar"},
		{"pull", "@up", "-q", "--lock", "lock.yaml", "-o", "-"}, {"keygen", "-o", "new"},
	} {
		full := must(os.OpenFile("/dev/full", os.O_WRONLY, 0))(t)
		cmd, _, stderr := w.command(t.Context(), args...)
		cmd.Stdout = full
		code := exitCode(t, cmd)
		require.NoError(t, full.Close())
		if code == 2 || code == 4 || code == 8 { // it had nothing to print
			require.NotContains(t, stderr.String(), "defect", "%v", args)
			continue
		}
		require.Equal(t, 7, code, "%v: %s", args, stderr)
		require.Contains(t, stderr.String(), "write standard output: no space left on device", "%v", args)
	}
	require.ElementsMatch(t, before, w.names(t), "nothing is left behind")
}
