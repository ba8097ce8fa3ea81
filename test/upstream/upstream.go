// Package upstream finds the real upstream manifests that tests read. They are not
// part of this project: they lie in a folder named by VDO_UPSTREAM or, beside a
// checkout, in ../shared/upstream, as DRIVER/vVERSION/FILE with RELEASES.tsv.
package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix/needs"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// Find returns the folder of the upstream manifests, or "" where there is none. One that
// VDO_UPSTREAM names has to have them: an error says where it does not.
func Find() (string, error) {
	dir := os.Getenv("VDO_UPSTREAM")
	named := dir != ""
	if !named {
		dir = filepath.Join(toolchain.Root(), "..", "shared", "upstream")
	}
	_, err := os.Stat(filepath.Join(dir, "RELEASES.tsv"))
	switch {
	case err == nil:
		return filepath.Clean(dir), nil
	case named:
		return "", fmt.Errorf("VDO_UPSTREAM=%s names no folder of upstream manifests: %w", dir, err)
	}
	return "", nil
}

// Dir returns the folder of the upstream manifests. Where there is none the test
// fails in CI (CI=true) and is skipped elsewhere.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	if dir == "" {
		const why = "no upstream manifests: set VDO_UPSTREAM to a folder of them (see test/README.md)"
		if os.Getenv("CI") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	return dir
}

// Listed returns the default matrix with these manifests in place of its own, and
// what they need, and nothing else does. Files are keyed DRIVER/VERSION/FILE, as a bundle has them.
func Listed(t testing.TB, files map[string][]byte) *matrix.Document {
	t.Helper()
	parsed, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	doc := *parsed
	doc.Releases, doc.Needs = slices.Clone(doc.Releases), nil
	releases := map[string]map[string][]byte{}
	for key, data := range files {
		driver, rest, _ := strings.Cut(key, "/")
		version, name, _ := strings.Cut(rest, "/")
		id := driver + "@" + version
		if releases[id] == nil {
			releases[id] = map[string][]byte{}
		}
		releases[id][name] = data
	}
	for i := range doc.Releases {
		r := &doc.Releases[i]
		own, ok := releases[r.ReleaseID.String()]
		if !ok {
			continue
		}
		r.Manifests = nil
		for _, name := range slices.Sorted(maps.Keys(own)) {
			sum := sha256.Sum256(own[name])
			r.Manifests = append(r.Manifests, matrix.Manifest{Name: name, URL: "https://upstream.test/" + name, Size: int64(len(own[name])), SHA256: hex.EncodeToString(sum[:])})
		}
		if err := needs.Describe(&doc, r.ReleaseID, own); err != nil {
			t.Fatal(err)
		}
	}
	return &doc
}

var parsed = sync.OnceValues(func() (*matrix.Document, error) { return matrix.Parse(matrix.DefaultName, matrix.Default()) })

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
