// Package toolchain makes the programs that tests and the demo need beside Go
// itself: a Kubernetes control plane, etcd, KWOK, Dex, cosign 2 and 3, the peers that benchmarks
// compare with, and the developers' tools. Each is built from Go modules, at the version that its go.mod below
// scripts/tools names, once, into ${XDG_CACHE_HOME:-~/.cache}/vdo/bin, under a
// name that changes with everything that the build depends on.
//
// Parts of a control plane that are on the machine already as envtest lays them out
// (KUBEBUILDER_ASSETS) are used as they are, where their minor version is the one
// that is requested.
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

// Tool is a program: a name, and for parts of Kubernetes the version that it is
// to report (its code is always that of scripts/tools/kubernetes).
type Tool struct {
	Name    string
	Version string // "1.34.2"; "" for the code's own
}

// source says where a tool's main package is.
type source struct {
	module string // folder below scripts/tools
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

// withC are tools that have parts in C which the tests need, so that gcc has to be there:
// Dex keeps its state in SQLite.
var withC = map[string]bool{"dex": true}

// The versions of Kubernetes that test clusters report: the first one, and the one
// that a test upgrades to. Both have drivers in the default matrix, which the
// version of the code need not have.
const (
	FirstKubernetes = "1.33.4"
	NextKubernetes  = "1.34.2"
)

// ForTests returns what the first tier of tests needs.
func ForTests() []Tool {
	return []Tool{
		{"kube-apiserver", FirstKubernetes}, {"kube-controller-manager", FirstKubernetes},
		{"kube-scheduler", FirstKubernetes}, {"kubectl", ""}, {"kube-apiserver", NextKubernetes},
		{"etcd", ""}, {"kwok", ""},
	}
}

// Peers returns what later tiers need besides: programs of others that take long to build.
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

// Path returns the path of a tool, building it first where need be. A test that needs one of the
// [Peers] belongs to the tier of that name.
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
	paths, err := Builder{Progress: progress}.Ensure(ctx, tool)
	if err != nil {
		return "", err
	}
	return paths[0], nil
}

// Root returns the folder of the project's checkout: the one with go.mod that the
// process was started in or below. (The sources' own paths do not tell, since they are
// compiled with -trimpath.)
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
	version, err := exec.CommandContext(ctx, path, "--version").Output()
	if minor := tool.Version[:strings.LastIndex(tool.Version, ".")]; err != nil || !strings.HasPrefix(string(version), "Kubernetes v"+minor+".") {
		return ""
	}
	return path
}
