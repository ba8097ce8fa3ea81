// Package toolchain builds the programs that tests and the demo need beside Go. They are a Kubernetes control plane,
// etcd, KWOK, Dex, cosign 2 and 3, the peers of benchmarks, and the developers' tools. It builds each once from Go
// modules, at the version in its go.mod below scripts/tools. The result is in ${XDG_CACHE_HOME:-~/.cache}/vdo/bin,
// under a name that changes with all inputs of the build.
//
// It uses the control plane of envtest (KUBEBUILDER_ASSETS) if its minor version is the requested one.
package toolchain

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// Tool is a program: a name, and for parts of Kubernetes the version that it reports (its code is always that of
// scripts/tools/kubernetes).
type Tool struct {
	Name    string
	Version string // "1.34.2"; "" for the code's own
}

// source is the location of a tool's main package.
type source struct {
	module string // directory below scripts/tools
	pkg    string
}

var sources = map[string]source{
	"kube-apiserver":          {"kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"},
	"kube-controller-manager": {"kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	"kube-scheduler":          {"kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler"},
	"kubectl":                 {"kubernetes", "k8s.io/kubernetes/cmd/kubectl"},
	"kubelet":                 {"kubernetes", "k8s.io/kubernetes/cmd/kubelet"},
	"etcd":                    {"etcd", "go.etcd.io/etcd/server/v3"},
	"kwok":                    {"kwok", "sigs.k8s.io/kwok/cmd/kwok"},
	"dex":                     {"dex", "github.com/dexidp/dex/cmd/dex"},
	"cosign":                  {"cosign", "github.com/sigstore/cosign/v2/cmd/cosign"},
	"cosign3":                 {"cosign3", "github.com/sigstore/cosign/v3/cmd/cosign"},
	"crane":                   {"crane", "github.com/google/go-containerregistry/cmd/crane"},
	"regctl":                  {"regctl", "github.com/regclient/regclient/cmd/regctl"},
	"controller-gen":          {"controller-gen", "sigs.k8s.io/controller-tools/cmd/controller-gen"},
	"golangci-lint":           {"golangci-lint", "github.com/golangci/golangci-lint/v2/cmd/golangci-lint"},
}

// withC are tools whose parts in C the tests need, so that they need gcc: Dex keeps its state in SQLite.
var withC = map[string]bool{"dex": true}

// The versions of Kubernetes that test clusters report: the first one, and the target of an upgrade. The default
// matrix has drivers for both, and maybe none for the version of the code.
const (
	FirstKubernetes = "1.33.4"
	NextKubernetes  = "1.34.2"
)

// ForTests returns the tools of the first tier of tests.
func ForTests() []Tool {
	return []Tool{
		{"kube-apiserver", FirstKubernetes}, {"kube-controller-manager", FirstKubernetes},
		{"kube-scheduler", FirstKubernetes}, {"kubectl", ""}, {"kube-apiserver", NextKubernetes},
		{"etcd", ""}, {"kwok", ""},
	}
}

// Peers returns the further tools of later tiers: other projects' programs that take long to build.
func Peers() []Tool {
	all := []Tool{{"kubelet", FirstKubernetes}}
	for _, name := range peers {
		all = append(all, Tool{Name: name})
	}
	return all
}

var peers = []string{"dex", "cosign", "cosign3", "crane", "regctl"}

// kubernetesVersion is the version of the code in scripts/tools/kubernetes/go.mod.
const kubernetesVersion = "1.36.3"

// Path returns the path of a tool, and builds a missing one. A test that needs one of the [Peers] belongs to the tier
// of that name.
func Path(t testing.TB, name string) string {
	t.Helper()
	if slices.Contains(peers, name) {
		tier.Later(t, tier.Peers)
	}
	path, err := Ensure(context.Background(), os.Stderr, Tool{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Installed returns the path of a program from the machine's packages: skopeo, containerd. If it is missing, the test
// is skipped; in CI (CI set), where .ci/run installs it, the test fails.
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

// Ensure returns the path of a tool. If it has to build the tool, it prints progress now and then.
func Ensure(ctx context.Context, progress io.Writer, tool Tool) (string, error) {
	paths, err := Builder{Progress: progress}.Ensure(ctx, tool)
	if err != nil {
		return "", err
	}
	return paths[0], nil
}

// Root returns the directory of the project's checkout: the one with go.mod at or above the process's start. (The
// sources' own paths do not help, since they are compiled with -trimpath.)
func Root() string { return root }

var root = func() string {
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if mod, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && bytes.HasPrefix(mod, []byte("module "+project+"\n")) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return "."
}()

const project = "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator"

// installed finds envtest's part of a control plane on the machine. Its minor version must be the requested one, if
// any.
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
	version, err := exec.CommandContext(ctx, path, "--version").Output()
	if minor := tool.Version[:strings.LastIndex(tool.Version, ".")]; err != nil || !strings.HasPrefix(string(version), "Kubernetes v"+minor+".") {
		return ""
	}
	return path
}
