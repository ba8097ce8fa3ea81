package bundler

import (
	"bytes"
	"context"
	"io"
	"sync"
	"syscall"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// shelfOf is a target in memory, which may be full from the n-th byte on.
type shelfOf struct {
	Target
	mu   sync.Mutex
	room int
	has  map[digest.Digest][]byte
}

func (s *shelfOf) Put(_ context.Context, d ocispec.Descriptor, open func(int64) (io.ReadCloser, error)) error {
	rc, err := open(0)
	if err != nil {
		return err
	}
	defer rc.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(rc)
	if err != nil { // as the media do: what cannot be read is a fault of storage, too
		return &fault.Error{Reason: fault.Storage, Op: "read", Subject: d.Digest.String(), Hint: "check the medium", Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.room -= len(data); s.room < 0 {
		return &fault.Error{Reason: fault.Storage, Op: "write", Subject: "target", Hint: "make space", Err: syscall.ENOSPC}
	}
	s.has[d.Digest] = data
	return nil
}

// medium has blobs, of which some have an unreadable sector.
type medium struct {
	blobs map[digest.Digest][]byte
	bad   map[digest.Digest]bool
}

func (m medium) FetchFrom(_ context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	data := m.blobs[d.Digest][offset:]
	if m.bad[d.Digest] {
		return io.NopCloser(io.MultiReader(bytes.NewReader(data[:len(data)/2]), failingReader{})), nil
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, syscall.EIO }

// An unreadable sector concerns the item that it is in: it is read from elsewhere
// where that is possible, and the rest goes on. A full target ends everything.
func TestSourcesAndTargetsFailApart(t *testing.T) {
	blobs := map[digest.Digest][]byte{}
	var missing []ocispec.Descriptor
	for i := range 20 {
		data := bytes.Repeat([]byte{byte(i)}, 1000-i)
		d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.FromBytes(data), Size: int64(len(data))}
		blobs[d.Digest] = data
		missing = append(missing, d)
	}
	once, never := missing[0].Digest, missing[1].Digest
	first := medium{blobs, map[digest.Digest]bool{once: true, never: true}}
	second := medium{blobs, map[digest.Digest]bool{never: true}}
	run := func(room int, origins ...origin) (*shelfOf, error) {
		target := &shelfOf{room: room, has: map[digest.Digest][]byte{}}
		err := move(t.Context(), "push", &bundle.Graph{}, missing, target, func(ocispec.Descriptor) []origin { return origins }, Options{Concurrency: 1})
		return target, err
	}

	target, err := run(1<<20, origin{from: first}, origin{from: second})
	require.Equal(t, len(missing)-1, len(target.has), "all but the one that no origin can give") //nolint:testifylint // Len would print all of it
	require.Equal(t, blobs[once], target.has[once])
	require.ErrorIs(t, err, syscall.EIO)
	require.Equal(t, fault.Incomplete, fault.ReasonOf(err), "%v", err)
	require.Contains(t, fault.Text(err), "1 of 20 items are missing")
	require.Contains(t, fault.HintOf(err), "check the medium")

	target, err = run(5000, origin{from: second}, origin{from: second})
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, fault.Storage, fault.ReasonOf(err))
	require.Less(t, len(target.has), 7, "nothing is tried after the target is full")
}
