package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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

// set is images in a registry, and the files by which vdo-bundle finds them.
type set struct {
	name        string
	tag         string // of all its images: "1", and "2" of the newer version
	upstream    *registry.Registry
	secure      *registry.Registry // the same content, with TLS and login
	tls         bool               // use secure
	dir         string             // matrix.yaml, manifests/, keys
	registryDir string             // storage of the registry
	images      int
	blobs       int   // different ones; of a newer version those that the older one lacks
	bytes       int64 // of blobs
	newer       *set  // the next version; nil in that one
}

// layer is the source of a layer's bytes.
type layer struct {
	seed string
	size int64
}

// recipe returns the layers of each image.
func recipe(name string, scale float64) ([][]layer, error) {
	bytes := func(n float64) int64 { return max(int64(n*scale), 1<<10) }
	count := func(n int) int { return max(int(float64(n)*scale), 2) }
	switch name {
	case "drivers":
		return drivers(bytes), nil
	case "big":
		return [][]layer{own(0, bytes(2<<30))}, nil
	case "small":
		out := make([][]layer, count(250))
		for i := range out {
			out[i] = own(i, slices.Repeat([]int64{8 << 10}, 8)...)
		}
		return out, nil
	}
	return nil, fmt.Errorf("there is no set %q", name)
}

func own(image int, sizes ...int64) []layer {
	out := make([]layer, len(sizes))
	for i, size := range sizes {
		out[i] = layer{fmt.Sprintf("%d/%d", image, i), size}
	}
	return out
}

// newer returns the recipe of the next version. Every eleventh layer has other bytes, so that large and small ones
// change alike. For fewer layers it adds one of a tenth of their size.
func newer(recipe [][]layer) [][]layer {
	const each = 11
	out := make([][]layer, len(recipe))
	n := 0
	for i, layers := range recipe {
		out[i] = slices.Clone(layers)
		for k, l := range layers {
			if n%each == each/2 && !l.shared() {
				out[i][k].seed += "/newer"
			}
			n++
		}
	}
	if n <= each/2 {
		out[0] = append(out[0], layer{"newer", out[0][0].size / 10})
	}
	return out
}

// drivers returns 40 images in the sizes of the real ones. Some have Windows layers or a network's programs; others
// are drivers or sidecars. Each has one of five bases.
func drivers(bytes func(float64) int64) [][]layer {
	const mb = 1e6
	var out [][]layer
	for n, group := range []struct {
		images int
		mb     float64
	}{{4, 255}, {6, 135}, {10, 66}, {20, 26}} {
		for i := range group.images {
			total, b := group.mb*mb, (i+n)%len(bases)
			base := layer{fmt.Sprintf("%s%d", shared, b), bytes(bases[b] * mb)}
			layers := own(len(out), bytes(total*.72), bytes(total*.2), bytes(total*.08), bytes(4e3))
			out = append(out, append([]layer{base}, layers...))
		}
	}
	return out
}

// bases are the sizes of the shared layers, in MB.
var bases = []float64{2, 12, 20, 32, 34}

const shared = "base/" // prefix of their seeds

func (l layer) shared() bool { return strings.HasPrefix(l.seed, shared) }

// blob is a layer whose bytes follow from its seed.
type blob struct {
	seed   [32]byte
	size   int64
	digest v1.Hash
}

func (b *blob) Digest() (v1.Hash, error)             { return b.digest, nil }
func (b *blob) DiffID() (v1.Hash, error)             { return b.digest, nil }
func (b *blob) Size() (int64, error)                 { return b.size, nil }
func (b *blob) MediaType() (types.MediaType, error)  { return types.OCILayer, nil }
func (b *blob) Uncompressed() (io.ReadCloser, error) { return b.Compressed() }
func (b *blob) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(io.LimitReader(mathrand.NewChaCha8(b.seed), b.size)), nil
}

// makeSet fills a registry: one index with all images in the repository "all", and every image in a repository of its
// own below "x". The newer version has the tag 2 there.
func makeSet(ctx context.Context, o options, name string) (_ *set, err error) {
	layers, err := recipe(name, o.scale)
	if err != nil {
		return nil, err
	}
	s := &set{name: name, tag: "1", dir: filepath.Join(o.dir, name), registryDir: filepath.Join(o.registryDir, name, "upstream"), images: len(layers)}
	s.newer = &set{name: name, tag: "2", dir: filepath.Join(s.dir, "newer"), images: len(layers)}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	if s.upstream, err = registry.New(serving(s.registryDir, false)); err != nil {
		return nil, err
	}
	if s.secure, err = registry.New(serving(s.registryDir, true)); err != nil {
		return nil, errors.Join(err, s.upstream.Close())
	}
	s.newer.upstream = s.upstream
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	blobs := map[layer]*blob{}
	if err := s.fill(ctx, layers, blobs); err != nil {
		return nil, err
	}
	return s, s.newer.fill(ctx, newer(layers), blobs)
}

