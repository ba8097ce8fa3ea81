package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/readme"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// limit is where a demo hangs, on a machine that does other things as well.
const limit = 10 * time.Minute

// demoRun is a demo that runs as `make demo` runs it.
type demoRun struct {
	t    *testing.T
	cmd  *exec.Cmd
	tmp  string
	log  string // file: what it has printed
	done chan error
}

func runDemo(t *testing.T, checkout string, env ...string) *demoRun {
	ctx, cancel := context.WithTimeout(t.Context(), 3*limit)
	t.Cleanup(cancel)
	r := &demoRun{t: t, tmp: t.TempDir(), log: filepath.Join(t.TempDir(), "log"), done: make(chan error, 1)}
	r.cmd = exec.CommandContext(ctx, "make", "--no-print-directory", "demo")
	r.cmd.Dir = checkout
	r.cmd.Env = append(append(os.Environ(), "TMPDIR="+r.tmp), env...)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C reaches make and the demo
	r.cmd.Cancel = func() error { return syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) }
	out := must.Have(os.Create(r.log))(t)
	r.cmd.Stdout, r.cmd.Stderr = out, out
	require.NoError(t, r.cmd.Start())
	require.NoError(t, out.Close())
	go func() { r.done <- r.cmd.Wait() }()
	return r
}

func (r *demoRun) output() string {
	data := must.Have(os.ReadFile(r.log))(r.t)
	return strings.TrimSuffix(string(data), "\n")
}

// await waits until the demo has printed something, and returns what the pattern's group
// matched.
func (r *demoRun) await(pattern string) string {
	r.t.Helper()
	re := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		ended := len(r.done) > 0
		if m := re.FindStringSubmatch(r.output()); m != nil {
			return m[len(m)-1]
		}
		require.False(r.t, ended, "the demo ended before it printed %s:\n%s", pattern, r.output())
		time.Sleep(50 * time.Millisecond) // between two looks
	}
	r.t.Fatalf("the demo never printed %s:\n%s", pattern, r.output())
	return ""
}

// interrupt presses Ctrl-C, and returns once the demo has ended.
func (r *demoRun) interrupt() {
	r.t.Helper()
	require.NoError(r.t, syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT))
	select {
	case <-r.done:
	case <-time.After(limit):
		_ = r.cmd.Cancel()
		r.t.Fatalf("the demo does not end:\n%s", r.output())
	}
}

// leftNothing holds that there is no file, and no process that was given one.
func (r *demoRun) leftNothing() {
	left := must.Have(filepath.Glob(filepath.Join(r.tmp, "*")))(r.t)
	var ours []string
	for _, path := range left {
		if !strings.HasPrefix(filepath.Base(path), "go-build") { // of the compiler, which makes it again each time
			ours = append(ours, path)
		}
	}
	require.Empty(r.t, ours, r.output())
	require.Eventually(r.t, func() bool { return len(r.processes()) == 0 }, time.Minute, 50*time.Millisecond, "%v", r.processes())
}

// processes lists the programs whose arguments name the demo's folder.
func (r *demoRun) processes() (out []string) {
	all := must.Have(filepath.Glob("/proc/[0-9]*/cmdline"))(r.t)
	for _, path := range all {
		if args, err := os.ReadFile(path); err == nil && bytes.Contains(args, []byte(r.tmp)) {
			out = append(out, string(bytes.ReplaceAll(args, []byte{0}, []byte(" "))))
		}
	}
	return out
}

// Whatever it is doing, a demo that is interrupted ends and leaves nothing.
func TestInterruptedDemoLeavesNothing(t *testing.T) {
	building := []string{"== Building"}
	for _, at := range tier.Pick(building, append(building, `\$ vdo-bundle pull`, "== The site's cluster")) {
		t.Run(at, func(t *testing.T) {
			r := runDemo(t, toolchain.Root())
			r.await(at)
			r.interrupt()
			r.leftNothing()
			require.Contains(t, r.output(), "nothing is left behind")
			require.True(t, strings.HasPrefix(r.output(), "building the demo itself"), r.output()) // it is not silent while it compiles
		})
	}
}

// The world that KEEP leaves running is there to be used, so its clients are still
// connected when it ends: a session that waits for updates, as govc and the CSI driver's
// syncer do, and a watch.
func TestKeptDemoEndsUnderItsClients(t *testing.T) {
	tier.Later(t, tier.All)
	r := runDemo(t, toolchain.Root(), "KEEP=1", "SIP=1")
	r.await(`operator log (\S+)`) // the last of what it prints
	address := r.await(`vCenter  (127\.0\.0\.1:\d+), CA`)
	kubeconfig := r.await(`export KUBECONFIG=(\S+)`)
	waits, connected := make(chan error, 1), make(chan struct{})
	go func() { waits <- waitForUpdates(t.Context(), address, sync.OnceFunc(func() { close(connected) })) }()
	kubectl := toolchain.Path(t, "kubectl")
	watch := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", kubeconfig, "get", "nodes", "--watch")
	stdout := must.Have(watch.StdoutPipe())(t)
	require.NoError(t, watch.Start())
	must.Have(bufio.NewReader(stdout).ReadString('\n'))(t)
	select {
	case err := <-waits:
		t.Fatalf("the session does not wait for updates: %v", err)
	case <-connected:
	}

	for _, c := range []struct{ title, command, says string }{
		{"in the site, as its administrator", "vdoctl plan", "nothing blocks it"},
		{"on the connected host", "vdo-bundle lock -o first.yaml --k8s 1.33-1.34 --vsphere 8.0.3 $FLAGS", "4 releases, 11 images"},
	} {
		_, entering, found := strings.Cut(r.output(), "\n== To work "+c.title+", paste into another terminal\n")
		require.True(t, found)
		entering, _, _ = strings.Cut(entering, "\n== ")
		sh := exec.CommandContext(t.Context(), "/bin/sh", "-e")
		sh.Dir, sh.Env = t.TempDir(), []string{"PATH=/usr/bin:/bin"}
		sh.Stdin = strings.NewReader(entering + "\n" + c.command + "\n")
		out, err := sh.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), c.says)
	}

	r.interrupt()
	r.leftNothing()
	require.NotRegexp(t, "Error 130|SetLogger", r.output())
	require.Error(t, <-waits, "the vCenter is gone")
	_ = watch.Wait()

	t.Run("it is what READMEs show", func(t *testing.T) {
		holdReadme(t, r.output(), "README.md")
		holdReadme(t, r.output(), "operator/docs/tenant-clusters.md")
	})
}

