package mirror

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

// Drivers is a bundle of releases with their manifests or stand-ins, under the project's own matrix. All images are
// the same small random one. The manifests are [upstream.Hurried].
type Drivers struct {
	Dir      string   // of the real manifests; "" uses stand-ins
	Releases []string // DRIVER@VERSION
	Serial   int64    // of the matrix; default 1
	Seed     int64    // of the image; default 1
	// Edit changes the matrix; nil keeps the project's.
	Edit func(*matrix.Document)
}

// PushDrivers pushes a bundle of drivers under a tag and returns its root.
func (r *Repository) PushDrivers(t testing.TB, tag string, d Drivers) image.Digest {
	t.Helper()
	made := bundles.New(t, bundles.Options{Seed: max(d.Seed, 1), LayerSize: 64, Layers: 1})
	c := bundle.Contents{Manifests: map[string][]byte{}, Lock: &bundle.Lock{APIVersion: bundle.LockAPIVersion, Kind: bundle.LockKind, Platforms: []image.Platform{{}}}}
	some := made.Trees[0]
	var trees []bundle.Tree
	at := map[string]int{}
	for _, text := range d.Releases {
		id, err := matrix.ParseReleaseID(text)
		require.NoError(t, err)
		release, manifests := upstream.Release(t, d.Dir, id, upstream.Hurried)
		maps.Copy(c.Manifests, manifests)
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
	return r.push(t, tag, c, trees, made.Store)
}
