package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// set is images in a registry, and what leads vdo-bundle to them.
type set struct {
	name        string
	upstream    *registry.Registry
	dir         string // matrix.yaml, manifests/, keys
	registryDir string
	images      int
	blobs       int
	bytes       int64 // of different blobs
}

// recipe is the sizes of the layers of each image; a negative size is a shared base.
func recipe(name string, scale float64) ([][]int64, error) {
	bytes := func(n float64) int64 { return max(int64(n*scale), 1<<10) }
	count := func(n int) int { return max(int(float64(n)*scale), 2) }
	switch name {
	case "drivers":
		return drivers(bytes), nil
	case "big":
		return [][]int64{{bytes(2 << 30)}}, nil
	case "small":
		out := make([][]int64, count(250))
		for i := range out {
			out[i] = slicesOf(8, 8<<10)
		}
		return out, nil
	}
	return nil, fmt.Errorf("there is no set %q", name)
}

func slicesOf(n int, size int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = size
	}
	return out
}

// drivers is 40 images in the sizes of the real ones: some with Windows layers or a
// network's programs, drivers, sidecars; each on one of five bases.
func drivers(bytes func(float64) int64) [][]int64 {
	const mb = 1e6
	own := func(total float64) []int64 {
		return []int64{bytes(total * .72 * mb), bytes(total * .2 * mb), bytes(total * .08 * mb), bytes(4e3)}
	}
	var out [][]int64
	for n, group := range []struct {
		images int
		mb     float64
	}{{4, 255}, {6, 135}, {10, 66}, {20, 26}} {
		for i := range group.images {
			base := -int64(1 + (i+n)%5)
			out = append(out, append([]int64{base}, own(group.mb)...))
		}
	}
	return out
}

// bases are the sizes of the shared layers, in MB.
var bases = []float64{2, 12, 20, 32, 34}

// blob is a layer whose bytes follow from its seed.
type blob struct {
	seed   [32]byte
	size   int64
	digest v1.Hash
}

func newBlob(seed string, size int64) (*blob, error) {
	b := &blob{seed: sha256.Sum256([]byte(seed)), size: size}
	sum := sha256.New()
	rc, _ := b.Compressed()
	_, err := io.CopyBuffer(sum, rc, make([]byte, 256<<10))
	b.digest = v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}
	return b, err
}

func (b *blob) Digest() (v1.Hash, error)             { return b.digest, nil }
func (b *blob) DiffID() (v1.Hash, error)             { return b.digest, nil }
func (b *blob) Size() (int64, error)                 { return b.size, nil }
func (b *blob) MediaType() (types.MediaType, error)  { return types.OCILayer, nil }
func (b *blob) Uncompressed() (io.ReadCloser, error) { return b.Compressed() }
func (b *blob) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(io.LimitReader(mathrand.NewChaCha8(b.seed), b.size)), nil
}

