// Package images makes and pushes container images for tests and for the demo. It makes seeded random layers of given
// sizes, multi-platform indexes, Docker or OCI media types, or one static program as an image.
//
//	images.Push(t, reg, "registry.k8s.io/csi-vsphere/driver:v3.5.1", images.Spec{
//		Seed: 1, Layers: []int64{1 << 20, 4 << 10}, Platforms: images.Linux,
//	})
//
// The same Spec gives the same bytes. Layers are real gzip-compressed tars that are made while they are read, so
// their size costs no memory.
package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// Platform is the platform of an image of an index.
type Platform = v1.Platform

// Platforms that the drivers are built for.
var (
	Linux = []Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}
	// All is Linux and two versions of Windows.
	All = append(slices.Clone(Linux),
		Platform{OS: "windows", Architecture: "amd64", OSVersion: "10.0.20348.2113"},
		Platform{OS: "windows", Architecture: "amd64", OSVersion: "10.0.17763.5329"})
)

// Spec describes an image.
type Spec struct {
	// Seed decides the bytes; images with different seeds share no layer.
	Seed uint64
	// Layers are the sizes of the layers' contents in bytes, for each platform. Nil without a Program: one layer of 1
	// KiB.
	Layers []int64
	// SharedLayers are the layers that all platforms, and all images of the same seed, share.
	SharedLayers []int64
	// Platforms makes an index with one image each; without any, a single linux/amd64 image without an index.
	Platforms []Platform
	// Docker uses Docker's media types instead of OCI's.
	Docker bool
	// Program is a static executable that becomes a layer and the entrypoint, ProgramName its name there.
	Program, ProgramName string
	// Labels of the configuration.
	Labels map[string]string
}

// Built is an image or index that can be pushed.
type Built struct {
	Descriptor ocispec.Descriptor
	content    remote.Taggable
}

// Build makes the image or index of a Spec.
func Build(s Spec) (*Built, error) {
	if len(s.Platforms) == 0 {
		img, err := s.image(Linux[0])
		if err != nil {
			return nil, err
		}
		return describe(img)
	}
	idx := mutate.IndexMediaType(empty.Index, s.mediaTypes().index)
	for _, p := range s.Platforms {
		img, err := s.image(p)
		if err != nil {
			return nil, err
		}
		idx = mutate.AppendManifests(idx, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &p},
		})
	}
	return describe(idx)
}

func describe(of interface {
	partial.Describable
	remote.Taggable
}) (*Built, error) {
	d, err := partial.Descriptor(of)
	if err != nil {
		return nil, err
	}
	return &Built{
		content:    of,
		Descriptor: ocispec.Descriptor{MediaType: string(d.MediaType), Digest: godigest.Digest(d.Digest.String()), Size: d.Size},
	}, nil
}

type mediaTypes struct{ index, manifest, config, layer types.MediaType }

func (s Spec) mediaTypes() mediaTypes {
	if s.Docker {
		return mediaTypes{types.DockerManifestList, types.DockerManifestSchema2, types.DockerConfigJSON, types.DockerLayer}
	}
	return mediaTypes{types.OCIImageIndex, types.OCIManifestSchema1, types.OCIConfigJSON, types.OCILayer}
}

func (s Spec) image(p Platform) (v1.Image, error) {
	layers, err := s.layers(p)
	if err != nil {
		return nil, err
	}
	mt := s.mediaTypes()
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, mt.manifest), mt.config)
	if img, err = mutate.AppendLayers(img, layers...); err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.OSVersion = p.OS, p.Architecture, p.OSVersion
	file.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	file.Config.Labels = s.Labels
	if s.Program != "" {
		file.Config.Entrypoint = []string{"/" + s.ProgramName}
		file.Config.User = "65532:65532"
	}
	return mutate.ConfigFile(img, file)
}

