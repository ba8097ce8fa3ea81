package archive

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

func TestStreamIsTheFileAndIsReadFromAPipe(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 21})
	want := streamed(t, b)
	var out bytes.Buffer
	s := NewStreamWriter(&out)
	require.Equal(t, fault.Incomplete, fault.ReasonOf(s.Commit(t.Context())), "before Begin")
	missing, err := s.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	require.Greater(t, len(missing), 1)
	require.Equal(t, fault.Internal, fault.ReasonOf(s.Put(t.Context(), missing[1], nil)), "not in their order")
	require.Equal(t, fault.Incomplete, fault.ReasonOf(s.Commit(t.Context())))
	broken := &cut{b.Store, 10}
	require.ErrorIs(t, s.Put(t.Context(), missing[0], broken.open(t.Context(), missing[0])), errCut)
	for _, d := range missing { // the first goes on where it broke off
		require.NoError(t, s.Put(t.Context(), d, b.Store.Opener(t.Context(), d)))
	}
	require.NoError(t, s.Commit(t.Context()))
	require.NoError(t, s.Close())
	require.True(t, bytes.Equal(want, out.Bytes()))

	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	go func() {
		_, _ = w.Write(want)
		_ = w.Close()
	}()
	f, err := OpenStream(t.Context(), "standard input", r)
	require.NoError(t, err)
	require.NoError(t, verify(t.Context(), f))
	list, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, list, "what is kept has no name")
	require.NoError(t, f.Close())

	ctx, cancel := context.WithCancel(t.Context())
	silent, open, err := os.Pipe()
	require.NoError(t, err)
	defer open.Close() //nolint:errcheck // nothing is written
	cancel()
	_, err = OpenStream(ctx, "standard input", silent)
	require.ErrorIs(t, err, context.Canceled)
}

func TestPlansWriteNothingAndAgreeWithBegin(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 22, LayerSize: 40_000})
	for _, create := range creators(t) {
		type planner interface {
			target
			Plan(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error)
			Preflight(ctx context.Context) error
		}
		p, ok := create(Options{}).(planner)
		require.True(t, ok)
		require.NoError(t, p.Preflight(t.Context()))
		planned, err := p.Plan(t.Context(), b.Graph)
		require.NoError(t, err)
		begun, err := p.Begin(t.Context(), b.Graph)
		require.NoError(t, err)
		require.Equal(t, begun, planned)
		require.NoError(t, p.Put(t.Context(), begun[0], b.Store.Opener(t.Context(), begun[0])))
		require.NoError(t, p.Close())
		planned, err = p.Plan(t.Context(), b.Graph)
		require.NoError(t, err)
		require.Equal(t, begun[1:], planned)
	}
	w, err := CreateFile(filepath.Join(t.TempDir(), "new.tar"), Options{})
	require.NoError(t, err)
	_, err = w.Plan(t.Context(), b.Graph)
	require.NoError(t, err)
	list, err := os.ReadDir(filepath.Dir(w.path))
	require.NoError(t, err)
	require.Empty(t, list)
}
