package archive

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/ondisk"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// Who is told where a blob lies finds its bytes there, in files, parts and folders; and
// is told another state once one of them was written to, and the same as long as not.
func TestABlobLiesWhereItsStreamSays(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 71})
	file, dir := filepath.Join(t.TempDir(), "b.tar"), t.TempDir()+"/b"
	w, err := CreateFile(file, Options{})
	require.NoError(t, err)
	require.NoError(t, pull(t.Context(), w, b, 1))
	into, err := CreateDir(dir, Options{})
	require.NoError(t, err)
	require.NoError(t, pull(t.Context(), into, b, 1))
	type medium interface {
		FetchFrom(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error)
		Close() error
	}
	for name, open := range map[string]func() (medium, error){
		"file":   func() (medium, error) { return OpenFile(file) },
		"parts":  func() (medium, error) { return OpenFile(inParts(t, b, Options{VolumeSize: 7000})) },
		"folder": func() (medium, error) { return OpenDir(dir) },
	} {
		t.Run(name, func(t *testing.T) {
			m, err := open()
			require.NoError(t, err)
			defer m.Close() //nolint:errcheck // only read
			for _, d := range b.Graph.Blobs {
				rc, err := m.FetchFrom(t.Context(), d, d.Size/2)
				require.NoError(t, err)
				disk := ondisk.Of(rc)
				require.NotNil(t, disk)
				require.Equal(t, d.Size, disk.Size)
				lies := wantLies(t, d, disk)
				before, err := disk.State()
				require.NoError(t, err)
				require.Empty(t, disk.Verified)
				_, err = io.Copy(io.Discard, rc)
				require.NoError(t, err)
				same, err := disk.State()
				require.NoError(t, err)
				require.Equal(t, before, same, "reading changes nothing")
				time.Sleep(20 * time.Millisecond) // a tick of any clock
				rewrite(t, lies)
				after, err := disk.State()
				require.NoError(t, err)
				require.NotEqual(t, before, after)
				require.NoError(t, rc.Close())
			}
		})
	}
}

// wantLies reads a blob by its spans, and returns its last file.
func wantLies(t *testing.T, d ocispec.Descriptor, disk *ondisk.Blob) (last *os.File) {
	t.Helper()
	var spans, whole []byte
	for int64(len(spans)) < d.Size {
		f, at, n := disk.Span(int64(len(spans)))
		require.Positive(t, n)
		data := make([]byte, n)
		_, err := f.ReadAt(data, at)
		require.NoError(t, err)
		spans, last = append(spans, data...), f
	}
	whole = make([]byte, d.Size)
	_, err := disk.ReadAt(whole, 0)
	require.NoError(t, err)
	require.Equal(t, d.Digest, d.Digest.Algorithm().FromBytes(spans))
	require.Equal(t, d.Digest, d.Digest.Algorithm().FromBytes(whole))
	return last
}

// rewrite writes the first byte of a file again.
func rewrite(t *testing.T, f *os.File) {
	t.Helper()
	w, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
	require.NoError(t, err)
	defer w.Close() //nolint:errcheck // it was written
	first := make([]byte, 1)
	_, err = w.ReadAt(first, 0)
	require.NoError(t, err)
	_, err = w.WriteAt(first, 0)
	require.NoError(t, err)
}