// makeSet fills a registry: one index with all images in the repository "all", and
// every image in a repository of its own below "x".
func makeSet(ctx context.Context, o options, name string) (*set, error) {
	layers, err := recipe(name, o.scale)
	if err != nil {
		return nil, err
	}
	s := &set{name: name, dir: filepath.Join(o.dir, name), registryDir: filepath.Join(o.registryDir, name, "upstream"), images: len(layers)}
	if err := os.MkdirAll(filepath.Join(s.dir, "manifests"), 0o755); err != nil {
		return nil, err
	}
	if s.upstream, err = registry.New(registry.Options{Dir: s.registryDir}); err != nil {
		return nil, err
	}
	images, err := s.build(layers, func(n float64) int64 { return max(int64(n*o.scale), 1<<10) })
	if err == nil {
		err = s.push(ctx, images)
	}
	if err == nil {
		err = s.describe()
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *set) close() error {
	return errors.Join(s.upstream.Close(), os.RemoveAll(s.registryDir), os.RemoveAll(s.dir))
}

func (s *set) build(recipes [][]int64, scaled func(float64) int64) ([]v1.Image, error) {
	images := make([]v1.Image, len(recipes))
	var shared [5]v1.Layer
	for i := range shared {
		b, err := newBlob(fmt.Sprintf("%s/base/%d", s.name, i), scaled(bases[i]*1e6))
		if err != nil {
			return nil, err
		}
		shared[i] = b
	}
	used := map[int64]bool{}
	var group errgroup.Group
	for n, sizes := range recipes {
		for _, size := range sizes {
			if size < 0 && !used[size] {
				used[size] = true
				of, _ := shared[-size-1].Size()
				s.bytes, s.blobs = s.bytes+of, s.blobs+1
			} else if size > 0 {
				s.bytes, s.blobs = s.bytes+size, s.blobs+1
			}
		}
		group.Go(func() (err error) {
			images[n], err = newImage(fmt.Sprintf("%s/%d", s.name, n), sizes, shared[:])
			return err
		})
	}
	return images, group.Wait()
}

func newImage(seed string, sizes []int64, shared []v1.Layer) (v1.Image, error) {
	var layers []v1.Layer
	for i, size := range sizes {
		if size < 0 {
			layers = append(layers, shared[-size-1])
			continue
		}
		b, err := newBlob(fmt.Sprintf("%s/%d", seed, i), size)
		if err != nil {
			return nil, err
		}
		layers = append(layers, b)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.AppendLayers(base, layers...)
}

func (s *set) push(ctx context.Context, images []v1.Image) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, img := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	}
	all, err := name.ParseReference(s.upstream.Host+"/all:1", name.Insecure)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(all, index, remote.WithContext(ctx), remote.WithJobs(4)); err != nil {
		return err
	}
	pulled, err := remote.Index(all, remote.WithContext(ctx))
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for n, img := range images {
		group.Go(func() error { return s.pushAlone(ctx, n, img, pulled) })
	}
	return group.Wait()
}

// pushAlone gives an image a repository of its own; the registry mounts its layers.
func (s *set) pushAlone(ctx context.Context, n int, img v1.Image, all v1.ImageIndex) error {
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	there, err := all.Image(digest)
	if err != nil {
		return err
	}
	ref, err := name.ParseReference(fmt.Sprintf("%s/x/%s", s.upstream.Host, path(n)), name.Insecure)
	if err != nil {
		return err
	}
	return remote.Write(ref, there, remote.WithContext(ctx), remote.WithJobs(1))
}

func path(n int) string { return fmt.Sprintf("bench/image-%03d:1", n) }

const matrixText = `apiVersion: vdo.vmware.com/matrix/v1
kind: CompatibilityMatrix
serial: 1
issued: 2026-01-01T00:00:00Z
expires: 2099-01-01T00:00:00Z
releases:
  - driver: cpi
    version: 1.33.1
    state: current
    kubernetes: {min: "1.33", max: "1.33", basis: bench}
    vsphere: {min: "6.7.3", basis: bench}
    manifests: [{name: all.yaml, url: "https://127.0.0.1:1/all.yaml", size: %d, sha256: %x}]
`

// describe writes the matrix and the manifest that name the images, and a key.
func (s *set) describe() error {
	var m strings.Builder
	m.WriteString("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: all}\nspec:\n  template:\n    spec:\n      containers:\n")
	for n := range s.images {
		fmt.Fprintf(&m, "      - {name: c%d, image: registry.test/%s}\n", n, path(n))
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		return err
	}
	for file, data := range map[string][]byte{
		"manifests/all.yaml": []byte(m.String()),
		"matrix.yaml":        fmt.Appendf(nil, matrixText, m.Len(), sha256.Sum256([]byte(m.String()))),
		"bench.key":          pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		"bench.pub":          pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
	} {
		if err := os.WriteFile(filepath.Join(s.dir, file), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
