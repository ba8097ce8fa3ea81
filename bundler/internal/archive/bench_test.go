package archive

import (
	"context"
	"crypto/sha256"
	"io"
	"math/rand"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// benchBundle has 5 manifests' layers, 80 MiB together.
func benchBundle(b *testing.B) (bundle *bundles.Bundle, size int64) {
	b.Helper()
	bundle = bundles.New(b, bundles.Options{Seed: 50, LayerSize: 8 << 20, Layers: 2})
	l, err := NewLayout(bundle.Graph)
	require.NoError(b, err)
	return bundle, l.Size()
}

// BenchmarkSHA256 is the speed that the others are to be compared with.
func BenchmarkSHA256(b *testing.B) {
	data := make([]byte, 80<<20)
	_, err := rand.New(rand.NewSource(1)).Read(data)
	require.NoError(b, err)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		sha256.Sum256(data)
	}
}

// BenchmarkWrite writes a whole archive, to the last flush.
func BenchmarkWrite(b *testing.B) {
	src, size := benchBundle(b)
	b.SetBytes(size)
	for b.Loop() {
		w, err := CreateFile(filepath.Join(b.TempDir(), "b.tar"), Options{})
		require.NoError(b, err)
		require.NoError(b, pull(b.Context(), w, src, 1))
	}
}

// BenchmarkWriteAlone puts one blob after another, to show what one stream costs.
func BenchmarkWriteAlone(b *testing.B) {
	src, size := benchBundle(b)
	b.SetBytes(size)
	for b.Loop() {
		w, err := CreateFile(filepath.Join(b.TempDir(), "b.tar"), Options{})
		require.NoError(b, err)
		missing, err := w.Begin(b.Context(), src.Graph)
		require.NoError(b, err)
		for _, d := range missing {
			require.NoError(b, w.Put(b.Context(), d, src.Store.Opener(b.Context(), d)))
		}
		require.NoError(b, w.Commit(b.Context()))
	}
}

// BenchmarkVerify reads and hashes every byte of an archive.
func BenchmarkVerify(b *testing.B) {
	src, size := benchBundle(b)
	path := written(b, src)
	b.SetBytes(size)
	for b.Loop() {
		require.NoError(b, verifyPath(b.Context(), path))
	}
}

// BenchmarkOpen reads the headers and index.json only.
func BenchmarkOpen(b *testing.B) {
	src, _ := benchBundle(b)
	path := written(b, src)
	for b.Loop() {
		f, err := OpenFile(path)
		require.NoError(b, err)
		require.NoError(b, f.Close())
	}
}

// endless gives bytes without holding them, to see what writing itself allocates.
type endless struct{ left int64 }

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), e.left)
	clear(p[:n])
	e.left -= n
	return int(n), nil
}

func TestMemoryDoesNotGrowWithTheSizeOfABlob(t *testing.T) {
	allocated := func(size int64) float64 {
		sum := sha256.New()
		_, err := io.Copy(sum, &endless{left: size})
		require.NoError(t, err)
		d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.NewDigest(digest.SHA256, sum), Size: size}
		b := bundles.New(t, bundles.Options{Seed: 50, LayerSize: 100, Layers: 1})
		b.Graph.Blobs = append(b.Graph.Blobs, d)
		w, err := CreateFile(filepath.Join(t.TempDir(), "b.tar"), Options{})
		require.NoError(t, err)
		_, err = w.Begin(t.Context(), b.Graph)
		require.NoError(t, err)
		result := testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				s := w.blobs[d.Digest.Encoded()]
				s.done, s.offset, s.sum = false, 0, sha256.New()
				require.NoError(b, w.Put(context.Background(), d, func(int64) (io.ReadCloser, error) {
					return io.NopCloser(&endless{size}), nil
				}))
			}
		})
		require.NoError(t, w.Close())
		return float64(result.AllocedBytesPerOp())
	}
	small, large := allocated(1<<20), allocated(64<<20)
	require.Less(t, large-small, float64(1<<20), "64 MiB took %f bytes of memory, 1 MiB took %f", large, small)
}
