package upstream

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

var (
	imageLine = regexp.MustCompile(`(?m)^\s*(?:- )?image: "?([^"\s]+)`)
	minReady  = regexp.MustCompile(`minReadySeconds: \d+`)
)

// Folder is what the folder of a driver's manifests is called.
func Folder(d matrix.Driver) string {
	for folder, driver := range folders {
		if driver == string(d) {
			return folder
		}
	}
	return ""
}

// Hurried is a manifest in which nothing has to settle: upstream lets the
// snapshot-controller do so for 35 s.
func Hurried(data []byte) []byte { return minReady.ReplaceAll(data, []byte("minReadySeconds: 0")) }

// Release is a release with the images that its manifests name, by how they are written
// there, and the manifests by their paths in a bundle; with edit, as that makes them.
func Release(t testing.TB, id matrix.ReleaseID, edit func([]byte) []byte) (bundle.Release, map[string][]byte) {
	t.Helper()
	out, manifests := bundle.Release{Driver: id.Driver, Version: id.Version, Images: map[string]string{}}, map[string][]byte{}
	files, err := filepath.Glob(filepath.Join(Dir(t), Folder(id.Driver), "v"+id.Version.String(), "*.y*ml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests of %s: %v", id, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file) //nolint:gosec // in the folder of the upstream manifests
		if err != nil {
			t.Fatal(err)
		}
		if edit != nil {
			data = edit(data)
		}
		name := filepath.Base(file)
		f := bundle.File{Name: name, URL: "https://upstream.test/" + name, Digest: image.DigestOf(data), Size: int64(len(data))}
		out.Manifests = append(out.Manifests, f)
		manifests[out.Path(f)] = data
		for _, match := range imageLine.FindAllSubmatch(data, -1) {
			written := string(match[1])
			out.Images[written] = image.MustReference(written).String()
		}
	}
	return out, manifests
}
