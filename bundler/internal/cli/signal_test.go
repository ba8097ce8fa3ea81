package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// told is output that a test waits for.
type told struct {
	mu    sync.Mutex
	text  bytes.Buffer
	want  string
	found chan struct{}
}

func waitFor(want string) *told { return &told{want: want, found: make(chan struct{})} }

func (w *told) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := bytes.Contains(w.text.Bytes(), []byte(w.want))
	w.text.Write(p)
	if !before && bytes.Contains(w.text.Bytes(), []byte(w.want)) {
		close(w.found)
	}
	return len(p), nil
}

// The first signal ends the wait for a credential helper that hangs.
func TestASignalEndsTheWaitForACredentialHelper(t *testing.T) {
	w := newWorldOf(t, t.TempDir(), registry.Options{}, registry.Options{TLS: true, Auth: registry.Basic})
	w.write(t, "login/config.json", []byte(`{"credsStore":"hangs"}`))
	w.write(t, "bin/docker-credential-hangs", []byte("#!/bin/sh\necho asked >\"$REACHED\"\nsleep 30\n"))
	require.NoError(t, os.Chmod(filepath.Join(w.dir, "bin/docker-credential-hangs"), 0o700)) //nolint:gosec // a program
	reached := filepath.Join(w.dir, "reached")
	require.NoError(t, unix.Mkfifo(reached, 0o600))
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd, _, stderr := w.command(t.Context(), "list", w.mirror.Host+"/vdo/drivers", "--ca-file", "ca.crt")
		cmd.Env = append(cmd.Env, "PATH="+filepath.Join(w.dir, "bin")+":"+os.Getenv("PATH"), "REACHED="+reached)
		require.NoError(t, cmd.Start())
		asked, err := os.ReadFile(reached)
		require.NoError(t, err)
		require.Equal(t, "asked\n", string(asked))
		require.NoError(t, cmd.Process.Signal(signal))
		_ = cmd.Wait() // the code says it
		require.Equal(t, 130, cmd.ProcessState.ExitCode(), stderr.String())
	}
}

// The first signal ends the wait for a password, and the terminal shows again what is
// typed.
func TestASignalEndsTheWaitForAPassword(t *testing.T) {
	w := newWorld(t, t.TempDir())
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	defer master.Close() //nolint:errcheck // of a test
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	defer terminal.Close() //nolint:errcheck // of a test

	cmd, _, _ := w.command(t.Context(), "keygen", "-o", "k")
	for i, e := range cmd.Env {
		if len(e) > 15 && e[:15] == "COSIGN_PASSWORD" {
			cmd.Env[i] = "NO" + e
		}
	}
	prompt := waitFor("Password for k.key: ")
	cmd.Stdin, cmd.Stderr = terminal, prompt
	require.NoError(t, cmd.Start())
	<-prompt.found
	require.Eventually(t, func() bool { return !echoes(t, terminal) }, time.Minute, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait() // the code says it
	require.Equal(t, 130, cmd.ProcessState.ExitCode(), prompt.text.String())
	require.True(t, echoes(t, terminal))
}

func echoes(t *testing.T, terminal *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	require.NoError(t, err)
	return state.Lflag&unix.ECHO != 0
}
