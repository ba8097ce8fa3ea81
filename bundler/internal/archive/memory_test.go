package archive

import (
	"context"
	"crypto/sha256"
	"io"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

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
