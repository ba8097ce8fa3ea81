package archive

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"
	orasremote "oras.land/oras-go/v2/registry/remote"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

func writtenDir(t *testing.T, b *bundles.Bundle) string {
	t.Helper()
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
	good := read(t, filepath.Join(path, indexName))
	for at := range good {
		bad := append([]byte{}, good...)
		bad[at] ^= 1
		require.NoError(t, os.WriteFile(filepath.Join(path, indexName), bad, 0o600))
		if verifyPath(t.Context(), path) == nil { // other tools may write index.json otherwise, with the same meaning
			d, err := OpenDir(path)
			require.NoError(t, err)
			sameMeaning(t, entriesOf(b.Graph), d.index().entries, at)
			require.NoError(t, d.Close())
		}
	}
	require.NoError(t, os.Remove(filepath.Join(path, indexName)))
	require.ErrorContains(t, verifyPath(t.Context(), path), "it has no index.json")
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
	s := opened(t, path)
	_, err := s.Fetch(t.Context(), d)
	require.Equal(t, fault.Storage, fault.ReasonOf(err))
	require.ErrorContains(t, err, "path escapes")
}

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
		{"a part without a name", []ocispec.Descriptor{root, plain(img)}, "", false},
		{"an image by its name", []ocispec.Descriptor{root, named(plain(img), imgName)}, "", false},
		{"the note of a registry", []ocispec.Descriptor{root,
			named(foreign, "sha256-"+b.Graph.Root.Digest.Encoded()+".confirmed")}, "", false},
		{"an image by another's name", []ocispec.Descriptor{root, named(plain(elsewhere), imgName)},
			"as " + imgName + ", which is " + img.Digest.String() + " in this bundle", false},
		{"a stranger by an image's name", []ocispec.Descriptor{root, named(foreign, imgName)},
			"which is " + img.Digest.String() + " in this bundle", false},
		{"an image by a new name", []ocispec.Descriptor{root, named(plain(img), "registry.test/x:v9")},
			`as "registry.test/x:v9", which is not its name in this bundle`, false},
		{"a stranger", []ocispec.Descriptor{root, named(foreign, "2")}, `as "2", which is not of this bundle`, false},
		{"a signature of something else", []ocispec.Descriptor{root,
			named(sig.Node.Descriptor,
				"sha256-"+other.Graph.Root.Digest.Encoded()+".sig")}, "and that is not there", false},
		{"an image of another size", []ocispec.Descriptor{root,
			{MediaType: img.MediaType, Digest: img.Digest, Size: img.Size + 1}}, "index.json describes", false},
	} {
		t.Run(c.what, func(t *testing.T) {
			path := writtenDir(t, b)
			sign(t, path, sig)
			text, err := indexJSON(c.entries, nil)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(path, indexName), text, 0o600))
			err = verifyPath(t.Context(), path)
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
			d := opened(t, path)
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

// asDelta leaves every second layer of a bundle to a base.
func asDelta(t testing.TB, b *bundles.Bundle) {
	t.Helper()
	n := 0
	base := b.Graph.Without(image.DigestOf([]byte("base")), func(image.Digest) bool { n++; return n%2 == 0 })
	require.NoError(t, b.Graph.LeaveTo(base))
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

// crane's and oras's libraries write a delta into a repository that has the base,
// without asking for what it left out.
func TestOtherToolsPushADeltaIntoAFilledRepository(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 82})
	reg := registry.Start(t, registry.Options{})
	write := func(t *testing.T, dir, repository string) error {
		index, err := layout.ImageIndexFromPath(dir)
		require.NoError(t, err)
		images, err := index.IndexManifest()
		require.NoError(t, err)
		for _, d := range images.Manifests {
			ref, err := name.ParseReference(reg.Host+"/"+repository+"@"+d.Digest.String(), name.Insecure)
			require.NoError(t, err)
			if d.MediaType.IsIndex() {
				child, err := index.ImageIndex(d.Digest)
				require.NoError(t, err)
				if err := remote.WriteIndex(ref, child); err != nil {
					return err
				}
				continue
			}
			child, err := index.Image(d.Digest)
			require.NoError(t, err)
			if err := remote.Write(ref, child); err != nil {
				return err
			}
		}
		return nil
	}
	whole := writtenDir(t, b)
	asDelta(t, b)
	delta := writtenDir(t, b)
	// The base is another bundle that has the layers; here, the images without the root.
	require.NoError(t, write(t, whole, "filled"))
	require.Error(t, write(t, delta, "empty"), "what is left out has to be somewhere")
	require.NoError(t, write(t, delta, "filled"))

	store, err := oci.New(delta)
	require.NoError(t, err)
	repository, err := orasremote.NewRepository(reg.Host + "/filled")
	require.NoError(t, err)
	repository.PlainHTTP = true
	d, err := oras.Copy(t.Context(), store, bundle.RootName, repository, "copied", oras.DefaultCopyOptions)
	require.NoError(t, err)
	require.Equal(t, b.Graph.Root.Digest, d.Digest)
}
