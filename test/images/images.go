// Package images makes container images for tests and for the demo, and pushes
// them: seeded random layers of given sizes, multi-platform indexes, Docker or OCI
// media types, or one static program as an image.
//
//	images.Push(t, reg, "registry.k8s.io/csi-vsphere/driver:v3.5.1", images.Spec{
//		Seed: 1, Layers: []int64{1 << 20, 4 << 10}, Platforms: images.Linux,
//	})
//
// The same Spec gives the same bytes. Layers are real gzip-compressed tars that are
// made while they are read, so their size costs no memory.
package images

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	godigest "github.com/opencontainers/go-digest"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// Platform is what an image of an index runs on.
type Platform struct {
	OS, Architecture, OSVersion string
}

// Platforms that the drivers are built for.
var (
	Linux   = []Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}
	Windows = Platform{OS: "windows", Architecture: "amd64", OSVersion: "10.0.20348.2113"}
	// All is Linux and two versions of Windows.
	All = append(slices.Clone(Linux), Windows, Platform{OS: "windows", Architecture: "amd64", OSVersion: "10.0.17763.5329"})
)

// Spec says what an image is made of.
type Spec struct {
	// Seed decides the bytes; images with different seeds share no layer.
	Seed uint64
	// Layers are the sizes of the layers' contents in bytes, for each platform.
	// Nil without a Program: one layer of 1 KiB.
	Layers []int64
	// SharedLayers are layers that all platforms, and all images of the same seed, have.
	SharedLayers []int64
	// Platforms makes an index with one image each; none makes a single
	// linux/amd64 image that is not in an index.
	Platforms []Platform
	// Docker takes Docker's media types instead of OCI's.
	Docker bool
	// Program is a static executable that becomes a layer and the entrypoint.
	Program string
	// ProgramName is what the executable is called in the image; default its file's name.
	ProgramName string
	// Labels of the configuration.
	Labels map[string]string
}

// Built is an image or index that can be pushed.
type Built struct {
	Descriptor ocispec.Descriptor
	index      v1.ImageIndex // one of the two
	image      v1.Image
}

// Build makes what a Spec says.
func Build(s Spec) (*Built, error) {
	if len(s.Platforms) == 0 {
		img, err := s.image(Linux[0])
		if err != nil {
			return nil, err
		}
		return describe(&Built{image: img}, img)
	}
	idx := mutate.IndexMediaType(empty.Index, s.mediaTypes().index)
	for _, p := range s.Platforms {
		img, err := s.image(p)
		if err != nil {
			return nil, err
		}
		idx = mutate.AppendManifests(idx, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.OS, Architecture: p.Architecture, OSVersion: p.OSVersion}},
		})
	}
	return describe(&Built{index: idx}, idx)
}

func describe(b *Built, of partial.Describable) (*Built, error) {
	d, err := partial.Descriptor(of)
	if err != nil {
		return nil, err
	}
	b.Descriptor = ocispec.Descriptor{MediaType: string(d.MediaType), Digest: godigest.Digest(d.Digest.String()), Size: d.Size}
	return b, nil
}

// mediaTypes of one family.
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
		file.Config.Entrypoint = []string{"/" + s.programName()}
		file.Config.User = "65532:65532"
	}
	if img, err = mutate.ConfigFile(img, file); err != nil {
		return nil, err
	}
	return img, nil
}

func (s Spec) programName() string {
	if s.ProgramName != "" {
		return s.ProgramName
	}
	return path.Base(strings.ReplaceAll(s.Program, `\`, "/"))
}

func (s Spec) layers(p Platform) ([]v1.Layer, error) {
	sizes := s.Layers
	if sizes == nil && s.Program == "" && len(s.SharedLayers) == 0 {
		sizes = []int64{1 << 10}
	}
	mt := s.mediaTypes().layer
	var out []v1.Layer
	add := func(l v1.Layer, err error) error {
		out = append(out, l)
		return err
	}
	for i, n := range s.SharedLayers {
		if err := add(randomLayer(mt, fmt.Sprintf("%d/shared/%d", s.Seed, i), n)); err != nil {
			return nil, err
		}
	}
	for i, n := range sizes {
		if err := add(randomLayer(mt, fmt.Sprintf("%d/%s/%s/%s/%d", s.Seed, p.OS, p.Architecture, p.OSVersion, i), n)); err != nil {
			return nil, err
		}
	}
	if s.Program != "" {
		if err := add(programLayer(mt, s.Program, s.programName())); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Push builds an image and pushes it under the path and tag of a reference to a
// registry of the test; the host that the reference names does not matter. It
// returns the reference at the registry, with tag and digest, and the descriptor.
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
	at := reg.Host + "/" + ref.Path()
	if ref.Tag() != "" {
		at += ":" + ref.Tag()
	} else {
		at += "@" + ref.Digest().String()
	}
	target, err := name.ParseReference(at, scheme(reg)...)
	if err != nil {
		return image.Reference{}, err
	}
	transport := reg.Transport()
	defer transport.CloseIdleConnections()
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(transport), remote.WithJobs(2),
		remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: reg.Username, Password: reg.Password})),
	}
	if b.index != nil {
		err = remote.WriteIndex(target, b.index, options...)
	} else {
		err = remote.Write(target, b.image, options...)
	}
	if err != nil {
		return image.Reference{}, err
	}
	return image.ParseReference(reg.Host + "/" + ref.Path() + tagOf(ref) + "@" + b.Descriptor.Digest.String())
}

func tagOf(r image.Reference) string {
	if r.Tag() == "" {
		return ""
	}
	return ":" + r.Tag()
}

func scheme(reg *registry.Registry) []name.Option {
	if reg.TLS() {
		return nil
	}
	return []name.Option{name.Insecure}
}

// Compile builds the Go package (an import path or a folder, seen from dir) as a
// static executable for a platform and writes it to out.
func Compile(ctx context.Context, dir, pkg string, p Platform, out string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w -buildid=", "-o", out, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Architecture, "GOFLAGS=-mod=readonly")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s for %s/%s: %w\n%s", pkg, p.OS, p.Architecture, err, text)
	}
	return nil
}
