package archive

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

func writtenDir(t *testing.T, b *bundles.Bundle) string {
	s := store{path: filepath.Join(t.TempDir(), "b"), dir: true}
	require.NoError(t, s.pull(t, b))
	return s.path
}

func TestOtherToolsReadFolders(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 30})
	index, err := layout.ImageIndexFromPath(writtenDir(t, b))
	require.NoError(t, err)
	for _, im := range b.Graph.Images() {
		digest, err := v1.NewHash(im.Digest.String())
		require.NoError(t, err)
		if im.MediaType == ocispec.MediaTypeImageManifest {
			got, err := index.Image(digest)
			require.NoError(t, err)
			require.NoError(t, validate.Image(got))
			continue
		}
		got, err := index.ImageIndex(digest)
		require.NoError(t, err)
		require.NoError(t, validate.Index(got))
	}
}

func TestDamagedFoldersAreFoundOut(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 36, LayerSize: 300, Layers: 1})
	path := writtenDir(t, b)
	for _, d := range b.Graph.Order() {
		blob := filepath.Join(path, blobPrefix, d.Digest.Encoded())
		good := read(t, blob)
		flipped := append([]byte{}, good...)
		flipped[len(flipped)/2] ^= 4
		require.NoError(t, os.WriteFile(blob, flipped, 0o600))
		require.Equal(t, fault.Corrupt, fault.ReasonOf(verifyPath(t.Context(), path)), d.Digest)
		require.NoError(t, os.WriteFile(blob, good[1:], 0o600))
		require.Equal(t, fault.Incomplete, fault.ReasonOf(verifyPath(t.Context(), path)), d.Digest)
		require.NoError(t, os.Remove(blob))
		require.Error(t, verifyPath(t.Context(), path), d.Digest)
		require.NoError(t, os.WriteFile(blob, good, 0o600))
	}
	require.NoError(t, verifyPath(t.Context(), path))
	require.NoError(t, os.Remove(filepath.Join(path, indexName)))
	require.ErrorContains(t, verifyPath(t.Context(), path), "it has no index.json")
	_, err := OpenDir(path + "x")
	require.Equal(t, fault.NotFound, fault.ReasonOf(err))
}

// Blobs without an index.json may be another tool's, such as those that several layouts share.
func TestBlobsAloneAreNoInterruptedRun(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 42})
	for _, s := range []store{{dir: true}, store{dir: true}.replacing()} {
		s.path = t.TempDir()
		blob := filepath.Join(s.path, blobPrefix, image.DigestOf(nil).Hex())
		require.NoError(t, os.MkdirAll(filepath.Dir(blob), 0o755))
		require.NoError(t, os.WriteFile(blob, nil, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(s.path, "oci-layout"), nil, 0o600))
		require.Equal(t, fault.Conflict, fault.ReasonOf(s.pull(t, b)))
		require.FileExists(t, blob)
	}
	s := store{path: t.TempDir(), dir: true}.replacing()
	require.NoError(t, os.Mkdir(filepath.Join(s.path, "lost+found"), 0o755))
	halfway(t, s, b)
	require.NoError(t, s.pull(t, b), "the user has said so, and the run was this program's")
}

func TestLinksOutOfAFolderAreNotFollowed(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 37})
	path := writtenDir(t, b)
	d := b.Graph.Blobs[0]
	blob := filepath.Join(path, blobPrefix, d.Digest.Encoded())
	outside := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.Rename(blob, outside))
	require.NoError(t, os.Symlink(outside, blob))
	s := opened(t, path)
	_, err := s.Fetch(t.Context(), d, 0)
	require.Equal(t, fault.Storage, fault.ReasonOf(err))
	require.ErrorContains(t, err, "path escapes")
}

// A folder that another tool wrote is taken, as long as it holds one bundle and what
// is about it, and no name deceives.
func TestFoldersOfOtherTools(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 38})
	sig, other := bundles.Signature(t, rootOf(b), 1), bundles.New(t, bundles.Options{Seed: 39})
	root := named(bundle.Plain(b.Graph.Root), "1")
	tag := sig.Tag
	img, elsewhere := b.Graph.Names[1], b.Graph.Names[2]
	imgName := img.Annotations[ocispec.AnnotationRefName]
	foreign := bundle.Plain(other.Graph.Names[1])
	foreign.MediaType = ocispec.MediaTypeImageManifest
	for _, c := range []struct {
		what    string
		entries []ocispec.Descriptor
		want    string // error; "": none
		signed  bool
	}{
		{"root alone, without a name", []ocispec.Descriptor{bundle.Plain(b.Graph.Root)}, "", false},
		{"signature before the root", []ocispec.Descriptor{named(sig.Node.Descriptor, tag), root}, "", true},
		{"a part without a name", []ocispec.Descriptor{root, bundle.Plain(img)}, "", false},
		{"an image by its name", []ocispec.Descriptor{root, named(bundle.Plain(img), imgName)}, "", false},
		{"the note of a registry", []ocispec.Descriptor{root,
			named(foreign, "sha256-"+b.Graph.Root.Digest.Encoded()+".confirmed")}, "", false},
		{"an image by another's name", []ocispec.Descriptor{root, named(bundle.Plain(elsewhere), imgName)},
			"which this bundle does not have under that name", false},
		{"a stranger by an image's name", []ocispec.Descriptor{root, named(foreign, imgName)},
			"which this bundle does not have under that name", false},
		{"an image by a new name", []ocispec.Descriptor{root, named(bundle.Plain(img), "registry.test/x:v9")},
			"which this bundle does not have under that name", false},
		{"a stranger", []ocispec.Descriptor{root, named(foreign, "2")}, "which this bundle does not have under that name", false},
		{"a signature of something else", []ocispec.Descriptor{root,
			named(sig.Node.Descriptor, "sha256-"+other.Graph.Root.Digest.Encoded()+".sig")}, "and that is not there", false},
		{"an image of another size", []ocispec.Descriptor{root,
			{MediaType: img.MediaType, Digest: img.Digest, Size: img.Size + 1}}, "which this bundle does not have under that name", false},
	} {
		t.Run(c.what, func(t *testing.T) {
			path := writtenDir(t, b)
			sign(t, path, sig)
			text := indexJSON(c.entries, nil)
			require.NoError(t, os.WriteFile(filepath.Join(path, indexName), text, 0o600))
			err := verifyPath(t.Context(), path)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
				return
			}
			require.NoError(t, err)
			list, err := opened(t, path).Attachments(t.Context(), rootOf(b))
			require.NoError(t, err)
			require.Equal(t, c.signed, len(list) == 1)
			if c.signed {
				require.Equal(t, tag, list[0].Annotations[ocispec.AnnotationRefName])
			}
		})
	}
}

