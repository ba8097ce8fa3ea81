package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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

// The first signal ends the wait for a password, and the terminal shows again what is
// typed.
func TestASignalEndsTheWaitForAPassword(t *testing.T) {
	w := newWorld(t, t.TempDir())
	master := must(os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	defer master.Close() //nolint:errcheck // of a test
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n := must(unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN))(t)
	terminal := must(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0))(t)
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
	state := must(unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS))(t)
	return state.Lflag&unix.ECHO != 0
}
