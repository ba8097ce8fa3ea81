package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// exitCode runs a command to its end.
func exitCode(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
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
