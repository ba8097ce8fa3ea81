// Package upstream has the drivers' manifests for tests.
//
// Tests use stand-ins: texts of our own with the objects, names, images and settings of every
// release. Tests about upstream's own text read the real files from the directory that
// VDO_UPSTREAM names, as DRIVER/vVERSION/FILE with RELEASES.tsv (see test/README.md).
package upstream

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix/needs"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// Variable is the environment variable that names the directory of the real manifests.
const Variable = "VDO_UPSTREAM"

// Find returns the directory that VDO_UPSTREAM names, or "" if it is unset. It fails if that
// directory has no manifests.
func Find() (string, error) {
	dir := os.Getenv(Variable)
	if dir == "" {
		return "", nil
	}
	if _, err := os.Stat(filepath.Join(dir, "RELEASES.tsv")); err != nil {
		return "", fmt.Errorf("%s=%s has no upstream manifests: %w", Variable, dir, err)
	}
	return filepath.Clean(dir), nil
}

// Dir returns the directory of the real manifests, for a test of the tier [tier.Upstream]. The
// test fails without that directory and is skipped in other tiers.
func Dir(t testing.TB) string {
	t.Helper()
	tier.Later(t, tier.Upstream)
	dir, err := Find()
	if err == nil && dir == "" {
		err = fmt.Errorf("%s is not set: the tier %s needs the directory of upstream's manifests", Variable, tier.Upstream)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Each runs a test with the stand-ins and, in the tier [tier.Upstream], with the real manifests. The test passes dir
// to [Read] or to a world.
func Each(t *testing.T, test func(t *testing.T, dir string)) {
	t.Helper()
	t.Run("stand-ins", func(t *testing.T) { test(t, "") })
	t.Run("real", func(t *testing.T) { test(t, Dir(t)) })
}

// folders are the drivers' directories of real manifests.
var folders = map[matrix.Driver]string{
	matrix.CPI: "cpi", matrix.CSI: "csi", matrix.CNI: "antrea", matrix.SnapshotController: "external-snapshotter",
}

// Folder returns the name of a driver's directory.
func Folder(d matrix.Driver) string { return folders[d] }

// Read returns a manifest of a release: from the directory of the real ones, or its stand-in if
// dir is empty.
func Read(dir string, id matrix.ReleaseID, name string) ([]byte, error) {
	if dir == "" {
		return standIn(id, name)
	}
	return os.ReadFile(filepath.Join(dir, Folder(id.Driver), "v"+id.Version.String(), name)) //nolint:gosec // in the directory of manifests
}

var (
	imageLine = regexp.MustCompile(`(?m)^\s*(?:- )?image: "?([^"\s]+)`)
	minReady  = regexp.MustCompile(`minReadySeconds: \d+`)
)

// Hurried returns a manifest whose pods count as available at once. The snapshot-controller
// otherwise waits for 35 s.
func Hurried(data []byte) []byte { return minReady.ReplaceAll(data, []byte("minReadySeconds: 0")) }

// Images returns the images that a manifest names.
func Images(manifest []byte) (names []string) {
	for _, match := range imageLine.FindAllSubmatch(manifest, -1) {
		names = append(names, string(match[1]))
	}
	return names
}

// Release returns a release with the manifests that [Read] finds in dir and their images. It also returns the
// manifests, by their paths in a bundle, after edit, which may be nil.
func Release(
	t testing.TB, dir string, id matrix.ReleaseID, edit func([]byte) []byte,
) (bundle.Release, map[string][]byte) {
	t.Helper()
	out := bundle.Release{Driver: id.Driver, Version: id.Version, Images: map[string]string{}}
	manifests := map[string][]byte{}
	for _, name := range Files(id) {
		data, err := Read(dir, id, name)
		if err != nil {
			t.Fatal(err)
		}
		if edit != nil {
			data = edit(data)
		}
		f := bundle.File{Name: name, URL: siteURL + name, Digest: image.DigestOf(data), Size: int64(len(data))}
		out.Manifests = append(out.Manifests, f)
		manifests[out.Path(f)] = data
		for _, written := range Images(data) {
			out.Images[written] = image.MustReference(written).String()
		}
	}
	return out, manifests
}

// Listed returns the default matrix with these manifests in place of its own and with their needs
// only. The keys are DRIVER/VERSION/FILE, as in a bundle.
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
			r.Manifests = append(r.Manifests, matrix.Manifest{
				Name: name, URL: siteURL + name, Size: int64(len(own[name])), SHA256: image.DigestOf(own[name]).Hex(),
			})
		}
		if err := needs.Describe(&doc, r.ReleaseID, own); err != nil {
			t.Fatal(err)
		}
	}
	return &doc
}

var parsed = sync.OnceValues(func() (*matrix.Document, error) {
	return matrix.Parse(matrix.DefaultName, matrix.Default())
})

// siteURL is the apparent source of manifests.
const siteURL = "https://upstream.test/"
