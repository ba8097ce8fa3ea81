package archive

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

func writtenDir(t *testing.T, b *bundles.Bundle) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "b")
	w, err := CreateDir(path, Options{})
	require.NoError(t, err)
	require.NoError(t, pull(t.Context(), w, b, 1))
	return path
}

func verifyDir(ctx context.Context, path string) error {
	d, err := OpenDir(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return verify(ctx, d)
}

func TestFoldersHoldTheSameAndOtherToolsReadThem(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 30})
	path := writtenDir(t, b)
	require.NoError(t, verifyDir(t.Context(), path))
	require.NoDirExists(t, filepath.Join(path, partialDir))
	index, err := layout.ImageIndexFromPath(path)
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
	w, err := CreateDir(path, Options{})
	require.NoError(t, err)
	missing, err := w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	require.Empty(t, missing, "the same bundle again has nothing to do")
	require.NoError(t, w.Commit(t.Context()))
}

func TestInterruptedFoldersGoOnWithinABlob(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 31, LayerSize: 40_000})
	path := filepath.Join(t.TempDir(), "b")
	w, err := CreateDir(path, Options{})
	require.NoError(t, err)
	missing, err := w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	d := missing[len(missing)-1]
	c := &cut{b.Store, 10_000}
	require.ErrorIs(t, w.Put(t.Context(), d, c.open(t.Context(), d)), errCut)
	require.Equal(t, fault.Incomplete, fault.ReasonOf(w.Commit(t.Context())))
	require.NoFileExists(t, filepath.Join(path, indexName))

	w, err = CreateDir(path, Options{})
	require.NoError(t, err)
	_, err = w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	from := int64(-1)
	require.NoError(t, w.Put(t.Context(), d, func(offset int64) (io.ReadCloser, error) {
		from = offset
		return b.Store.FetchFrom(t.Context(), d, offset)
	}))
	require.EqualValues(t, 10_000, from)
	require.NoError(t, pull(t.Context(), w, b, 1))
	require.NoError(t, verifyDir(t.Context(), path))
}

func TestAPartThatTheDiskLostIsFetchedAgain(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 32})
	path := filepath.Join(t.TempDir(), "b")
	w, err := CreateDir(path, Options{})
	require.NoError(t, err)
	missing, err := w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.partPath(missing[0]), make([]byte, 50), 0o600))
	require.NoError(t, pull(t.Context(), w, b, 1))
	require.NoError(t, verifyDir(t.Context(), path))
}

func TestFoldersOfSomethingElseAreNotTouched(t *testing.T) {
	b, other := bundles.New(t, bundles.Options{Seed: 33}), bundles.New(t, bundles.Options{Seed: 34})
	path := writtenDir(t, other)
	begin := func(path string, o Options) error {
		w, err := CreateDir(path, o)
		if err != nil {
			return err
		}
		_, err = w.Begin(t.Context(), b.Graph)
		return err
	}
	require.Equal(t, fault.Conflict, fault.ReasonOf(begin(path, Options{})))
	home := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(home, "thesis.txt"), nil, 0o600))
	require.Equal(t, fault.Conflict, fault.ReasonOf(begin(home, Options{})))
	require.Equal(t, fault.Storage, fault.ReasonOf(begin(filepath.Join(home, "thesis.txt"), Options{})))
	require.Equal(t, fault.Storage, fault.ReasonOf(begin(filepath.Join(home, "absent", "b"), Options{})))
	w, err := CreateDir(path, Options{Replace: true})
	require.NoError(t, err)
	require.NoError(t, pull(t.Context(), w, b, 1))
	d, err := OpenDir(path)
	require.NoError(t, err)
	defer d.Close()
	root, err := d.Root(t.Context())
	require.NoError(t, err)
	require.Equal(t, b.Graph.Root.Digest, root.Digest)
}

func TestFoldersAreSigned(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 35})
	path := writtenDir(t, b)
	d, err := OpenDir(path)
	require.NoError(t, err)
	defer d.Close()
	for n := range 2 {
		sig := bundles.Signature(t, rootOf(b), n)
		require.NoError(t, d.Attach(t.Context(), sig))
		list, err := d.Attachments(t.Context(), rootOf(b))
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, sig.Node.Descriptor.Digest, list[0].Digest)
		require.NoError(t, verify(t.Context(), d))
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
		require.Equal(t, fault.Corrupt, fault.ReasonOf(verifyDir(t.Context(), path)), d.Digest)
		require.NoError(t, os.WriteFile(blob, good[1:], 0o600))
		require.Equal(t, fault.Incomplete, fault.ReasonOf(verifyDir(t.Context(), path)), d.Digest)
		require.NoError(t, os.Remove(blob))
		require.Error(t, verifyDir(t.Context(), path), d.Digest)
		require.NoError(t, os.WriteFile(blob, good, 0o600))
	}
	require.NoError(t, verifyDir(t.Context(), path))
	good := read(t, filepath.Join(path, indexName))
	for at := range good {
		bad := append([]byte{}, good...)
		bad[at] ^= 1
		require.NoError(t, os.WriteFile(filepath.Join(path, indexName), bad, 0o600))
		if verifyDir(t.Context(), path) == nil { // other tools may write index.json otherwise, with the same meaning
			d, err := OpenDir(path)
			require.NoError(t, err)
			require.Equal(t, entriesOf(b.Graph), d.index().entries, "byte %d", at)
			require.NoError(t, d.Close())
		}
	}
	require.NoError(t, os.Remove(filepath.Join(path, indexName)))
	require.ErrorContains(t, verifyDir(t.Context(), path), "it has no index.json")
	_, err := OpenDir(path + "x")
	require.Equal(t, fault.NotFound, fault.ReasonOf(err))
}

func TestLinksOutOfAFolderAreNotFollowed(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 37})
	path := writtenDir(t, b)
	d := b.Graph.Blobs[0]
	blob := filepath.Join(path, blobPrefix, d.Digest.Encoded())
	outside := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.Rename(blob, outside))
	require.NoError(t, os.Symlink(outside, blob))
	s, err := OpenDir(path)
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Fetch(t.Context(), d)
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
	require.ErrorContains(t, err, "is a link out of the folder")
}

var _ bundle.Fetcher = (*Dir)(nil)
