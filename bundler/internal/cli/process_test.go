package cli_test

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/sigstore"
)

// command is vdo-bundle in a world, with its output kept.
func (w *world) command(ctx context.Context, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	cmd = exec.CommandContext(ctx, cmp.Or(w.program, binary), w.expand(args)...)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Dir, cmd.Stdout, cmd.Stderr = w.dir, stdout, stderr
	cmd.Env = os.Environ()
	for name, value := range w.env() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env, w.vars...)
	return cmd, stdout, stderr
}

// ends runs vdo-bundle, demands its exit code, and returns all that it says.
func (w *world) ends(t *testing.T, code int, args ...string) string {
	cmd, stdout, stderr := w.command(t.Context(), args...)
	require.Equal(t, code, exitCode(t, cmd), "%v: %s", args, stderr)
	return stdout.String() + stderr.String()
}

// must runs vdo-bundle and demands that it succeeds.
func (w *world) must(t *testing.T, args ...string) string {
	cmd, stdout, stderr := w.command(t.Context(), args...)
	require.NoError(t, cmd.Run(), stderr.String())
	return stdout.String()
}

func (w *world) read(t *testing.T, name string) []byte {
	t.Helper()
	data := must(os.ReadFile(filepath.Join(w.dir, name)))(t)
	return data
}

// The install manifests come from the program: another release of the operator may need others.
func TestLockTellsOfAnOperatorOfAnotherRelease(t *testing.T) {
	w := newWorld(t, t.TempDir())
	images.Push(t, w.upstream, "x/vdo/vdo-operator:v1.2.3", images.Spec{})
	w.program = must(os.Executable())(t)
	for version, want := range map[string]bool{"v1.2.0": true, "v1.2.3": false, "v1.2.0-5-gabc": false} {
		w.vars = []string{asVersion + "=" + version}
		said := w.ends(t, 0, "lock", "@up", "--k8s", "1.33", "-o", "-",
			"--operator", "registry.test/vdo/vdo-operator:v1.2.3")
		require.Equal(t, want, strings.Contains(said, "the install manifests are those of vdo-bundle 1.2.0"), said)
	}
}

// A signal in the middle of a pull leaves no bundle, says how to go on, and the
// next run fetches only what is missing and ends with the same bytes.
func TestInterruptedPullGoesOn(t *testing.T) {
	t.Run("file", func(t *testing.T) { interruptedPull(t, os.Interrupt, "a.tar") })
	t.Run("folder", func(t *testing.T) { interruptedPull(t, syscall.SIGTERM, "oci:a") })
	if !signal.Ignored(syscall.SIGHUP) {
		t.Run("terminal", func(t *testing.T) { interruptedPull(t, syscall.SIGHUP, "a.tar") })
	}
}

func interruptedPull(t *testing.T, sent os.Signal, dest string) {
	w := newWorld(t, t.TempDir())
	w.must(t, "lock", "@up", "-o", "lock.yaml")
	w.must(t, "pull", "@up", "--lock", "lock.yaml", "-o", "whole.tar")

	held := make(chan struct{})
	seen := make(chan string, 100)
	blocked := "/x/csi/driver/blobs/"
	w.upstream.Fail(registry.Fault{Match: registry.Match{Method: "GET", Path: blocked}, Wait: held, Seen: seen})
	w.upstream.ForgetRequests()
	cmd, _, stderr := w.command(t.Context(), "pull", "@up", "--lock", "lock.yaml", "-o", dest)
	require.NoError(t, cmd.Start())
	<-seen // a blob is on its way that will not arrive
	require.NoError(t, cmd.Process.Signal(sent))
	err := cmd.Wait()
	close(held)
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 130, exit.ExitCode(), stderr.String())
	require.Contains(t, stderr.String(), "error: interrupted by "+map[os.Signal]string{
		os.Interrupt: "Ctrl-C (SIGINT)", syscall.SIGTERM: "SIGTERM", syscall.SIGHUP: "SIGHUP",
	}[sent]+"\n")
	require.Contains(t, stderr.String(), "hint: run the same command again: it resumes")
	require.NoFileExists(t, filepath.Join(w.dir, "a.tar"))
	require.NoFileExists(t, filepath.Join(w.dir, "a", "index.json"))

	w.upstream.Heal()
	w.must(t, "pull", "@up", "--lock", "lock.yaml", "-o", dest)
	if dest == "a.tar" {
		require.True(t, bytes.Equal(w.read(t, "whole.tar"), w.read(t, "a.tar")), "the bytes differ")
	} else {
		require.Equal(t, w.must(t, "inspect", "whole.tar", "--format", "json"), w.must(t, "inspect", dest, "--format", "json"))
	}
}

