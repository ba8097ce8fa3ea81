package mirror

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

// Drivers is a bundle of releases with their real upstream manifests, under the project's own
// matrix. Each image that they name is the same small random one, and nothing is made to
// settle: upstream lets the snapshot-controller do so for 35 s.
type Drivers struct {
	Releases []string // DRIVER@VERSION
	Serial   int64    // of the matrix; default 1
	// Edit changes the matrix; nil: it is as the project has it.
	Edit func(*matrix.Document)
}

var (
	folders   = map[matrix.Driver]string{matrix.CPI: "cpi", matrix.CSI: "csi", matrix.SnapshotController: "external-snapshotter", matrix.CNI: "antrea"}
	imageLine = regexp.MustCompile(`(?m)^\s*(?:- )?image: "?([^"\s]+)`)
	minReady  = regexp.MustCompile(`minReadySeconds: \d+`)
)

// PushDrivers puts a bundle of drivers under a tag and returns its root.
func (r *Repository) PushDrivers(t testing.TB, tag string, d Drivers) image.Digest {
	t.Helper()
	made := bundles.New(t, bundles.Options{Seed: 1, LayerSize: 64, Layers: 1})
	c := bundle.Contents{Manifests: map[string][]byte{}, Lock: &bundle.Lock{APIVersion: bundle.LockAPIVersion, Kind: bundle.LockKind, Platforms: []image.Platform{{}}}}
	some := made.Trees[0]
	var trees []bundle.Tree
	at := map[string]int{}
	for _, text := range d.Releases {
		release := d.release(t, text, c.Manifests)
		for _, ref := range release.Images {
			if _, known := at[ref]; !known {
				at[ref] = len(c.Lock.Images)
				tree := some
				tree.Reference = image.MustReference(ref)
				trees = append(trees, tree)
				c.Lock.Images = append(c.Lock.Images, bundle.Image{Reference: tree.Reference, Digest: image.MustDigest(some.Root.Digest.String()), MediaType: some.Root.MediaType, Size: some.Root.Size})
			}
			used := &c.Lock.Images[at[ref]]
			used.UsedBy = append(used.UsedBy, release.ID())
		}
		c.Lock.Releases = append(c.Lock.Releases, release)
	}
	doc := upstream.Listed(t, c.Manifests)
	doc.Serial, doc.Issued, doc.Expires = max(d.Serial, 1), time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	if d.Edit != nil {
		d.Edit(doc)
	}
	var err error
	c.Matrix, err = doc.Marshal()
	require.NoError(t, err)
	c.Lock.Matrix = bundle.MatrixRef{Serial: doc.Serial, Digest: image.DigestOf(c.Matrix), Size: int64(len(c.Matrix))}
	c.Lock.Sort()
	g, err := bundle.Assemble(c, trees)
	require.NoError(t, err)
	for _, part := range g.Order() {
		if part.Data != nil {
			made.Store[part.Digest.String()] = part.Data
		}
	}
	return r.push(t, tag, g, made.Store)
}

// release reads a release's manifests, and names the images in them.
func (d Drivers) release(t testing.TB, text string, manifests map[string][]byte) bundle.Release {
	t.Helper()
	id, err := matrix.ParseReleaseID(text)
	require.NoError(t, err)
	release := bundle.Release{Driver: id.Driver, Version: id.Version, Images: map[string]string{}}
	files, err := filepath.Glob(filepath.Join(upstream.Dir(t), folders[id.Driver], "v"+id.Version.String(), "*.y*ml"))
	require.NoError(t, err)
	require.NotEmpty(t, files, id)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		data = minReady.ReplaceAll(data, []byte("minReadySeconds: 0"))
		f := bundle.File{Name: filepath.Base(file), URL: "https://upstream.test/" + filepath.Base(file), Digest: image.DigestOf(data), Size: int64(len(data))}
		release.Manifests = append(release.Manifests, f)
		manifests[release.Path(f)] = data
		for _, match := range imageLine.FindAllSubmatch(data, -1) {
			release.Images[string(match[1])] = image.MustReference(string(match[1])).String()
		}
	}
	return release
}
