// Package toolchain makes the programs that tests and the demo need beside Go
// itself: a Kubernetes control plane, etcd, KWOK, cosign, the peers that benchmarks
// compare with, and the developers' tools. Each is built from Go modules, at the version that its go.mod below
// scripts/tools names, once, into ${XDG_CACHE_HOME:-~/.cache}/vdo/bin, under a
// name that changes with everything that the build depends on.
//
// Parts of a control plane that are on the machine already as envtest lays them out
// (KUBEBUILDER_ASSETS) are used as they are, where their minor version is the one
// that is asked for.
package toolchain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// Tool is a program: a name, and for parts of Kubernetes the version that it is
// to report (its code is always that of scripts/tools/kubernetes).
type Tool struct {
	Name    string
	Version string // "1.34.2"; "" for the code's own
}

// source says where a tool's main package is.
type source struct {
	module  string // folder below scripts/tools
	pkg     string
	minutes string // about, from nothing, on two cores
}

var sources = map[string]source{
	"kube-apiserver":          {"kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", "6 min"},
	"kube-controller-manager": {"kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager", "2 min"},
	"kube-scheduler":          {"kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", "1 min"},
	"kubectl":                 {"kubernetes", "k8s.io/kubernetes/cmd/kubectl", "1 min"},
	"etcd":                    {"etcd", "go.etcd.io/etcd/server/v3", "1 min"},
	"kwok":                    {"kwok", "sigs.k8s.io/kwok/cmd/kwok", "2 min"},
	"cosign":                  {"cosign", "github.com/sigstore/cosign/v2/cmd/cosign", "3 min"},
	"crane":                   {"crane", "github.com/google/go-containerregistry/cmd/crane", "1 min"},
	"regctl":                  {"regctl", "github.com/regclient/regclient/cmd/regctl", "1 min"},
	"controller-gen":          {"controller-gen", "sigs.k8s.io/controller-tools/cmd/controller-gen", "1 min"},
	"golangci-lint":           {"golangci-lint", "github.com/golangci/golangci-lint/v2/cmd/golangci-lint", "4 min"},
}

// The versions of Kubernetes that test clusters report: the first one, and the one
// that a test upgrades to. Both have drivers in the default matrix, which the
// version of the code need not have.
const (
	FirstKubernetes = "1.33.4"
	NextKubernetes  = "1.34.2"
)

// ForTests returns what `make test` needs, in the form NAME or NAME@VERSION.
func ForTests() []string {
	return []string{
		"kube-apiserver@" + FirstKubernetes, "kube-apiserver@" + NextKubernetes,
		"kube-controller-manager@" + FirstKubernetes, "kube-scheduler@" + FirstKubernetes,
		"kubectl", "etcd", "kwok", "cosign", "crane", "regctl", "controller-gen",
	}
}

// kubernetesVersion is the version of the code in scripts/tools/kubernetes/go.mod.
const kubernetesVersion = "1.36.3"

