// Package mirror puts bundles and their signatures into a test registry, in the layout of `vdo-bundle push` and
// `cosign sign` in a site's mirror.
//
//	m := mirror.New(t, reg, "vdo/drivers")
//	root := m.Push(t, "1", mirror.Bundle{Seed: 1, Serial: 5, Expires: later})
//	m.Sign(t, root, key)
package mirror

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

// Repository is a repository of a test registry.
type Repository struct {
	name.Repository
	Path string
	reg  *registry.Registry
}

// New returns a repository.
func New(t testing.TB, reg *registry.Registry, path string) *Repository {
	t.Helper()
	r, err := name.NewRepository(reg.Host + "/" + path)
	require.NoError(t, err)
	return &Repository{Repository: r, Path: path, reg: reg}
}

// Reference returns HOST/PATH:TAG.
func (r *Repository) Reference(tag string) string { return r.reg.Host + "/" + r.Path + ":" + tag }

func (r *Repository) options(ctx context.Context) []remote.Option {
	return []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(r.reg.Transport()),
		remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: r.reg.Username, Password: r.reg.Password})),
	}
}

// Bundle describes a bundle: three random images of one CSI release, under a matrix.
type Bundle struct {
	Seed    int64
	Version string    // of CSI; default 3.5.1
	Serial  int64     // of the matrix; default 1
	Expires time.Time // of the matrix; default 2099
	// MatrixSigner signs the matrix; nil: it has no signature of its own.
	MatrixSigner *trust.Signer
	// Matrix replaces the document.
	Matrix []byte
	// Operator is the version of the bundled operator, with the manifests of package deploy; "" for none. Its image
	// is one of the others.
	Operator string
}

// Push pushes a bundle under a tag and returns its root.
func (r *Repository) Push(t testing.TB, tag string, b Bundle) image.Digest {
	t.Helper()
	made := bundles.New(t, bundles.Options{Seed: b.Seed, LayerSize: 64, Layers: 1})
	c := made.Contents
	b.renumber(t, &c)
	c.Matrix, c.MatrixSignature = b.document(c), nil
	if b.MatrixSigner != nil {
		sig, err := b.MatrixSigner.SignBlob(c.Matrix)
		require.NoError(t, err)
		c.MatrixSignature = sig
	}
	b.withOperator(t, &c)
	c.Lock.Matrix = bundle.MatrixRef{Serial: b.serial(), Digest: image.DigestOf(c.Matrix), Size: int64(len(c.Matrix))}
	return r.push(t, tag, c, made.Trees, made.Store)
}

func (b Bundle) renumber(t testing.TB, c *bundle.Contents) {
	t.Helper()
	if b.Version == "" {
		return
	}
	version, err := matrix.ParseVersion(b.Version)
	require.NoError(t, err)
	r := &c.Lock.Releases[0]
	before := r.Path(r.Manifests[0])
	r.Version = version
	c.Manifests = map[string][]byte{r.Path(r.Manifests[0]): c.Manifests[before]}
	for i := range c.Lock.Images {
		c.Lock.Images[i].UsedBy = []string{r.ID()}
	}
}

func (b Bundle) withOperator(t testing.TB, c *bundle.Contents) {
	t.Helper()
	if b.Operator == "" {
		return
	}
	version, err := matrix.ParseVersion(b.Operator)
	require.NoError(t, err)
	r := bundle.Release{Driver: bundle.Operator, Version: version, Images: map[string]string{deploy.Image: c.Lock.Images[0].Reference.String()}}
	for _, m := range deploy.Manifests() {
		f := bundle.File{Name: m.Name, Digest: image.DigestOf(m.Data), Size: int64(len(m.Data))}
		r.Manifests = append(r.Manifests, f)
		c.Manifests[r.Path(f)] = m.Data
	}
	c.Lock.Images[0].UsedBy = append(c.Lock.Images[0].UsedBy, r.ID())
	c.Lock.Releases = append(c.Lock.Releases, r)
	c.Lock.Sort()
}

func (b Bundle) serial() int64 { return max(b.Serial, 1) }