// The memory of a pull, a verification and a push does not grow with the layers. The race detector
// has several times as much.
func TestMemoryStaysFlat(t *testing.T) {
	const limit = 100 << 10 // KiB
	const layer = limit<<10 + 8<<20
	built := must(buildinfo.ReadFile(binary))(t)
	raced := slices.Contains(built.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
	w := newWorld(t, t.TempDir())
	w.upstream = registry.Start(t, registry.Options{Dir: t.TempDir()})
	w.mirror = registry.Start(t, registry.Options{Dir: t.TempDir(), TLS: true, Auth: registry.Token})
	w.write(t, "ca.crt", w.mirror.CA())
	w.write(t, "login/config.json", w.mirror.DockerConfig())
	images.Push(t, w.upstream, "x/cloud/ccm:v1.33.1", images.Spec{Seed: 1, Layers: []int64{layer, 5 << 20}})
	w.vars = []string{"GOGC="} // as users run it
	w.must(t, "keygen", "-o", "k")
	for _, args := range [][]string{
		{"pull", "@up", "--drivers", "cpi", "--k8s", "1.33", "--sign-key", "k.key", "-o", "big.tar"},
		{"verify", "big.tar", "--key", "k.pub"},
		{"push", "big.tar", w.mirror.Host + "/big:1", "--ca-file", "ca.crt"},
		{"verify", w.mirror.Host + "/big:1", "--ca-file", "ca.crt", "--key", "k.pub"},
	} {
		t.Run(args[0]+" "+args[1], func(t *testing.T) {
			cmd, _, stderr := w.command(t.Context(), args...)
			require.NoError(t, cmd.Start())
			peak := make(chan int)
			go func() { peak <- shell.Peak(cmd.Process.Pid) }()
			require.NoError(t, cmd.Wait(), stderr.String())
			kib := <-peak
			require.Positive(t, kib)
			t.Logf("peak %d KiB", kib)
			require.True(t, raced || kib < limit)
		})
	}
}

// names are those of the files below the world's folder.
func (w *world) names(t *testing.T) (out []string) {
	require.NoError(t, filepath.WalkDir(w.dir, func(name string, _ os.DirEntry, err error) error {
		out = append(out, name)
		return err
	}))
	return out
}

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

// typed runs the program with something on standard input.
func (w *world) typed(t *testing.T, input string, args ...string) (output string, err error) {
	t.Helper()
	cmd, stdout, stderr := w.command(t.Context(), args...)
	cmd.Stdin = strings.NewReader(input)
	err = cmd.Run()
	return stdout.String() + stderr.String(), err
}

// Behind the gap there is nothing to read but the help: the trust policy that it shows is
// one, with everything that it names.
func TestTheHelpShowsAWholeTrustPolicy(t *testing.T) {
	help := must(exec.CommandContext(t.Context(), binary, "verify", "--help").Output())(t)
	var policy []string
	for _, text := range strings.Split(string(help), "\n") {
		if strings.HasPrefix(text, "  apiVersion:") || policy != nil && strings.HasPrefix(text, "  ") {
			policy = append(policy, strings.TrimPrefix(text, "  "))
		} else if policy != nil {
			break
		}
	}
	dir := t.TempDir()
	root, signer := pki.Root(t, "corp"), pki.Root(t, "release")
	for name, data := range map[string][]byte{
		"release.pub": signer.PublicPEM(), "corp-root.crt": root.PEM(), "tsa-root.crt": root.PEM(),
		"trusted_root.json": sigstore.New(t).Root,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	p, err := trust.ParsePolicy("the policy of the help", []byte(strings.Join(policy, "\n")), func(path string) ([]byte, error) {
		return os.ReadFile(filepath.Join(dir, path))
	})
	require.NoError(t, err)
	require.NotNil(t, p)
}