// holdReadme compares the commands that a page shows with a "$ ", and their output, with what
// the demo did: the same commands in the same order. The page leaves out other commands, and
// the flags for the stand-in registry.
func holdReadme(t *testing.T, transcript, page string) {
	blocks := must.Have(readme.Blocks(filepath.Join(toolchain.Root(), page)))(t)
	standIn := regexp.MustCompile(` (--source-map|--matrix) \S+| --ca-file upstream-ca\.crt`)
	type command struct {
		text   string
		output []string
	}
	var ran []command
	heading := true // what follows is of no command
	for _, line := range strings.Split(transcript, "\n") {
		text, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case isCommand:
			ran = append(ran, command{text: readme.Same(standIn.ReplaceAllString(text, ""))})
			heading = false
		case strings.HasPrefix(line, "== "):
			heading = true
		case !heading:
			ran[len(ran)-1].output = append(ran[len(ran)-1].output, line)
		}
	}
	shown, at := 0, 0
	for _, b := range blocks {
		for _, c := range b.Commands {
			shown++
			for at < len(ran) && ran[at].text != readme.Same(c.Text) {
				at++
			}
			require.Less(t, at, len(ran), "%s, %s: the demo does not run it, or not there", page, c)
			require.NoError(t, readme.Holds(c.Output, ran[at].output), "%s, %s", page, c)
			at++
		}
	}
	require.Greater(t, shown, 4)
}

// waitForUpdates is told what there is, and then makes a request that a vCenter answers
// when something changes.
func waitForUpdates(ctx context.Context, address string, told func()) error {
	login := url.UserPassword(vcenter.Admin.Username, vcenter.Admin.Password)
	c, err := govmomi.NewClient(ctx, &url.URL{Scheme: "https", Host: address, Path: vim25.Path, User: login}, true)
	if err != nil {
		return err
	}
	return property.Wait(ctx, c.PropertyCollector(), c.ServiceContent.RootFolder, []string{"name"}, func([]types.PropertyChange) bool {
		told()
		return false
	})
}

// A machine that has Go, git and make, and has never seen the project: no modules, no
// tools, no home. Only the compiler's cache is kept, since what is in it is named by its
// content. It fetches modules, so it runs where it is requested. README.md shows this demo's output.
func TestDemoOnAMachineThatHasNothing(t *testing.T) {
	if os.Getenv("VDO_COLD") == "" {
		tier.Later(t, tier.All) // .ci/run sets it
	}
	dir := t.TempDir()
	gocache := must.Have(exec.Command("go", "env", "GOCACHE").Output())(t)
	clone := exec.Command("git", "clone", "--quiet", "--no-local", toolchain.Root(), filepath.Join(dir, "checkout"))
	out, err := clone.CombinedOutput()
	require.NoError(t, err, string(out))
	var env []string
	for name, path := range map[string]string{"GOMODCACHE": "mod", "GOPATH": "gopath", "XDG_CACHE_HOME": "cache", "HOME": "home"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, path), 0o755))
		env = append(env, name+"="+filepath.Join(dir, path))
	}
	env = append(env, "GOCACHE="+strings.TrimSpace(string(gocache)), "GOFLAGS=-modcacherw", "VDO_UPSTREAM=")
	r := runDemo(t, filepath.Join(dir, "checkout"), env...)
	began := time.Now()
	r.await(`(?m)^== In the site: verify`)
	bundler := time.Since(began)
	r.await(`(?m)^== Done in (\w+)`)
	require.NoError(t, <-r.done)
	r.leftNothing()
	require.NotRegexp(t, "downloading|SetLogger", r.output())
	holdReadme(t, r.output(), "README.md")
	fmt.Printf("%s\ncold demo: the bundler's half after %s, all after %s\n", r.output(), bundler.Round(time.Second), time.Since(began).Round(time.Second))
}

// The demo fails if VDO_UPSTREAM names a directory without manifests.
func TestManifestsAreThoseThatAreNamed(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	t.Setenv("VDO_UPSTREAM", absent)
	require.ErrorContains(t, new(demo).findManifests(t.Context()), "VDO_UPSTREAM="+absent+" has no upstream manifests")
}
