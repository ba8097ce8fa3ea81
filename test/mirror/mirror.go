// Package mirror puts bundles and their signatures into a test registry, in the layout of `vdo-bundle push` and
// `cosign sign` in a site's mirror.
//
//	m := mirror.New(t, reg, "vdo/drivers")
//	root := m.Push(t, "1", mirror.Bundle{Seed: 1, Serial: 5})
//	m.Sign(t, root, key)
package mirror

import (
	"context"
	"maps"
	"slices"
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

// Bundle describes a bundle of releases with their manifests or stand-ins, [upstream.Hurried], under the project's own
// matrix. Its images are small random ones.
type Bundle struct {
	Seed     int64    // of the images; default 1
	Releases []string // DRIVER@VERSION; default csi@3.5.1
	Dir      string   // of the real manifests; "" uses stand-ins
	Serial   int64    // of the matrix; default 1
	// Edit changes the matrix, which expires in 2099; Matrix replaces it.
	Edit   func(*matrix.Document)
	Matrix []byte
	// MatrixSigner signs the matrix; nil: it has no signature of its own.
	MatrixSigner *trust.Signer
	// Operator is the version of the bundled operator, with the manifests of package deploy; "" for none.
	Operator string
}

// Push pushes a bundle under a tag and returns its root.
func (r *Repository) Push(t testing.TB, tag string, b Bundle) image.Digest {
	made := bundles.New(t, bundles.Options{Seed: max(b.Seed, 1), LayerSize: 64, Layers: 1})
	c := bundle.Contents{Manifests: map[string][]byte{}, Lock: &bundle.Lock{
		APIVersion: bundle.LockAPIVersion, Kind: bundle.LockKind, Platforms: []image.Platform{{}},
	}}
	if b.Releases == nil {
		b.Releases = []string{"csi@3.5.1"}
	}
	for _, text := range b.Releases {
		id, err := matrix.ParseReleaseID(text)
		require.NoError(t, err)
		release, manifests := upstream.Release(t, b.Dir, id, upstream.Hurried)
		maps.Copy(c.Manifests, manifests)
		c.Lock.Releases = append(c.Lock.Releases, release)
	}
	b.addMatrix(t, &c)
	b.addOperator(t, &c)
	trees := addImages(c.Lock, made.Trees)
	c.Lock.Sort()
	return r.push(t, tag, c, trees, made.Store)
}

func (b Bundle) addMatrix(t testing.TB, c *bundle.Contents) {
	doc := upstream.Listed(t, c.Manifests)
	doc.Serial = max(b.Serial, 1)
	doc.Issued, doc.Expires = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	if b.Edit != nil {
		b.Edit(doc)
	}
	var err error
	c.Matrix, err = doc.Marshal()
	require.NoError(t, err)
	if b.Matrix != nil {
		c.Matrix = b.Matrix
	}
	if b.MatrixSigner != nil {
		c.MatrixSignature, err = b.MatrixSigner.SignBlob(c.Matrix)
		require.NoError(t, err)
	}
	c.Lock.Matrix = bundle.MatrixRef{Serial: doc.Serial, Digest: image.DigestOf(c.Matrix), Size: int64(len(c.Matrix))}
}

func (b Bundle) addOperator(t testing.TB, c *bundle.Contents) {
	if b.Operator == "" {
		return
	}
	version, err := matrix.ParseVersion(b.Operator)
	require.NoError(t, err)
	r := bundle.Release{
		Driver: bundle.Operator, Version: version, Images: map[string]string{deploy.Image: "registry.test/vdo/operator:v1"},
	}
	for _, m := range deploy.Manifests() {
		f := bundle.File{Name: m.Name, Digest: image.DigestOf(m.Data), Size: int64(len(m.Data))}
		r.Manifests = append(r.Manifests, f)
		c.Manifests[r.Path(f)] = m.Data
	}
	c.Lock.Releases = append(c.Lock.Releases, r)
}

// addImages lists the images of the releases. Their contents are trees in turn, under their names.
func addImages(lock *bundle.Lock, trees []bundle.Tree) (named []bundle.Tree) {
	users := map[string][]string{}
	for _, r := range lock.Releases {
		for _, reference := range r.Images {
			users[reference] = append(users[reference], r.ID())
		}
	}
	for i, reference := range slices.Sorted(maps.Keys(users)) {
		tree := trees[i%len(trees)]
		tree.Reference = image.MustReference(reference)
		named = append(named, tree)
		lock.Images = append(lock.Images, bundle.Image{
			Reference: tree.Reference, Digest: image.MustDigest(tree.Root.Digest.String()),
			MediaType: tree.Root.MediaType, Size: tree.Root.Size, UsedBy: users[reference],
		})
	}
	return named
}

// push pushes the parts of a bundle under a tag. bytesOf has the bytes of the images' layers.
func (r *Repository) push(
	t testing.TB, tag string, c bundle.Contents, trees []bundle.Tree, bytesOf bundles.Store,
) image.Digest {
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
	require.NoError(t, remote.WriteLayer(r.Repository, static.NewLayer(data, types.MediaType(mediaType)), r.options(t.Context())...))
}

func (r *Repository) manifest(t testing.TB, at name.Reference, data []byte, mediaType string) {
	require.NoError(t, remote.Put(at, taggable{data, types.MediaType(mediaType)}, r.options(t.Context())...))
}

// Prune removes the manifest of a digest, like a mirror that keeps only the newest.
func (r *Repository) Prune(t testing.TB, d image.Digest) {
	require.NoError(t, remote.Delete(r.Digest(d.String()), r.options(t.Context())...))
}

// PutClaim puts a signed simple-signing claim under the signature tag of a bundle, with these annotations.
func (r *Repository) PutClaim(t testing.TB, root image.Digest, claim []byte, annotations map[string]string) {
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
	key := pki.Root(t, "signer") // not encrypted: scrypt is seconds of work under the race detector
	s, err := trust.LoadSigner("test.key", key.KeyPEM(), nil)
	require.NoError(t, err)
	return s, string(key.PublicPEM())
}
