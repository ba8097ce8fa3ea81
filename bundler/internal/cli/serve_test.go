package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
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

// A served bundle is a bundle in a registry: it can be verified, inspected and
// pushed on, and gives the same digest.
func TestServedBundleIsAsGoodAsTheArchive(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.key(t, "k")
	w.must(t, "lock", "@up", "-q", "--release", "csi@3.5.1", "-o", "old.yaml")
	w.must(t, "pull", "@up", "-q", "--lock", "old.yaml", "-o", "old.tar", "--volume-size", "300kB")
	pull := []string{"pull", "@up", "--sign-key", "k.key", "-o"}
	for src, c := range map[string]struct{ pull, serve []string }{
		"a.tar": {append(pull, "a.tar"), nil},
		"d.tar": {append(pull, "d.tar", "--base", "old.tar.parts"), []string{"--base", "old.tar.parts"}},
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
