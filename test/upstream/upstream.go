// Package upstream finds the real upstream manifests that tests read. They are not
// part of this project: they lie in a folder named by VDO_UPSTREAM or, beside a
// checkout, in ../shared/upstream, as DRIVER/vVERSION/FILE with RELEASES.tsv.
package upstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// Find returns the folder of the upstream manifests, or "" where there is none.
func Find() string {
	for _, dir := range []string{os.Getenv("VDO_UPSTREAM"), filepath.Join(toolchain.Root(), "..", "shared", "upstream")} {
		if dir == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "RELEASES.tsv")); err == nil {
			return filepath.Clean(dir)
		}
	}
	return ""
}

// Dir returns the folder of the upstream manifests. Where there is none the test
// fails in CI (CI=true) and is skipped elsewhere.
func Dir(t testing.TB) string {
	t.Helper()
	dir := Find()
	if dir == "" {
		const why = "no upstream manifests: set VDO_UPSTREAM to a folder of them (see test/README.md)"
		if os.Getenv("CI") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	return dir
}

// folders of the drivers' manifests.
var folders = map[string]string{"cpi": "cpi", "csi": "csi", "antrea": "cni", "external-snapshotter": "snapshot-controller"}

// Releases lists the releases whose manifests there are, as DRIVER@VERSION with the
// matrix's names of drivers: "csi@3.5.1".
func Releases(t testing.TB) []string {
	t.Helper()
	versions, err := filepath.Glob(filepath.Join(Dir(t), "*", "v*"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, v := range versions {
		if driver := folders[filepath.Base(filepath.Dir(v))]; driver != "" {
			out = append(out, driver+"@"+strings.TrimPrefix(filepath.Base(v), "v"))
		}
	}
	if len(out) == 0 {
		t.Fatalf("no releases in %s", Dir(t))
	}
	return out
}
