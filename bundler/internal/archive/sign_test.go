package archive

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// tarEntry is a tar entry with a blob's name.
func tarEntry(d ocispec.Descriptor, data []byte) []byte {
	out := append(header(blobPrefix+d.Digest.Encoded(), int64(len(data))), data...)
	return append(out, make([]byte, padded(int64(len(data)))-int64(len(data)))...)
}

// partsOf lists the blobs of a signature, its manifest among them, with their bytes.
func partsOf(a bundle.Referrer) []ocispec.Descriptor {
	node := a.Node.Descriptor
	node.Data = a.Node.Data
	return append(slices.Clone(a.Blobs), node)
}

// The digests of a signature's parts can be told before it is made. Whoever had the
// archive before may have put other bytes under these names, and an earlier version that was
// interrupted may have left some.
func TestWhatHasTheNameOfASignaturesBlobInAnArchiveIsNotBelieved(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 220})
	sig := bundles.Signature(t, rootOf(b), 1)
	whole := read(t, written(t, b))
	l, err := NewLayout(b.Graph)
	require.NoError(t, err)
	first := l.entries[2].offset // where the blobs begin
	for n, d := range partsOf(sig) {
		planted := tarEntry(d, bytes.Repeat([]byte("x"), int(d.Size)+2000*n))
		for _, at := range []int{int(first), len(whole) - endSize} {
			path := filepath.Join(t.TempDir(), "b.tar")
			require.NoError(t, os.WriteFile(path, slices.Concat(whole[:at], planted, whole[at:]), 0o600))
			sign(t, path, sig)
			require.NoError(t, verifyPath(t.Context(), path))
		}
	}
}

func sign(t *testing.T, path string, atts ...bundle.Referrer) {
	for _, att := range atts {
		require.NoError(t, opened(t, path).Attach(t.Context(), att))
	}
}

// A split leaves the archive, and whoever signs that leaves the parts.
func TestSigningLeavesThePartsBesideIt(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 312})
	path := written(t, b)
	list, err := Split(t.Context(), path, path, Options{VolumeSize: 20_000})
	require.NoError(t, err)
	sign(t, path, bundles.Signature(t, rootOf(b), 1))
	require.NoError(t, verifyPath(t.Context(), path))
	require.NoError(t, verifyPath(t.Context(), list))
}

// What the archive that is written has no place for is not lost in silence.
func TestAnArchiveWithOtherNamesIsNotSigned(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 315})
	config := bundle.Blob(ocispec.MediaTypeEmptyJSON, []byte("{}"))
	n := bundle.NewManifest(ocispec.Manifest{ArtifactType: "application/x", Config: bundle.Plain(config)}).Descriptor
	for name, d := range map[string]ocispec.Descriptor{"other": n, "release-7": b.Graph.Root} {
		path := written(t, b)
		text := indexJSON(append(with(b.Graph.Names, b.Graph.Attachments...), named(bundle.Plain(d), name)), nil)
		l, err := NewLayout(b.Graph)
		require.NoError(t, err)
		e := l.entries[1]
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		_, err = f.WriteAt(spaced(text, e.size), e.dataOffset())
		require.NoError(t, errors.Join(err, f.Close()))
		before := contents(t, filepath.Dir(path))
		require.ErrorContains(t, opened(t, path).Attach(t.Context(), bundles.Signature(t, rootOf(b), 1)), name)
		require.Equal(t, before, contents(t, filepath.Dir(path)))
	}
}

// What only its owner may read is so while it is written again, too; and its writer may go on with it.
func TestAnArchiveIsWrittenAgainWithItsRights(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 316})
	path := written(t, b)
	require.NoError(t, os.Chmod(path, 0o400))
	w := &FileWriter{path: path, o: Options{Replace: true}, again: true}
	_, err := w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	info, err := os.Stat(path + partialSuffix)
	require.NoError(t, errors.Join(err, w.Close()))
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	sign(t, path, bundles.Signature(t, rootOf(b), 1))
	info, err = os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o400), info.Mode().Perm())
}

// A writer whose Close has failed holds no lock any more.
func TestAClosedWriterIsGivenUp(t *testing.T) {
	require.ErrorIs(t, (&FileWriter{fresh: true}).giveUp(os.ErrInvalid), os.ErrInvalid)
}

// A damaged archive is not signed, and stays as it is.
func TestADamagedArchiveIsNotSigned(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 314})
	path := written(t, b)
	l, err := NewLayout(b.Graph)
	require.NoError(t, err)
	flip(t, path, l.entries[len(l.entries)-1].dataOffset())
	before := contents(t, filepath.Dir(path))
	err = opened(t, path).Attach(t.Context(), bundles.Signature(t, rootOf(b), 1))
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
	require.Equal(t, before, contents(t, filepath.Dir(path)))
}
