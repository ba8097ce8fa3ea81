// Package upstream finds the real upstream manifests that tests read. They are not
// part of this project: they lie in a folder named by VDO_UPSTREAM or, beside a
// checkout, in ../shared/upstream, as DRIVER/vVERSION/FILE with RELEASES.tsv.
package upstream

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Find returns the folder of the upstream manifests, or "" where there is none.
func Find() string {
	candidates := []string{os.Getenv("VDO_UPSTREAM")}
	if _, file, _, ok := runtime.Caller(0); ok {
		root := filepath.Join(filepath.Dir(file), "..", "..")
		candidates = append(candidates, filepath.Join(root, "..", "shared", "upstream"))
	}
	for _, dir := range candidates {
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