func (b Bundle) document(c bundle.Contents) []byte {
	if b.Matrix != nil {
		return b.Matrix
	}
	expires := b.Expires
	if expires.IsZero() {
		expires = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	f := c.Lock.Releases[0].Manifests[0] // before the operator's release is added
	return fmt.Appendf(nil, `apiVersion: vdo.vmware.com/matrix/v1
kind: CompatibilityMatrix
serial: %d
issued: 2020-01-01T00:00:00Z
expires: %s
releases:
- driver: csi
  version: %s
  state: current
  kubernetes: {min: "1.31", max: "1.33", basis: "test"}
  vsphere: {min: "7.0.3", max: "8.0", basis: "test"}
  manifests:
  - name: %s
    url: %s
    size: %d
    sha256: %s
`, b.serial(), expires.UTC().Format(time.RFC3339), c.Lock.Releases[0].Version, f.Name, f.URL, f.Size, f.Digest.Hex())
}

// push pushes the parts of a bundle under a tag. bytesOf has the bytes of the images' layers.
func (r *Repository) push(
	t testing.TB, tag string, c bundle.Contents, trees []bundle.Tree, bytesOf bundles.Store,
) image.Digest {
	t.Helper()
	g, err := bundle.Assemble(c, trees)
	require.NoError(t, err)
	for _, d := range g.Order() {
		if d.Data != nil {
			bytesOf[d.Digest.String()] = d.Data
		}
	}
	for _, d := range g.Blobs {
		r.blob(t, bytesOf[d.Digest.String()], d.MediaType)
	}
	for _, n := range g.Manifests {
		r.manifest(t, r.Digest(n.Descriptor.Digest.String()), n.Data, n.Descriptor.MediaType)
	}
	root := g.Manifests[len(g.Manifests)-1]
	r.manifest(t, r.Tag(tag), root.Data, root.Descriptor.MediaType)
	return image.MustDigest(root.Descriptor.Digest.String())
}

func (r *Repository) blob(t testing.TB, data []byte, mediaType string) {
	t.Helper()
	require.NoError(t, remote.WriteLayer(r.Repository, static.NewLayer(data, types.MediaType(mediaType)), r.options(t.Context())...))
}

func (r *Repository) manifest(t testing.TB, at name.Reference, data []byte, mediaType string) {
	t.Helper()
	require.NoError(t, remote.Put(at, taggable{data, types.MediaType(mediaType)}, r.options(t.Context())...))
}

// Prune removes the manifest of a digest, like a mirror that keeps only the newest.
func (r *Repository) Prune(t testing.TB, d image.Digest) {
	t.Helper()
	require.NoError(t, remote.Delete(r.Digest(d.String()), r.options(t.Context())...))
}

// PutClaim puts a signed simple-signing claim under the signature tag of a bundle, with these annotations.
func (r *Repository) PutClaim(t testing.TB, root image.Digest, claim []byte, annotations map[string]string) {
	t.Helper()
	config := bundle.Blob(ocispec.MediaTypeImageConfig, []byte("{}"))
	blob := bundle.Blob(trust.SimpleSigningMediaType, claim)
	layer := bundle.Plain(blob)
	layer.Annotations = annotations
	node := bundle.NewManifest(ocispec.Manifest{Layers: []ocispec.Descriptor{layer}, Config: bundle.Plain(config)})
	signed, err := bundle.NewReferrer(root, image.Signatures.TagOf(root), node, config, blob)
	require.NoError(t, err)
	r.put(t, signed)
}

// Sign adds a signature by a key under cosign's tag.
func (r *Repository) Sign(t testing.TB, root image.Digest, s *trust.Signer) {
	t.Helper()
	var existing bundle.Referrer
	if d, err := remote.Get(r.Tag(image.Signatures.TagOf(root)), r.options(t.Context())...); err == nil {
		existing.Node.Data = d.Manifest
	}
	signed, err := s.Sign(root, r.reg.Host+"/"+r.Path, existing)
	require.NoError(t, err)
	r.put(t, signed)
}

// put puts what is new of a signature at cosign's location.
func (r *Repository) put(t testing.TB, signed bundle.Referrer) {
	t.Helper()
	for _, b := range signed.Blobs {
		if b.Data != nil {
			r.blob(t, b.Data, b.MediaType)
		}
	}
	r.manifest(t, r.Tag(signed.Tag), signed.Node.Data, ocispec.MediaTypeImageManifest)
}

type taggable struct {
	data      []byte
	mediaType types.MediaType
}

func (m taggable) RawManifest() ([]byte, error)        { return m.data, nil }
func (m taggable) MediaType() (types.MediaType, error) { return m.mediaType, nil }

// NewKey makes a signer and its public key in PEM.
func NewKey(t testing.TB) (*trust.Signer, string) {
	t.Helper()
	key := pki.Root(t, "signer") // not encrypted: scrypt is seconds of work under the race detector
	s, err := trust.LoadSigner("test.key", key.KeyPEM(), nil)
	require.NoError(t, err)
	return s, string(key.PublicPEM())
}

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
