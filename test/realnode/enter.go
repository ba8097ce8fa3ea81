package realnode

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// inside is the environment variable with the world's directory, set inside a world.
const inside = "VDO_REALNODE"

const patience = 3 * time.Minute

// first is the first process of a world. It makes the network, runs the test, and reaps processes whose parents have
// ended.
const first = `set -e
mount --make-rprivate /
mount -t proc proc /proc
ip link set lo up
ip link add vdo0 type bridge
ip addr add ` + Address + `/24 dev vdo0
ip link set vdo0 up
"$@" & wait $!`

// Enter runs the calling test again in a world of its own, then returns false, and the caller returns. In that world
// it returns true. If parts are missing it skips the test, in CI too: a machine may lack the permissions. It first
// builds the world's external programs.
func Enter(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		return true
	}
	tier.Later(t, tier.All)
	if why := Missing(); why != nil {
		t.Skipf("no real nodes: %v", why)
	}
	if err := build(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	out := io.Writer(&log)
	if testing.Verbose() { // it is printed at once, and not again
		out = io.MultiWriter(&log, os.Stderr)
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	err = enter(ctx, dir, out, "-test.v", "-test.run=^"+t.Name()+"$", "-test.timeout="+left(t).String())
	interrupted := ctx.Err() != nil
	stop()
	if err := errors.Join(removeGroups(dir), os.RemoveAll(dir)); err != nil {
		t.Error(err)
	}
	switch {
	case interrupted:
		t.Fatal("interrupted; nothing is left of it")
	case err != nil && testing.Verbose():
		t.Fatalf("in the world of real nodes: %v", err)
	case err != nil:
		t.Fatalf("in the world of real nodes: %v\n%s", err, log.Bytes())
	case !strings.Contains(log.String(), "--- PASS: "+t.Name()):
		t.Fatalf("in the world of real nodes it did not run:\n%s", log.Bytes())
	}
	return false
}

// left returns the time limit of the world, somewhat before the test's own.
func left(t *testing.T) time.Duration {
	deadline, ok := t.Deadline()
	if !ok {
		return 0
	}
	return max(time.Until(deadline)-30*time.Second, time.Second).Round(time.Second)
}

// build builds the programs that need a network to be built.
func build(ctx context.Context) error {
	_, err := toolchain.Builder{Progress: os.Stderr}.Ensure(ctx, append(toolchain.ForTests(), Tool())...)
	return err
}

// enter runs this program again as a world with the directory dir. The program and its processes end with ctx, and
// with this process.
func enter(ctx context.Context, dir string, out io.Writer, args ...string) error {
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o700); err != nil {
		return err
	}
	// The kernel sends the parent-death signal when the forking thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "bash", append([]string{"-c", first, "realnode", program}, args...)...)
	cmd.Env = append(os.Environ(), inside+"="+dir, "TMPDIR="+filepath.Join(dir, "tmp"))
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGKILL, Setpgid: true,
	}
	cmd.WaitDelay = 5 * time.Second
	return errors.Join(cmd.Run(), ctx.Err())
}
