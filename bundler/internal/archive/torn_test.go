package archive

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// entryOf is a tar entry with a blob's name.
func entryOf(d ocispec.Descriptor, data []byte) []byte {
	out := append(header(blobPrefix+d.Digest.Encoded(), int64(len(data))), data...)
	return append(out, make([]byte, padded(int64(len(data)))-int64(len(data)))...)
}

// partsOf lists the blobs of a signature, its manifest among them, with their bytes.
func partsOf(a bundle.Attachment) []ocispec.Descriptor {
	node := a.Node.Descriptor
	node.Data = a.Node.Data
	return append(slices.Clone(a.Blobs), node)
}

// An interrupted signing leaves an entry whose first block is not there yet. Whoever signs
// next may make another signature, of which that entry is no part.
func TestSigningThatWasCutOffIsTakenBackByAnotherSignature(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 219})
	for _, form := range []string{"a file", "parts"} {
		t.Run(form, func(t *testing.T) {
			path := written(t, b)
			data := read(t, path)
			data = data[:len(data)-endSize]
			for _, d := range partsOf(bundles.Signature(t, rootOf(b), 1)) {
				data = append(data, entryOf(d, append(make([]byte, min(blockSize, d.Size)), d.Data[min(blockSize, d.Size):]...))...)
			}
			require.NoError(t, os.WriteFile(path, append(data, make([]byte, endSize)...), 0o600))
			if form == "parts" {
				path = changing(t, path)
			}
			f, err := OpenFile(path)
			require.NoError(t, err)
			defer f.Close()
			other := bundles.Signature(t, rootOf(b), 2)
			require.NoError(t, f.Attach(t.Context(), other))
			require.NoError(t, verify(t.Context(), f))
			require.NoError(t, f.Attach(t.Context(), bundles.Signature(t, rootOf(b), 1)))
			require.NoError(t, verify(t.Context(), f))
		})
	}
}

// changing cuts an archive into parts, as a signing leaves them that was interrupted.
func changing(t *testing.T, path string) string {
	t.Helper()
	list, err := Split(t.Context(), path, path, Options{VolumeSize: 20_000, Recovery: 1})
	require.NoError(t, err)
	changingList(t, list)
	require.NoError(t, os.Remove(path))
	return list
}

// The digests of a signature's parts can be told before it is made. Whoever had the
// archive before may have put other bytes under these names.
func TestWhatHasTheNameOfASignaturesBlobInAnArchiveIsNotBelieved(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 220})
	sig := bundles.Signature(t, rootOf(b), 1)
	whole := read(t, written(t, b))
	l, err := NewLayout(b.Graph)
	require.NoError(t, err)
	first := l.entries[2].offset // where the blobs begin
	for n, d := range partsOf(sig) {
		for name, data := range map[string][]byte{
			"of its size": bytes.Repeat([]byte("x"), int(d.Size)),
			"shorter":     []byte("x"),
			"longer":      bytes.Repeat([]byte("x"), int(d.Size)+2000),
		} {
			t.Run(fmt.Sprint(n, " ", name), func(t *testing.T) {
				planted := entryOf(d, data)
				path := filepath.Join(t.TempDir(), "b.tar")

				require.NoError(t, os.WriteFile(path, slices.Concat(whole[:len(whole)-endSize], planted, make([]byte, endSize)), 0o600))
				f, err := OpenFile(path)
				require.NoError(t, err)
				require.NoError(t, f.Attach(t.Context(), sig), "at the end it is what an interrupted signing leaves")
				require.NoError(t, verify(t.Context(), f))
				require.NoError(t, f.Close())

				before := slices.Concat(whole[:first], planted, whole[first:])
				require.NoError(t, os.WriteFile(path, before, 0o600))
				f, err = OpenFile(path)
				require.NoError(t, err)
				defer f.Close()
				err = f.Attach(t.Context(), sig)
				require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
				require.ErrorContains(t, err, d.Digest.Encoded())
				require.True(t, bytes.Equal(before, read(t, path)), "nothing was signed")
			})
		}
	}
}

// Entries that are whole stay, whether anything names them or not; so do those that
// another signature is made of.
func TestOnlyWhatIsTornIsTakenBack(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 221})
	path := written(t, b)
	for n := range 3 {
		f, err := OpenFile(path)
		require.NoError(t, err)
		require.NoError(t, f.Attach(t.Context(), bundles.Signature(t, rootOf(b), n)))
		require.NoError(t, f.Close())
	}
	before := read(t, path)
	name := digest.FromString("torn")
	torn := entryOf(ocispec.Descriptor{Digest: name}, []byte("not that"))
	require.NoError(t, os.WriteFile(path, slices.Concat(before[:len(before)-endSize], torn, make([]byte, endSize)), 0o600))
	f, err := OpenFile(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Attach(t.Context(), bundles.Signature(t, rootOf(b), 3)))
	require.NoError(t, verify(t.Context(), f))
	after := read(t, path)
	blobs := blockSize * 3 // behind oci-layout and the header of index.json
	l, err := NewLayout(b.Graph)
	require.NoError(t, err)
	blobs += int(l.entries[1].size)
	require.True(t, bytes.Equal(before[blobs:len(before)-endSize], after[blobs:len(before)-endSize]))
	require.NotContains(t, string(after), name.Encoded())
	require.NoFileExists(t, path+parts.Suffix)
}

func changingList(t *testing.T, path string) {
	t.Helper()
	l, err := readParts(path)
	require.NoError(t, err)
	l.Changing = true
	require.NoError(t, os.WriteFile(path, l.Text(), 0o600))
}
