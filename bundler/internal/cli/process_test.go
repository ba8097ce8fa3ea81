package cli_test

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// command is vdo-bundle in a world, with its output kept.
func (w *world) command(ctx context.Context, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	cmd = exec.CommandContext(ctx, binary, w.expand(args)...)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Dir, cmd.Stdout, cmd.Stderr = w.dir, stdout, stderr
	cmd.Env = os.Environ()
	for name, value := range w.env() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd, stdout, stderr
}

// must runs vdo-bundle and demands that it succeeds.
func (w *world) must(t *testing.T, args ...string) string {
	t.Helper()
	cmd, stdout, stderr := w.command(t.Context(), args...)
	require.NoError(t, cmd.Run(), stderr.String())
	return stdout.String()
}

func (w *world) read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, name))
	require.NoError(t, err)
	return data
}

// A signal in the middle of a pull leaves no bundle, says how to go on, and the
// next run fetches only what is missing and ends with the same bytes.
func TestInterruptedPullGoesOn(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		for _, dest := range []string{"a.tar", "oci:a"} {
			t.Run(fmt.Sprintf("%s/%s", signal, dest), func(t *testing.T) { interruptedPull(t, signal, dest) })
		}
	}
}

func interruptedPull(t *testing.T, signal os.Signal, dest string) {
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
	require.NoError(t, cmd.Process.Signal(signal))
	err := cmd.Wait()
	close(held)
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 130, exit.ExitCode(), stderr.String())
	require.Contains(t, stderr.String(), "error: interrupted by "+map[os.Signal]string{os.Interrupt: "Ctrl-C (SIGINT)", syscall.SIGTERM: "SIGTERM"}[signal]+"\n")
	require.Contains(t, stderr.String(), "hint: to go on where it stopped, run the same command again: `vdo-bundle pull ")
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

// What arrived before a fault is not fetched again.
func TestNextRunFetchesOnlyWhatIsMissing(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.must(t, "lock", "@up", "-o", "lock.yaml")
	w.upstream.Fail(registry.Fault{Match: registry.Match{Method: "GET", Path: "/x/snap/controller/blobs/"}, Status: 404})
	cmd, _, stderr := w.command(t.Context(), "pull", "@up", "--lock", "lock.yaml", "-o", "a.tar")
	require.Error(t, cmd.Run(), stderr.String())
	w.upstream.Heal()
	w.upstream.ForgetRequests()
	w.must(t, "pull", "@up", "--lock", "lock.yaml", "-o", "a.tar")
	for _, r := range w.upstream.Requests() {
		if strings.Contains(r.Path, "/blobs/") {
			require.Contains(t, r.Path, "/x/snap/controller/", "fetched again")
		}
	}
}

// The memory of a pull, a verification and a push does not grow with the layers. The race detector
// has several times as much.
func TestMemoryStaysFlat(t *testing.T) {
	const limit = 100 << 10 // KiB
	const layer = limit<<10 + 8<<20
	built, err := buildinfo.ReadFile(binary)
	require.NoError(t, err)
	raced := slices.Contains(built.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
	w := newWorld(t, t.TempDir())
	w.upstream = registry.Start(t, registry.Options{Dir: t.TempDir()})
	w.mirror = registry.Start(t, registry.Options{Dir: t.TempDir(), TLS: true, Auth: registry.Token})
	w.write(t, "ca.crt", w.mirror.CA())
	w.write(t, "login/config.json", w.mirror.DockerConfig())
	images.Push(t, w.upstream, "x/cloud/ccm:v1.33.1", images.Spec{Seed: 1, Layers: []int64{layer, 5 << 20}})
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
			go func() { peak <- watch(cmd.Process.Pid) }()
			require.NoError(t, cmd.Wait(), stderr.String())
			kib := <-peak
			require.Positive(t, kib)
			t.Logf("peak %d KiB", kib)
			require.True(t, raced || kib < limit)
		})
	}
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// watch returns the highest resident size of a process, in KiB, once it is gone.
// The figure of the kernel only grows, so that looking at it now and then loses
// nothing but the very end.
func watch(pid int) (peak int) {
	for {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		m := highWater.FindSubmatch(data)
		if err != nil || m == nil {
			return peak // gone
		}
		if n, err := strconv.Atoi(string(m[1])); err == nil && n > peak {
			peak = n
		}
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // between looks; nothing waits for it
	}
}

// The signatures of both transports are cosign's, and cosign's are ours.
func TestCosignAcceptsOurSignaturesAndWeItsOnes(t *testing.T) {
	cosign := toolchain.Path(t, "cosign")
	w := newWorld(t, t.TempDir())
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), cosign, args...)
		cmd.Dir = w.dir
		cmd.Env = os.Environ()
		for name, value := range w.env() {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+filepath.Join(w.dir, "ca.crt"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	w.must(t, "keygen", "-o", "ours")
	run("generate-key-pair", "--output-key-prefix", "theirs")
	w.must(t, "pull", "@up", "--sign-key", "ours.key", "-o", "a.tar")
	pinned := strings.TrimSpace(w.must(t, "push", "a.tar", w.mirror.Host+"/vdo/drivers:1", "--ca-file", "ca.crt"))
	w.write(t, "empty.json", []byte(`{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`))
	require.Contains(t, run("verify", "--key", "ours.pub", "--insecure-ignore-tlog=true", "--trusted-root", "empty.json", pinned), "cosign claims were validated")

	run("sign", "--key", "theirs.key", "--tlog-upload=false", "--yes", pinned)
	w.must(t, "verify", pinned, "--ca-file", "ca.crt", "--key", "theirs.pub")
	w.must(t, "verify", pinned, "--ca-file", "ca.crt", "--key", "ours.pub")

	// A key of cosign's signs an archive.
	w.must(t, "sign", "a.tar", "--key", "theirs.key")
	w.must(t, "verify", "a.tar", "--key", "theirs.pub")
}

// No output or error of the program holds a password, and none is in its arguments.
func TestNoSecretIsShown(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.must(t, "keygen", "-o", "k")
	var all strings.Builder
	for _, args := range [][]string{
		{"pull", "@up", "--sign-key", "k.key", "-o", "a.tar"},
		{"push", "a.tar", w.mirror.Host + "/vdo/drivers:1", "--ca-file", "ca.crt"},
		{"push", "a.tar", w.mirror.Host + "/vdo/drivers:1", "--ca-file", "ca.crt", "--format", "json"},
		{"push", "a.tar", w.mirror.Host + "/vdo/drivers:1"},
		{"sign", "a.tar", "--key", "k.pub"},
	} {
		cmd, stdout, stderr := w.command(t.Context(), args...)
		var exit *exec.ExitError
		if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		all.WriteString(strings.Join(cmd.Args, " ") + stdout.String() + stderr.String())
	}
	require.NotContains(t, all.String(), w.mirror.Password)
	require.NotContains(t, all.String(), "COSIGN_PASSWORD")
	require.NotRegexp(t, `(?i)authorization: |Basic [A-Za-z0-9+/=]{8}`, all.String())
}
