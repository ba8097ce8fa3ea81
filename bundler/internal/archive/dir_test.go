package archive

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"syscall"
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
	lacking := writtenDir(t, b)
	require.NoError(t, os.Remove(filepath.Join(lacking, blobPrefix, b.Graph.Images()[0].Digest.Encoded())))
	d, err := OpenDir(lacking)
	require.NoError(t, err)
	_, err = bundle.Load(t.Context(), d, b.Graph.Root)
	require.EqualError(t, d.CheckLayout(t.Context()), err.Error(), "who reports both reports it once")
	require.NoError(t, d.Close())
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
	require.NoError(t, w.Close())

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
	require.NoError(t, os.WriteFile(filepath.Join(path, partName(missing[0])), make([]byte, 50), 0o600))
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
	require.Len(t, mustList(t, filepath.Join(path, blobPrefix)), len(b.Graph.Order()), "what was replaced is gone")
	require.NoError(t, verifyDir(t.Context(), path))
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
			sameMeaning(t, entriesOf(b.Graph), d.index().entries, at)
			require.NoError(t, d.Close())
		}
	}
	require.NoError(t, os.Remove(filepath.Join(path, indexName)))
	require.ErrorContains(t, verifyDir(t.Context(), path), "it has no index.json")
	_, err := OpenDir(path + "x")
	require.Equal(t, fault.NotFound, fault.ReasonOf(err))
}

// sameMeaning demands that entries name what they should, or less: the root goes by
// its digest, whatever it is called, and an image may have lost its name.
func sameMeaning(t *testing.T, want, got []ocispec.Descriptor, at int) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, d := range got {
		if name := d.Annotations[ocispec.AnnotationRefName]; i > 0 && name != "" {
			require.Equal(t, want[i].Annotations[ocispec.AnnotationRefName], name, "byte %d", at)
		}
		require.Equal(t, plain(want[i]), plain(d), "byte %d", at)
	}
}

func plain(d ocispec.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
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

// A folder that another tool wrote is taken, as long as it holds one bundle and what
// is about it, and no name deceives.
func TestFoldersOfOtherTools(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 38})
	sig, other := bundles.Signature(t, rootOf(b), 1), bundles.New(t, bundles.Options{Seed: 39})
	root := named(plain(b.Graph.Root), "1")
	tag := sig.Tag
	img, elsewhere := b.Graph.Names[1], b.Graph.Names[2]
	imgName := img.Annotations[ocispec.AnnotationRefName]
	foreign := plain(other.Graph.Names[1])
	foreign.MediaType = ocispec.MediaTypeImageManifest
	for _, c := range []struct {
		what    string
		entries []ocispec.Descriptor
		want    string // error; "": none
		signed  bool
	}{
		{"root alone, without a name", []ocispec.Descriptor{plain(b.Graph.Root)}, "", false},
		{"signature before the root", []ocispec.Descriptor{named(sig.Node.Descriptor, tag), root}, "", true},
		{"whole references", []ocispec.Descriptor{named(plain(b.Graph.Root), "r.test:5000/a:1"), named(sig.Node.Descriptor, "r.test:5000/a:"+tag)}, "", true},
		{"a part without a name", []ocispec.Descriptor{root, plain(img)}, "", false},
		{"an image by its name", []ocispec.Descriptor{root, named(plain(img), imgName)}, "", false},
		{"the note of a registry", []ocispec.Descriptor{root, named(foreign, "sha256-"+b.Graph.Root.Digest.Encoded()+".confirmed")}, "", false},
		{"an image by another's name", []ocispec.Descriptor{root, named(plain(elsewhere), imgName)}, "as " + imgName + ", which is " + img.Digest.String() + " in this bundle", false},
		{"a stranger by an image's name", []ocispec.Descriptor{root, named(foreign, imgName)}, "which is " + img.Digest.String() + " in this bundle", false},
		{"an image by a new name", []ocispec.Descriptor{root, named(plain(img), "registry.test/x:v9")}, `as "registry.test/x:v9", which is not its name in this bundle`, false},
		{"a stranger", []ocispec.Descriptor{root, named(foreign, "2")}, `as "2", which is not of this bundle`, false},
		{"a signature of something else", []ocispec.Descriptor{root, named(sig.Node.Descriptor, "sha256-"+other.Graph.Root.Digest.Encoded()+".sig")}, "and that is not there", false},
		{"an image of another size", []ocispec.Descriptor{root, {MediaType: img.MediaType, Digest: img.Digest, Size: img.Size + 1}}, "index.json describes", false},
	} {
		t.Run(c.what, func(t *testing.T) {
			path := writtenDir(t, b)
			d, err := OpenDir(path)
			require.NoError(t, err)
			require.NoError(t, d.Attach(t.Context(), sig))
			require.NoError(t, d.Close())
			text, err := indexJSON(c.entries, nil)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(path, indexName), text, 0o600))
			err = verifyDir(t.Context(), path)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
				return
			}
			require.NoError(t, err)
			d, err = OpenDir(path)
			require.NoError(t, err)
			defer d.Close()
			list, err := d.Attachments(t.Context(), rootOf(b))
			require.NoError(t, err)
			require.Equal(t, c.signed, len(list) == 1)
			if c.signed {
				require.Equal(t, tag, list[0].Annotations[ocispec.AnnotationRefName])
			}
		})
	}
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
	require.NotEmpty(t, sig.Blobs)
	for name, plant := range map[string]func(path string, data []byte) error{
		"other bytes of that size": func(path string, data []byte) error {
			return os.WriteFile(path, bytes.Repeat([]byte("x"), len(data)), 0o600)
		},
		"a link": func(path string, _ []byte) error { return os.Symlink("../../index.json", path) },
		"a pipe": func(path string, _ []byte) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			path := writtenDir(t, b)
			for _, blob := range sig.Blobs {
				require.NoError(t, plant(filepath.Join(path, "blobs", "sha256", blob.Digest.Encoded()), blob.Data))
			}
			d, err := OpenDir(path)
			require.NoError(t, err)
			defer d.Close()
			require.NoError(t, d.Attach(t.Context(), sig))
			for _, blob := range sig.Blobs {
				got, err := os.ReadFile(filepath.Join(path, "blobs", "sha256", blob.Digest.Encoded()))
				require.NoError(t, err)
				require.Equal(t, string(blob.Data), string(got))
			}
			require.NoError(t, verify(t.Context(), d))
		})
	}
}
