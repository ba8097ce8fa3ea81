package architecture

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator"
	cosign = "github.com/sigstore/cosign/v2"
)

// floors lists the packages from the ground up. A package may import packages of
// lower floors only. An entry ending in /... holds the package and all below it.
var floors = [][]string{
	{"api/command/columns", "api/fault", "deploy"},
	{"api/strictyaml", "api/command/flags", "api/atomicfile"},
	{"api/airship/v1", "api/command", "api/userfile", "api/image", "api/v1alpha1", "matrix"},
	{"api/bundle", "api/mirrorset", "matrix/needs", "operator/internal/certificate", "operator/internal/drivers", "operator/internal/jumphost", "operator/internal/pages", "operator/internal/revision"},
	{"api/trust"},
	{"api/command/trustflags", "api/install", "bundler/internal/catalog", "bundler/internal/medium", "bundler/internal/nodeconfig", "bundler/internal/parts", "bundler/internal/sbom", "bundler/internal/size", "operator/internal/inventory", "operator/internal/privileges", "operator/internal/render/...", "operator/internal/assess", "operator/internal/source", "operator/internal/controller/condition", "operator/internal/sip/..."},
	{"operator/internal/plan", "operator/internal/drift", "operator/internal/tracing", "operator/internal/decide", "operator/internal/rollout", "operator/internal/credentials", "operator/internal/logins", "operator/internal/preflight", "bundler/remote", "bundler/internal/run", "bundler/internal/matrixfile", "bundler/internal/provenance"},
	{"operator/internal/lookahead", "bundler/internal/signatures", "bundler/internal/mover", "bundler/internal/archive", "bundler/internal/manifests", "bundler/internal/serve", "bundler/internal/timestamp", "bundler/internal/token", "bundler/internal/kms", "operator/internal/cluster", "operator/internal/vcenter", "operator/internal/clusterstate", "operator/internal/store", "operator/internal/installer", "operator/internal/metrics", "operator/internal/controller/reconciler"},
	{"bundler/internal/pinned", "bundler/internal/upstream", "operator/internal/accounts", "operator/internal/maintenance", "operator/internal/controller/..."},
	{"bundler/lock", "bundler/pull", "bundler/push", "bundler/export", "bundler/outdated", "bundler/sign", "bundler/verify", "bundler/list", "bundler/prune", "bundler/inspect", "bundler/evidence", "bundler/diff", "operator/internal/preview"},
	{"bundler/internal/cli/...", "operator", "operator/internal/model", "operator/internal/scale", "operator/internal/vdoctl"},
	{"bundler/cmd/...", "operator/cmd/..."},
}

const controllers = "operator/internal/controller/"

// sideways are the imports within one floor that are wanted, each with its reason.
var sideways = map[string]string{
	"operator/internal/render -> operator/internal/render/webhookcert": "a part of rendering",
	"bundler/evidence -> bundler/inspect":                              "the page begins with what inspect shows",
	"bundler/evidence -> bundler/verify":                               "the page says what was verified",
	"bundler/prune -> bundler/list":                                    "what is pruned is what is listed",
}

func TestImportsGoDownwardsOnly(t *testing.T) {
	var wrong []string
	for path, imports := range list(t) {
		from, ok := strings.CutPrefix(path, module+"/")
		if !ok || isTesting(from) {
			continue
		}
		floor := floorOf(from)
		if floor < 0 {
			wrong = append(wrong, from+" is on no floor: put it into this test's list, and into README.md")
			continue
		}
		for _, imported := range imports {
			to, ours := strings.CutPrefix(imported, module+"/")
			if !ours {
				continue
			}
			edge := from + " -> " + to
			switch {
			case isTesting(to):
				wrong = append(wrong, edge+": product code imports what is for tests")
			case floorOf(to) > floor:
				wrong = append(wrong, edge+": upwards")
			case floorOf(to) == floor && sideways[edge] == "":
				wrong = append(wrong, edge+": sideways")
			case strings.HasPrefix(to, controllers) && !strings.HasPrefix(from, controllers) &&
				to != controllers+"condition" && from != "operator" && from != "operator/internal/preview":
				wrong = append(wrong, edge+": all but the operator use package preview, which writes nothing")
			}
		}
	}
	sort.Strings(wrong)
	require.Empty(t, wrong, strings.Join(wrong, "\n"))
}