// Path returns the path of a tool, building it first where need be.
func Path(t testing.TB, name string) string {
	t.Helper()
	path, err := Ensure(context.Background(), os.Stderr, Tool{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Installed returns the path of a program that packages of the machine give: skopeo,
// containerd. A test that needs one is skipped where it is not there; in CI, where
// .ci/run installs them (CI set), it fails.
func Installed(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("%s is not installed; .ci/run installs what tests need", program)
	default:
		t.Skipf("%s is not installed", program)
	}
	return path
}

// Ensure returns the path of a tool. Where it has to be built, what is going on is
// told on progress, a line now and then.
func Ensure(ctx context.Context, progress io.Writer, tool Tool) (string, error) {
	src, ok := sources[tool.Name]
	if !ok {
		return "", fmt.Errorf("toolchain: no tool %q", tool.Name)
	}
	if path := installed(ctx, tool); path != "" {
		return path, nil
	}
	b := build{tool: tool, source: src, dir: filepath.Join(Root(), "scripts", "tools", src.module), progress: progress}
	return b.ensure(ctx)
}

// Root returns the folder of the project's checkout.
func Root() string {
	_, file, _, _ := runtime.Caller(0) //nolint:dogsled // only the file is of interest
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// installed finds a control plane's part that envtest has put on the machine. Where
// a version is asked for it serves if it reports the same minor version.
func installed(ctx context.Context, tool Tool) string {
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		return ""
	}
	path := filepath.Join(dir, tool.Name)
	if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
		return ""
	}
	if tool.Version == "" {
		return path
	}
	said, err := exec.CommandContext(ctx, path, "--version").Output()
	if minor := tool.Version[:strings.LastIndex(tool.Version, ".")]; err != nil || !strings.HasPrefix(string(said), "Kubernetes v"+minor+".") {
		return ""
	}
	return path
}

type build struct {
	tool     Tool
	source   source
	dir      string
	progress io.Writer
}

func (b build) ensure(ctx context.Context) (string, error) {
	key, err := b.key()
	if err != nil {
		return "", fmt.Errorf("toolchain: %s: %w", b.tool.Name, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("toolchain: no cache folder: %w; set XDG_CACHE_HOME or HOME", err)
	}
	dir := filepath.Join(cache, "vdo", "bin", key)
	path := filepath.Join(dir, b.tool.Name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("toolchain: %w", err)
	}
	// One build at a time on the whole machine: they need all of it, and two test
	// binaries that want the same tool must not build it twice.
	unlock, err := lockedfile.MutexAt(filepath.Join(cache, "vdo", "bin", "lock")).Lock()
	if err != nil {
		return "", fmt.Errorf("toolchain: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, b.run(ctx, path)
}

// key names everything that the result depends on.
func (b build) key() (string, error) {
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(b.dir, name))
		if err != nil {
			return "", err
		}
		h.Write(data)
	}
	fmt.Fprintln(h, b.args("x"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	version := ""
	if b.tool.Version != "" {
		version = "-v" + b.tool.Version
	}
	return b.tool.Name + version + "-" + hex.EncodeToString(h.Sum(nil))[:12], nil
}

func (b build) args(out string) []string {
	ld := "-s -w"
	if b.source.module == "kubernetes" {
		version := b.tool.Version
		if version == "" {
			version = kubernetesVersion
		}
		parts := strings.SplitN(version, ".", 3)
		for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
			ld += fmt.Sprintf(" -X %s.gitVersion=v%s -X %s.gitMajor=%s -X %s.gitMinor=%s", pkg, version, pkg, parts[0], pkg, parts[1])
		}
	}
	return []string{"build", "-trimpath", "-ldflags", ld, "-o", out, b.source.pkg}
}

func (b build) run(ctx context.Context, path string) error {
	say := func(format string, args ...any) { fmt.Fprintf(b.progress, "toolchain: "+format+"\n", args...) }
	name := strings.TrimSpace(b.tool.Name + " " + b.tool.Version)
	say("building %s, once for this machine (from nothing about %s)", name, b.source.minutes)
	began := time.Now()
	tick := time.NewTicker(20 * time.Second)
	defer tick.Stop()
	done := make(chan error, 1)
	tmp := path + ".new"
	go func() {
		cmd := exec.CommandContext(ctx, "go", b.args(tmp)...)
		cmd.Dir = b.dir
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("toolchain: go build %s in %s: %w\n%s", b.source.pkg, b.dir, err, out)
		}
		done <- err
	}()
	for {
		select {
		case <-tick.C:
			say("still building %s (%s)", name, time.Since(began).Round(time.Second))
		case err := <-done:
			if err != nil {
				return errors.Join(err, ctx.Err())
			}
			say("built %s in %s", name, time.Since(began).Round(time.Second))
			return os.Rename(tmp, path)
		}
	}
}

// ModuleDir returns the folder of a Go module that a tool's module requires, in
// the module cache.
func ModuleDir(ctx context.Context, toolModule, path string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", path)
	cmd.Dir = filepath.Join(Root(), "scripts", "tools", toolModule)
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		return "", fmt.Errorf("toolchain: no folder of module %s: %w", path, err)
	}
	return dir, nil
}