func (s *set) close() error {
	return errors.Join(s.upstream.Close(), s.secure.Close(), os.RemoveAll(s.registryDir), os.RemoveAll(s.dir))
}

// fill creates the images of a set; blobs are those of earlier versions.
func (s *set) fill(ctx context.Context, recipe [][]layer, blobs map[layer]*blob) error {
	if err := s.makeBlobs(recipe, blobs); err != nil {
		return err
	}
	all, err := s.reference("all")
	if err != nil {
		return err
	}
	images := make([]v1.Image, len(recipe))
	for n, of := range recipe {
		layers := make([]v1.Layer, len(of))
		for i, l := range of {
			layers[i] = &remote.MountableLayer{Layer: blobs[l], Reference: all}
		}
		base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
		if images[n], err = mutate.AppendLayers(base, layers...); err != nil {
			return err
		}
	}
	if err := s.push(ctx, all, images); err != nil {
		return err
	}
	return s.describe()
}

// makeBlobs adds the new layers of a recipe to blobs.
func (s *set) makeBlobs(recipe [][]layer, blobs map[layer]*blob) error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, l := range slices.Concat(recipe...) {
		if blobs[l] != nil {
			continue
		}
		b := &blob{seed: sha256.Sum256([]byte(s.name + "/" + l.seed)), size: l.size}
		blobs[l], s.bytes, s.blobs = b, s.bytes+l.size, s.blobs+1
		group.Go(func() (err error) {
			rc, _ := b.Compressed()
			b.digest, _, err = v1.SHA256(rc)
			return err
		})
	}
	return group.Wait()
}

// push pushes all images as one index, and each into a repository of its own, where the registry mounts its layers.
func (s *set) push(ctx context.Context, all name.Tag, images []v1.Image) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, img := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	}
	if err := remote.WriteIndex(all, index, remote.WithContext(ctx), remote.WithJobs(4)); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for n, img := range images {
		group.Go(func() error {
			ref, err := s.reference("x/" + path(n))
			if err != nil {
				return err
			}
			return remote.Write(ref, img, remote.WithContext(ctx), remote.WithJobs(1))
		})
	}
	return group.Wait()
}

// reference returns the set's tag of a repository.
func (s *set) reference(repository string) (name.Tag, error) {
	return name.NewTag(s.upstream.Host+"/"+repository+":"+s.tag, name.Insecure)
}

func path(image int) string { return fmt.Sprintf("bench/image-%03d", image) }

// release returns the set's release in the matrix.
func (s *set) release() string { return "1.33." + s.tag }

const matrixText = `apiVersion: vdo.vmware.com/matrix/v1
kind: CompatibilityMatrix
serial: %s
issued: 2026-01-01T00:00:00Z
expires: 2099-01-01T00:00:00Z
releases:
  - driver: cpi
    version: %s
    state: current
    kubernetes: {min: "1.33", max: "1.33", basis: bench}
    vsphere: {min: "6.7.3", basis: bench}
    manifests: [{name: all.yaml, url: "https://127.0.0.1:1/all.yaml", size: %d, sha256: %x}]
`

// describe writes the matrix and the manifest that name the images.
func (s *set) describe() error {
	if err := os.MkdirAll(filepath.Join(s.dir, "manifests"), 0o755); err != nil {
		return err
	}
	var m strings.Builder
	m.WriteString("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: all}\nspec:\n  template:\n    spec:\n      containers:\n")
	for n := range s.images {
		fmt.Fprintf(&m, "      - {name: c%d, image: registry.test/%s:%s}\n", n, path(n), s.tag)
	}
	for file, data := range map[string][]byte{
		"manifests/all.yaml": []byte(m.String()),
		"matrix.yaml":        fmt.Appendf(nil, matrixText, s.tag, s.release(), m.Len(), sha256.Sum256([]byte(m.String()))),
	} {
		if err := os.WriteFile(filepath.Join(s.dir, file), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