// What crosses the gap stays light, and the two programs meet only in formats and
// pure functions, and in the package that speaks to registries, with what that needs: each
// entry lists the import paths that a package may not depend on, however far down.
func TestDependenciesThatMayNotBe(t *testing.T) {
	for from, banned := range map[string][]string{
		"api/fault":                 {"github.com/", "k8s.io/", "sigs.k8s.io/"},
		"api/image":                 {"k8s.io/", "sigs.k8s.io/", "github.com/google/"},
		"matrix":                    {"k8s.io/", "sigs.k8s.io/", "github.com/google/go-containerregistry"},
		"api/trust":                 {"k8s.io/client-go", "sigs.k8s.io/controller-runtime", cosign + "/pkg/signature", cosign + "/cmd", cosign + "/internal/pkg/cosign/fulcio"}, // clouds, logins
		"api/bundle":                {"k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
		"bundler/cmd/vdo-bundle":    {"sigs.k8s.io/controller-runtime", "github.com/vmware/govmomi", module + "/operator"},
		"operator/cmd/vdo-operator": {module + "/bundler"},
		"operator/cmd/vdo-jumphost": {module + "/bundler", module + "/operator/internal/controller", "k8s.io/", "sigs.k8s.io/"}, // what a tenant can reach
		"operator/cmd/vdoctl": {module + "/bundler", module + "/operator/internal/metrics", // controllers only those that a preview makes passes of
			module + "/operator/internal/controller/sipcluster", module + "/operator/internal/controller/inspection",
			module + "/operator/internal/controller/vspherecloudconfig", module + "/operator/internal/controller/legacy"},
	} {
		cmd := exec.Command("go", "list", "-deps", module+"/"+from)
		cmd.Dir = root()
		out, err := cmd.Output()
		require.NoError(t, err, from)
		registries := []string{"remote", "internal/medium", "internal/size"}
		for _, dep := range strings.Fields(string(out)) {
			ours := strings.HasPrefix(dep, module+"/api/") || dep == module+"/matrix" || dep == module+"/matrix/needs" ||
				slices.Contains(registries, strings.TrimPrefix(dep, module+"/bundler/"))
			for _, b := range banned {
				require.False(t, !ours && strings.HasPrefix(dep, b), "%s depends on %s", from, dep)
			}
		}
	}
}

func TestTopLevelIsFixed(t *testing.T) {
	allowed := map[string]bool{
		"bundler": true, "operator": true, "matrix": true, "api": true, "deploy": true, "scripts": true, "test": true,
		"go.mod": true, "go.sum": true, "Makefile": true, "README.md": true, "LICENSE": true,
		"bin": true, "dist": true, // built, not kept
	}
	entries, err := os.ReadDir(root())
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			require.True(t, allowed[e.Name()], "%s at the top level", e.Name())
		}
	}
}

func TestNoGrabBagPackages(t *testing.T) {
	for path := range list(t) {
		switch filepath.Base(path) {
		case "util", "utils", "common", "helpers", "helper", "misc", "shared", "pkg":
			t.Errorf("%s: name a package for the noun that it provides", path)
		}
	}
}

func isTesting(path string) bool {
	return strings.HasPrefix(path, "test/") || path == "test" || strings.HasPrefix(path, "scripts/")
}

func floorOf(path string) int {
	best, at := -1, -1
	for i, packages := range floors {
		for _, entry := range packages {
			prefix, tree := strings.CutSuffix(entry, "/...")
			if (path == prefix || (tree && strings.HasPrefix(path, prefix+"/"))) && len(prefix) > best {
				best, at = len(prefix), i
			}
		}
	}
	return at
}

func root() string { return filepath.Join("..", "..") }

// list returns the imports of each package.
func list(t *testing.T) map[string][]string {
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	cmd.Dir = root()
	out, err := cmd.Output()
	require.NoError(t, err)
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		all[words[0]] = words[1:]
	}
	return all
}