// counted counts how often each blob is fetched.
type counted struct {
	bundle.Fetcher
	times map[digest.Digest]int
}

func (c counted) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	c.times[d.Digest]++
	return c.Fetcher.Fetch(ctx, d, offset)
}

// A small index.json may name one large blob many times: it is read once, and what a list names is counted.
func TestManyEntriesOfOneBlobTakeLittle(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 41})
	of := []ocispec.Descriptor{bundle.Plain(b.Graph.Manifests[0].Descriptor)}
	list := indexJSON(slices.Repeat(of, 2000), nil)
	nested, sig := b.Store.Add(ocispec.MediaTypeImageIndex, list), bundles.Signature(t, rootOf(b), 1)
	manifest := b.Store.Add(ocispec.MediaTypeImageManifest, sig.Node.Data)
	for _, of := range partsOf(sig) {
		b.Store.Add(of.MediaType, of.Data)
	}
	entries := []ocispec.Descriptor{bundle.Plain(b.Graph.Root)}
	for n := range 50 {
		tag := image.DigestOf([]byte{byte(n)}).Hex()
		entries = append(entries, named(nested, "sha256-"+tag), named(manifest, "sha256-"+tag+".sig"), manifest, nested)
	}
	from := counted{b.Store, map[digest.Digest]int{}}
	x := &index{path: "b", entries: entries, from: from}
	_, err := x.root(t.Context())
	require.NoError(t, err)
	_, err = x.attachments(t.Context(), rootOf(b))
	require.ErrorContains(t, err, "more than 4096")
	require.Equal(t, []int{2, 1}, []int{from.times[nested.Digest], from.times[manifest.Digest]}, "once for each look")
	many := slices.Repeat([]ocispec.Descriptor{named(manifest, sig.Tag)}, 5000)
	x = &index{path: "b", entries: append(entries[:1], many...), from: from}
	_, err = x.checkEntries(t.Context(), b.Graph)
	require.ErrorContains(t, err, "more than 4096")
	require.ErrorContains(t, err, "4951 more problems are not listed")
}

func named(d ocispec.Descriptor, name string) ocispec.Descriptor {
	d.Annotations = map[string]string{ocispec.AnnotationRefName: name}
	return d
}

// The digests of what a signature consists of can be known beforehand: other bytes that
// lie under such a name are not taken for it.
func TestASignatureIsNotMadeOfWhatLiesUnderItsNames(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 35})
	sig := bundles.Signature(t, rootOf(b), 1)
	path := writtenDir(t, b)
	for _, d := range partsOf(sig) {
		require.NoError(t, os.WriteFile(filepath.Join(path, blobName(d)), bytes.Repeat([]byte("x"), len(d.Data)), 0o600))
	}
	sign(t, path, sig)
	require.NoError(t, verifyPath(t.Context(), path))
}

// asDelta leaves every second layer of a bundle to a base.
func asDelta(t testing.TB, b *bundles.Bundle) {
	n := 0
	base := b.Graph.Without(image.DigestOf([]byte("base")), func(image.Digest) bool { n++; return n%2 == 0 })
	require.NoError(t, b.Graph.OmitFor(base))
}

// A list that names what the images do not have, or an archive that lacks what the
// list does not name, is not a delta.
func TestAFalseListIsFound(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 81})
	asDelta(t, b)
	b.Graph.Base.Layers = append([]image.Digest(nil), b.Graph.Base.Layers...)
	first := digest.Digest(b.Graph.Base.Layers[0].String())
	path := written(t, b)
	data := read(t, path)
	at := bytes.Index(data, []byte(first))
	require.Positive(t, at)
	for i := at + len("sha256:"); i < at+len(first); i++ {
		data[i] = '0'
	}
	require.NoError(t, os.WriteFile(path, data, 0o600))
	err := opened(t, path).CheckLayout(t.Context())
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
	require.Contains(t, err.Error(), "not a layer of its images")
}
