package cli_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
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
// somebody to write into it.
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
		{"inspect", "/dev/zero"},
		{"inspect", "oci:layout"},
		{"inspect", "oci:pipe"},
		{"verify", "pipe.tar", "--key", "k.pub"},
		{"verify", "a.tar", "--key", "pipe"},
		{"verify", "a.tar", "--key", "/dev/zero"},
		{"verify", "a.tar", "--policy", "pipe"},
		{"sign", "pipe.tar", "--key", "k.key"},
		{"sign", "a.tar", "--key", "pipe"},
		{"sign", "oci:layout", "--key", "k.key"},
		{"push", "pipe.tar", to, "--ca-file", "ca.crt"},
		{"push", "a.tar", to, "--ca-file", "pipe"},
		{"push", "a.tar", to, "--ca-file", "ca.crt", "--hosts-config", "pipe"},
		{"split", "pipe.tar", "--volume-size", "1MB"},
		{"pull", "@up", "--lock", "pipe", "-o", "b.tar"},
		{"pull", "@up", "--base", "pipe.tar", "-o", "b.tar"},
		{"pull", "@up", "--base", "pipe", "-o", "b.tar"},
		{"pull", "@up", "--sign-key", "pipe", "-o", "b.tar"},
		{"pull", "@up", "--verify-upstream", "pipe", "-o", "b.tar"},
		{"pull", "@up", "-o", "pipe.tar"},
		{"lock", "--matrix", "pipe"},
		{"serve", "pipe.tar"},
		{"keygen", "-o", "new", "--key-password-file", "pipe"},
	} {
		cmd, _, stderr := w.command(t.Context(), args...)
		code := exitCode(t, cmd)
		require.Contains(t, []int{2, 7}, code, "%v: %s", args, stderr)
		require.Regexp(t, `^error: .*(pipe|/dev/zero|layout).*(not a regular file|not a directory)`, stderr.String(), "%v", args)
	}
	require.NoFileExists(t, filepath.Join(w.dir, "b.tar"))
}

// A pipe that the caller hands over is read; and where nobody writes it, the first
// signal ends the program.
func TestAHandedOverPipeIsReadAndTheFirstSignalEndsItsWait(t *testing.T) {
	w := newWorld(t, t.TempDir())
	lock := w.must(t, "lock", "@up", "-q")
	cmd, _, stderr := w.command(t.Context(), "pull", "@up", "-q", "--lock", "/dev/stdin", "-o", "a.tar")
	cmd.Stdin = bytes.NewReader([]byte(lock))
	require.Zero(t, exitCode(t, cmd), stderr)

	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer write.Close()
	defer read.Close()
	cmd, _, stderr = w.command(t.Context(), "pull", "@up", "--lock", "/dev/stdin", "-o", "b.tar")
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
// nobody has been told of is not left behind.
func TestAFullStandardOutputIsStorage(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	w := newWorld(t, t.TempDir())
	w.key(t, "k")
	w.must(t, "lock", "@up", "-q", "-o", "lock.yaml")
	w.must(t, "pull", "@up", "-q", "--lock", "lock.yaml", "--sign-key", "k.key", "-o", "a.tar")
	before := names(w.contents(t, "."))
	for _, args := range [][]string{
		{"version"}, {"--help"}, {"inspect", "--help"}, {"inspect", "a.tar"}, {"inspect", "a.tar", "--format", "json"}, {"inspect", "a.tar", "--format", "html"},
		{"verify", "a.tar", "--key", "k.pub"}, {"lock", "@up", "-q"}, {"pull", "@up", "-q", "--lock", "lock.yaml", "-o", "-"},
		{"sbom", "a.tar"}, {"matrix", "show"}, {"diff", "a.tar", "a.tar"}, {"install-manifests", "a.tar"}, {"keygen", "-o", "new"},
		{"split", "a.tar", "--volume-size", "400kB", "-o", "s.tar", "--dry-run"},
	} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
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
	require.ElementsMatch(t, before, names(w.contents(t, ".")), "nothing is left behind")
}

// Two people sign one bundle at the same moment: what was reported as signed is signed.
func TestTwoWhoSignAtOnceBothCount(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.key(t, "anna")
	w.key(t, "ben")
	w.must(t, "pull", "@up", "-q", "-o", "want.tar")
	w.must(t, "pull", "@up", "-q", "-o", "oci:want")
	w.mkdir(t, "p")
	w.must(t, "split", "want.tar", "--volume-size", "400kB", "--parity", "1", "-o", "p/a.tar")
	for _, src := range []string{"want.tar", "oci:want", "p/a.tar.parts"} {
		for range 4 {
			var all sync.WaitGroup
			signed := map[string]bool{}
			var mu sync.Mutex
			for _, who := range []string{"anna", "ben"} {
				all.Go(func() {
					cmd, _, stderr := w.command(t.Context(), "sign", src, "--key", who+".key")
					err := cmd.Run()
					mu.Lock()
					defer mu.Unlock()
					signed[who] = err == nil
					if err != nil && cmd.ProcessState.ExitCode() != 8 {
						t.Errorf("sign %s: %v: %s", src, err, stderr)
					}
				})
			}
			all.Wait()
			require.True(t, signed["anna"] || signed["ben"], src)
			for who, ok := range signed {
				if ok {
					w.must(t, "verify", "-q", src, "--key", who+".pub")
				}
			}
		}
	}
}

// Several run the same pull at once: each ends with the bundle, or says that another
// process is writing it.
func TestTheSamePullTwiceAtOnce(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.key(t, "k")
	w.must(t, "lock", "@up", "-q", "-o", "lock.yaml")
	w.mkdir(t, "got")
	for _, dest := range [][]string{{"got/a.tar"}, {"oci:got/a"}, {"got/p.tar", "--volume-size", "400kB"}} {
		pull := append([]string{"pull", "@up", "-q", "--lock", "lock.yaml", "--sign-key", "k.key", "--provenance", "-o"}, dest...)
		for range 2 {
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					cmd, _, stderr := w.command(t.Context(), pull...)
					err := cmd.Run()
					var exit *exec.ExitError
					if err == nil {
						return
					}
					if !errors.As(err, &exit) || exit.ExitCode() != 8 || !bytes.Contains(stderr.Bytes(), []byte("another process ")) {
						t.Errorf("%v: %v: %s", dest, err, stderr)
					}
				})
			}
			all.Wait()
		}
		w.must(t, pull...)
		src := dest[0]
		if len(dest) > 1 {
			src += ".parts"
		}
		w.must(t, "verify", "-q", src, "--key", "k.pub", "--provenance")
	}
	require.NoFileExists(t, filepath.Join(w.dir, "got", "a.tar.journal"))
}
