package mover

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// boundedTarget is a target in memory, which may be full from the n-th byte on.
type boundedTarget struct {
	medium.Target
	mu   sync.Mutex
	room int
	has  map[digest.Digest][]byte
}

func (s *boundedTarget) Put(_ context.Context, d ocispec.Descriptor, open func(int64) (io.ReadCloser, error)) error {
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

// disk has blobs, of which some have an unreadable sector.
type disk struct {
	bundles.Store
	bad map[digest.Digest]bool
}

func (m disk) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	r, err := m.Store.Fetch(ctx, d, offset)
	if m.bad[d.Digest] {
		return io.NopCloser(io.MultiReader(io.LimitReader(r, d.Size/2), iotest.ErrReader(syscall.EIO))), err
	}
	return r, err
}

// An unreadable sector concerns the item that it is in: it is read from elsewhere
// where that is possible, and the rest goes on. A full target ends everything.
func TestSourcesAndTargetsFailApart(t *testing.T) {
	blobs := bundles.Store{}
	var missing []ocispec.Descriptor
	for i := range 20 {
		missing = append(missing, blobs.Add(ocispec.MediaTypeImageLayer, bytes.Repeat([]byte{byte(i)}, 1000-i)))
	}
	once, never := missing[0].Digest, missing[1].Digest
	first := disk{blobs, map[digest.Digest]bool{once: true, never: true}}
	second := disk{blobs, map[digest.Digest]bool{never: true}}
	run := func(room int, origins ...Origin) (*boundedTarget, error) {
		target := &boundedTarget{room: room, has: map[digest.Digest][]byte{}}
		delivery := &Delivery{what: "push", graph: &bundle.Graph{}, target: target, missing: missing, options: run.Options{Concurrency: 1}}
		return target, delivery.move(t.Context(), All(origins...))
	}

	target, err := run(1<<20, Origin{From: first}, Origin{From: second})
	require.Equal(t, len(missing)-1, len(target.has), "all but the one that no origin can give") //nolint:testifylint // Len would print all of it
	require.Equal(t, blobs[once.String()], target.has[once])
	require.ErrorIs(t, err, syscall.EIO)
	require.Equal(t, fault.Incomplete, fault.ReasonOf(err), "%v", err)
	require.Contains(t, fault.Text(err), "missing 1 of 20 items")
	require.Contains(t, fault.HintOf(err), "check the medium")

	target, err = run(5000, Origin{From: second}, Origin{From: second})
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, fault.Storage, fault.ReasonOf(err))
	require.Less(t, len(target.has), 7, "nothing is tried after the target is full")
}

func TestAnOriginThatLacksAnItemGivesNoReader(t *testing.T) {
	r := &reading{ctx: t.Context(), of: &Delivery{}, item: &item{}, from: Origin{From: bundles.Store{}}}
	rc, err := r.open(0)
	require.Error(t, err)
	require.Nil(t, rc)
}

func TestTheLargestGoFirst(t *testing.T) {
	small, large := ocispec.Descriptor{Size: 1}, ocispec.Descriptor{Size: 2}
	require.Equal(t, []ocispec.Descriptor{large, small},
		slices.SortedFunc(slices.Values([]ocispec.Descriptor{small, large}), largestFirst))
}