func (s Spec) layers(p Platform) ([]v1.Layer, error) {
	sizes := s.Layers
	if sizes == nil && s.Program == "" && len(s.SharedLayers) == 0 {
		sizes = []int64{1 << 10}
	}
	mt := s.mediaTypes().layer
	var out []v1.Layer
	var errs []error
	add := func(l v1.Layer, err error) { out, errs = append(out, l), append(errs, err) }
	for i, n := range s.SharedLayers {
		add(randomLayer(mt, fmt.Sprintf("%d/shared/%d", s.Seed, i), n))
	}
	for i, n := range sizes {
		add(randomLayer(mt, fmt.Sprintf("%d/%s/%s/%s/%d", s.Seed, p.OS, p.Architecture, p.OSVersion, i), n))
	}
	if s.Program != "" {
		add(programLayer(mt, s.Program, s.ProgramName))
	}
	return out, errors.Join(errs...)
}

// Push builds an image and pushes it under the path and tag of a reference to a registry of the test, whatever the
// reference's host. It returns the reference at the registry, with tag and digest, and the descriptor.
func Push(t testing.TB, reg *registry.Registry, reference string, s Spec) (image.Reference, ocispec.Descriptor) {
	t.Helper()
	b, err := Build(s)
	if err != nil {
		t.Fatalf("build %s: %v", reference, err)
	}
	ref, err := b.Push(context.Background(), reg, reference)
	if err != nil {
		t.Fatalf("push %s: %v", reference, err)
	}
	return ref, b.Descriptor
}

// Push pushes under the path and tag of a reference, see [Push].
func (b *Built) Push(ctx context.Context, reg *registry.Registry, reference string) (image.Reference, error) {
	ref, err := image.ParseReference(reference)
	if err != nil {
		return image.Reference{}, err
	}
	at := reg.Host + "/" + ref.Path() + ":" + ref.Tag()
	target, err := name.NewTag(at)
	if err != nil {
		return image.Reference{}, err
	}
	transport := reg.Transport()
	defer transport.CloseIdleConnections()
	err = remote.Push(target, b.content, remote.WithContext(ctx), remote.WithTransport(transport), remote.WithJobs(2),
		remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: reg.Username, Password: reg.Password})))
	if err != nil {
		return image.Reference{}, err
	}
	return image.ParseReference(at + "@" + b.Descriptor.Digest.String())
}

// randomLayer returns a layer with size bytes that follow from the seed.
func randomLayer(mt types.MediaType, seed string, size int64) (v1.Layer, error) {
	sum := sha256.Sum256([]byte(seed))
	file := tar.Header{Name: "data/" + hex.EncodeToString(sum[:8]), Mode: 0o644, Size: size}
	return layer(mt, gzip.NoCompression, file, func() (io.ReadCloser, error) { // random bytes do not shrink
		return io.NopCloser(io.LimitReader(rand.NewChaCha8(sum), size)), nil
	})
}

func programLayer(mt types.MediaType, file, name string) (v1.Layer, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	return layer(mt, gzip.BestSpeed, tar.Header{Name: name, Mode: 0o755, Size: info.Size()},
		func() (io.ReadCloser, error) { return os.Open(file) })
}

// layer returns a gzip-compressed tar of one file, recreated by each reader.
func layer(mt types.MediaType, level int, file tar.Header, open func() (io.ReadCloser, error)) (v1.Layer, error) {
	file.Typeflag, file.ModTime, file.Format = tar.TypeReg, time.Unix(0, 0), tar.FormatPAX
	const block = 512
	var head bytes.Buffer
	if err := tar.NewWriter(&head).WriteHeader(&file); err != nil {
		return nil, err
	}
	end := make([]byte, (block-file.Size%block)%block+2*block)
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		content, err := open()
		if err != nil {
			return nil, err
		}
		whole := io.MultiReader(bytes.NewReader(head.Bytes()), content, bytes.NewReader(end))
		return struct {
			io.Reader
			io.Closer
		}{whole, content}, nil
	}, tarball.WithMediaType(mt), tarball.WithCompressionLevel(level))
}
