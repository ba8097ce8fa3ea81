package remote_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	ggcr "github.com/google/go-containerregistry/pkg/v1"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// world is an image of some layers in a registry on disk, and an empty one.
func world(b *testing.B) (source, mirror *real.Registry, size int64) {
	b.Helper()
	source, mirror = real.Start(b, real.Options{Dir: b.TempDir()}), real.Start(b, real.Options{Dir: b.TempDir()})
	layers := []int64{16 << 20, 8 << 20, 4 << 20, 2 << 20, 1 << 20, 512 << 10, 64 << 10, 4 << 10}
	images.Push(b, source, "bench/image:1", images.Spec{Seed: 9, Layers: layers, Platforms: images.Linux})
	for _, n := range layers {
		size += 2 * n
	}
	return source, mirror, size
}

// BenchmarkPull reads and hashes every byte of an index of two platforms; the
// sub-benchmark crane does the same with go-containerregistry.
func BenchmarkPull(b *testing.B) {
	source, _, size := world(b)
	b.Run("vdo", func(b *testing.B) {
		b.SetBytes(size)
		c, _ := client(b, remote.Options{}, source)
		for b.Loop() {
			repo := repository(c, source, "bench/image:1")
			require.NoError(b, readEverything(b.Context(), repo, graph(b, repo).Blobs))
		}
	})
	b.Run("crane", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			require.NoError(b, craneReadEverything(source.Host+"/bench/image:1"))
		}
	})
}

func readEverything(ctx context.Context, repo *remote.Repository, blobs []ocispec.Descriptor) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(6)
	for _, d := range blobs {
		group.Go(func() error {
			rc, err := repo.Fetch(ctx, d)
			if err != nil {
				return err
			}
			defer rc.Close() //nolint:errcheck // only read
			return hashEquals(sha256.New(), rc, d.Digest.Encoded())
		})
	}
	return group.Wait()
}

func hashEquals(h hash.Hash, r io.Reader, want string) error {
	if _, err := io.CopyBuffer(h, r, make([]byte, 128<<10)); err != nil {
		return err
	}
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != want {
		return fmt.Errorf("read %s, want %s", got, want)
	}
	return nil
}

func craneReadEverything(ref string) error {
	desc, err := crane.Get(ref, crane.Insecure)
	if err != nil {
		return err
	}
	index, err := desc.ImageIndex()
	if err != nil {
		return err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(6)
	for _, m := range list.Manifests {
		img, err := index.Image(m.Digest)
		if err != nil {
			return err
		}
		layers, err := img.Layers()
		if err != nil {
			return err
		}
		if _, err := img.RawConfigFile(); err != nil {
			return err
		}
		for _, l := range layers {
			group.Go(func() error { return readLayer(l) })
		}
	}
	return group.Wait()
}

// readLayer reads a layer; go-containerregistry hashes it as it is read.
func readLayer(l ggcr.Layer) error {
	rc, err := l.Compressed()
	if err != nil {
		return err
	}
	defer rc.Close() //nolint:errcheck // only read
	_, err = io.CopyBuffer(io.Discard, rc, make([]byte, 128<<10))
	return err
}

// BenchmarkPush copies an index of two platforms into a new repository; the
// sub-benchmark crane does the same with crane.Copy.
func BenchmarkPush(b *testing.B) {
	source, mirror, size := world(b)
	var n atomic.Int64
	name := func() string { return fmt.Sprintf("bench/copy-%d:1", n.Add(1)) }
	b.Run("vdo", func(b *testing.B) {
		b.SetBytes(size)
		c, _ := client(b, remote.Options{}, source, mirror)
		from := repository(c, source, "bench/image:1")
		for b.Loop() {
			require.NoError(b, copyGraph(b.Context(), graph(b, from), from, repository(c, mirror, name())))
		}
	})
	b.Run("crane", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			require.NoError(b, crane.Copy(source.Host+"/bench/image:1", mirror.Host+"/"+name(), crane.Insecure))
		}
	})
}

// A blob passes through buffers of fixed size, whatever its own.
func TestMemoryDoesNotGrowWithTheBlob(t *testing.T) {
	reg := real.Start(t, real.Options{Dir: t.TempDir()})
	images.Push(t, reg, "big/image:1", images.Spec{Seed: 5, Layers: []int64{64 << 20}})
	c, _ := client(t, remote.Options{}, reg)
	from, to := repository(c, reg, "big/image:1"), repository(c, reg, "big/copy:1")
	g := graph(t, from)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, copyGraph(t.Context(), g, from, to))
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(24<<20), "registries and client together allocate much less than the blob")
}
