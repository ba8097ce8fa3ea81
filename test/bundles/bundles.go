// Package bundles makes random bundles in memory, the same for the same seed, for tests of their readers and writers.
package bundles

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Store holds blobs and manifests by digest. It is a bundle.Fetcher.
type Store map[string][]byte

// Fetch returns the bytes of a descriptor from an offset.
func (s Store) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	data, ok := s[d.Digest.String()]
	if !ok {
		return nil, &fault.Error{Reason: fault.NotFound, Op: "fetch", Subject: d.Digest.String()}
	}
	return io.NopCloser(bytes.NewReader(data[min(offset, int64(len(data))):])), nil
}

// Opener returns the function by which a Target opens the bytes of d.
func (s Store) Opener(ctx context.Context, d ocispec.Descriptor) func(int64) (io.ReadCloser, error) {
	return func(offset int64) (io.ReadCloser, error) { return s.Fetch(ctx, d, offset) }
}

// Add stores data and returns its descriptor.
func (s Store) Add(mediaType string, data []byte) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	s[d.Digest.String()] = data
	return d
}

// Options of New; zero means default.
type Options struct {
	Seed      int64
	LayerSize int64 // bytes of each layer; default 5000
	Layers    int   // of each manifest; default 3
	PlainSize int64 // bytes of each layer of the plain manifest; default LayerSize
}

// Bundle is a bundle and all its bytes.
type Bundle struct {
	Graph    *bundle.Graph
	Contents bundle.Contents
	Trees    []bundle.Tree
	Store    Store
}

// New makes a bundle of one release with three images. They are an OCI index of two platforms, a Docker manifest
// list, and a plain OCI manifest under two names.
func New(t testing.TB, o Options) *Bundle {
	o.LayerSize, o.Layers = cmp.Or(o.LayerSize, 5000), cmp.Or(o.Layers, 3)
	large := o
	large.LayerSize = cmp.Or(o.PlainSize, o.LayerSize)
	src, store := rand.NewSource(o.Seed), Store{}
	plain := large.image(t, store, src, oci, "amd64")
	images := map[string]ocispec.Descriptor{
		"registry.test/oci/index:v1":     o.index(t, store, src, oci),
		"registry.test/docker/list:v2":   o.index(t, store, src, docker),
		"registry.test/plain/image:v3":   plain,
		"registry.test/plain/image:v3.1": plain,
	}
	b := &Bundle{Store: store}
	b.Contents = contents(t, o.Seed, images)
	for _, im := range b.Contents.Lock.Images {
		tree, err := bundle.ReadTree(t.Context(), store, images[im.Reference.String()])
		require.NoError(t, err)
		tree.Reference = im.Reference
		b.Trees = append(b.Trees, tree)
	}
	var err error
	b.Graph, err = bundle.Assemble(b.Contents, b.Trees)
	require.NoError(t, err)
	for _, d := range b.Graph.Order() {
		if d.Data != nil {
			store[d.Digest.String()] = d.Data
		}
	}
	return b
}

func contents(t testing.TB, seed int64, images map[string]ocispec.Descriptor) bundle.Contents {
	doc := fmt.Appendf(nil, "serial: %d\n", seed)
	manifest := fmt.Appendf(nil, "# manifest %d\n", seed)
	version, err := matrix.ParseVersion("3.5.1")
	require.NoError(t, err)
	r := bundle.Release{
		Driver: matrix.CSI, Version: version, Images: map[string]string{},
		Manifests: []bundle.File{{Name: "driver.yaml", URL: "https://manifests.test/driver.yaml", Digest: image.DigestOf(manifest), Size: int64(len(manifest))}},
	}
	lock := &bundle.Lock{
		APIVersion: bundle.LockAPIVersion, Kind: bundle.LockKind,
		Matrix:    bundle.MatrixRef{Serial: 1, Digest: image.DigestOf(doc), Size: int64(len(doc))},
		Platforms: []image.Platform{{}},
	}
	for ref, d := range images {
		r.Images[ref] = ref
		lock.Images = append(lock.Images, bundle.Image{
			Reference: image.MustReference(ref), Digest: image.MustDigest(d.Digest.String()),
			MediaType: d.MediaType, Size: d.Size, UsedBy: []string{r.ID()},
		})
	}
	lock.Releases = []bundle.Release{r}
	lock.Sort()
	return bundle.Contents{
		Lock: lock, Matrix: doc, MatrixSignature: []byte("signature"),
		Manifests: map[string][]byte{r.Path(r.Manifests[0]): manifest},
	}
}

// kinds are the media types of an index, its images, and their parts.
type kinds struct{ index, manifest, config, layer string }

var (
	oci = kinds{
		ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageManifest,
		ocispec.MediaTypeImageConfig, ocispec.MediaTypeImageLayerGzip,
	}
	docker = kinds{
		string(types.DockerManifestList), string(types.DockerManifestSchema2),
		string(types.DockerConfigJSON), string(types.DockerLayer),
	}
)

// index adds an index of two images.
func (o Options) index(t testing.TB, s Store, src rand.Source, is kinds) ocispec.Descriptor {
	t.Helper()
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: is.index}
	for _, arch := range []string{"amd64", "arm64"} {
		d := o.image(t, s, src, is, arch)
		d.Platform = &ocispec.Platform{OS: "linux", Architecture: arch}
		index.Manifests = append(index.Manifests, d)
	}
	return s.addJSON(t, is.index, index)
}

// image adds an image with random layers.
func (o Options) image(t testing.TB, s Store, src rand.Source, is kinds, arch string) ocispec.Descriptor {
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: is.manifest}
	config := ocispec.Image{
		Platform: ocispec.Platform{OS: "linux", Architecture: arch}, RootFS: ocispec.RootFS{Type: "layers"},
	}
	for range o.Layers {
		layer, err := random.Layer(o.LayerSize, types.MediaType(is.layer), random.WithSource(src))
		require.NoError(t, err)
		id, err := layer.DiffID()
		require.NoError(t, err)
		content, err := layer.Compressed()
		require.NoError(t, err)
		data, err := io.ReadAll(content)
		require.NoError(t, err)
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest.Digest(id.String()))
		m.Layers = append(m.Layers, s.Add(is.layer, data))
	}
	m.Config = s.addJSON(t, is.config, config)
	return s.addJSON(t, is.manifest, m)
}

func (s Store) addJSON(t testing.TB, mediaType string, v any) ocispec.Descriptor {
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return s.Add(mediaType, data)
}

// Signature makes a manifest under cosign's tag for a subject, different for each n.
func Signature(t testing.TB, subject image.Digest, n int) bundle.Referrer {
	payload := bundle.Blob("application/vnd.dev.cosign.simplesigning.v1+json", fmt.Appendf(nil, `{"n":%d}`, n))
	config := bundle.Blob(ocispec.MediaTypeImageConfig, []byte(`{}`))
	node := bundle.NewManifest(ocispec.Manifest{
		Config: bundle.Plain(config), Layers: []ocispec.Descriptor{bundle.Plain(payload)},
	})
	a, err := bundle.NewReferrer(subject, "sha256-"+subject.Hex()+".sig", node, config, payload)
	require.NoError(t, err)
	return a
}
