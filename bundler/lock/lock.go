// Package lock selects the requested releases, reads their manifests, and fixes every image by
// digest: the first step towards a bundle.
//
//	in := lock.Input{Matrix: m, Request: request, Manifests: from, Registry: upstream}
//	made, files, err := lock.Make(ctx, in, o)
//	data, err := made.YAML()
//
// It fetches only manifests and what it needs to find a platform. Package internal/catalog, which is
// pure, makes the selection.
package lock

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/matrixfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Input is the input of a lock.
type Input struct {
	Matrix    matrixfile.File
	Request   catalog.Request
	Platforms []image.Platform       // only the zero value: all
	Operator  *matrix.ServiceRelease // see Own; nil: not in the bundle
	JumpHost  *matrix.ServiceRelease // likewise
	Manifests upstream.Manifests
	Registry  medium.Registry
}

// Make selects releases, reads and returns their manifests, and fixes every image by digest.
func Make(ctx context.Context, in Input, o run.Options) (*bundle.Lock, catalog.Files, error) {
	selection, err := catalog.Select(in.Matrix.Document, in.Request)
	if err != nil {
		return nil, nil, err
	}
	for _, pick := range selection.Picks {
		o.Progress.Say("%s", pick)
	}
	for _, service := range selection.Services {
		o.Progress.Say("service: %s", service.ReleaseID)
	}
	for _, w := range selection.Warnings {
		o.Progress.Warn("warning: %s", w)
	}
	releases := selection.Releases
	if in.Operator != nil {
		releases = append(slices.Clip(releases), operator(in.Operator, in.JumpHost != nil || len(selection.Services) > 0))
	}
	files, err := upstream.Fetch(ctx, wantedFiles(releases), in.Manifests, o)
	if err != nil {
		return nil, nil, err
	}
	services := selection.Services
	if in.JumpHost != nil {
		services = append(slices.Clip(services), *in.JumpHost)
	}
	lock, err := catalog.Read(releases, files, services...)
	if err != nil {
		return nil, nil, err
	}
	if err := in.resolveImages(ctx, lock.Images, o); err != nil {
		return nil, nil, err
	}
	lock.Matrix, lock.Platforms = in.Matrix.Ref(), in.Platforms
	lock.Sort()
	return lock, files, lock.Validate()
}

func wantedFiles(releases []matrix.Release) map[string]matrix.Manifest {
	out := map[string]matrix.Manifest{}
	for _, r := range releases {
		for _, m := range r.Manifests {
			out[bundle.Release{Driver: r.Driver, Version: r.Version}.Path(bundle.File{Name: m.Name})] = m
		}
	}
	return out
}

// resolveImages resolves every image to its digest, and reports all failures.
func (in Input) resolveImages(ctx context.Context, images []bundle.Image, o run.Options) error {
	o.Progress.Phase("images", len(images), 0)
	return run.Each(ctx, o.Small(), len(images), func(n int) error {
		err := in.resolveImage(ctx, &images[n], o.Progress)
		o.Progress.Done(images[n].Reference.String(), err)
		return err
	})
}

func (in Input) resolveImage(ctx context.Context, i *bundle.Image, p *run.Progress) error {
	where := cmp.Or(i.Source, i.Reference)
	source := in.Registry(where)
	d, err := source.Root(ctx)
	if err != nil {
		return fmt.Errorf("image %s of %s: %w", i.Reference, strings.Join(i.UsedBy, ", "), err)
	}
	var index image.Digest // set if some platforms are selected from it
	if in.Platforms[0] != (image.Platform{}) {
		if d, index, err = in.pick(ctx, source, d, i.Reference, p); err != nil {
			return fmt.Errorf("image %s: %w", i.Reference, err)
		}
	}
	i.MediaType, i.Size = d.MediaType, d.Size
	if i.Digest, err = image.ParseDigest(d.Digest.String()); err != nil {
		return err
	}
	if !index.IsZero() {
		*i = i.OfIndex(index)
	}
	if mirror := source.Can().Repository.Repository(); mirror != where.Repository() {
		*i = i.ResolvedAt(mirror)
	}
	return nil
}

// Own returns the release of a program of this project, the operator or the jump host: an image whose tag is a version.
func Own(program matrix.Driver, reference string) (*matrix.ServiceRelease, error) {
	ref, err := image.ParseReference(reference)
	if err != nil {
		return nil, err
	}
	v, err := matrix.ParseVersion(ref.Tag())
	if err == nil {
		return &matrix.ServiceRelease{ReleaseID: matrix.ReleaseID{Driver: program, Version: v}, Image: reference}, nil
	}
	why := fmt.Sprintf("its tag %q is not a version", ref.Tag())
	if !strings.HasPrefix(reference, ref.Host()+"/") {
		why = "it names no registry"
	}
	return nil, fault.Errorf(fault.InvalidInput, "read image", reference,
		fmt.Sprintf("write it with the version as tag: registry.example/%s:v1.2.3", program), "%s", why)
}

// JumpHostBeside returns the jump host's image of an operator's: the same registry, path and tag; "" if it has
// another name.
func JumpHostBeside(operator string) string {
	ref, err := image.ParseReference(operator)
	folder, name := path.Split(ref.Repository())
	if err != nil || name != string(bundle.Operator) {
		return ""
	}
	return folder + string(bundle.JumpHost) + ":" + ref.Tag()
}

// operator returns the operator's release as a matrix would list it, with the install manifests of package deploy.
// With services for tenant clusters they include those of the operator for SIPClusters, which is the same program.
func operator(own *matrix.ServiceRelease, services bool) matrix.Release {
	r := matrix.Release{
		ReleaseID: own.ReleaseID,
		Images:    []matrix.ImageOverride{{From: deploy.Image, To: own.Image, Basis: "--operator names this image"}},
	}
	manifests := deploy.Manifests()
	if services {
		manifests = append(manifests, deploy.SIPManifests()...)
	}
	for _, m := range manifests {
		r.Manifests = append(r.Manifests, matrix.Manifest{Name: m.Name, Size: int64(len(m.Data)), SHA256: image.DigestOf(m.Data).Hex()})
	}
	return r
}

// pick returns the manifest of the requested platform, or an index of the requested platforms. It also returns the
// digest of their upstream index: zero if the image has no index, or has only these platforms. It warns about missing
// platforms if several are requested.
func (in Input) pick(
	ctx context.Context, source medium.Source, d ocispec.Descriptor, name image.Reference, p *run.Progress,
) (ocispec.Descriptor, image.Digest, error) {
	data, err := bundle.Read(ctx, source, d, bundle.MaxManifestSize)
	if err != nil {
		return d, image.Digest{}, err
	}
	if !bundle.IsIndex(d.MediaType) {
		is, err := onlyFor(ctx, source, data, in.Platforms)
		if err == nil {
			warnLacks(p, name, slices.DeleteFunc(slices.Clone(in.Platforms), is.Is))
		}
		return d, image.Digest{}, err
	}
	if index := image.DigestOf(data); len(in.Platforms) == 1 {
		d, err = bundle.PickPlatform(data, in.Platforms[0])
		return d, index, err
	}
	kept, lacks, err := bundle.KeepPlatforms(data, in.Platforms)
	if err != nil {
		return d, image.Digest{}, err
	}
	warnLacks(p, name, lacks)
	index := image.DigestOf(data)
	if image.DigestOf(kept) == index {
		return d, image.Digest{}, nil
	}
	d.Digest, d.Size = digest.FromBytes(kept), int64(len(kept))
	return d, index, nil
}

func warnLacks(p *run.Progress, name image.Reference, lacks []image.Platform) {
	if len(lacks) > 0 {
		p.Warn("warning: %s is not for %s", name, image.JoinPlatforms(lacks))
	}
}

// onlyFor returns the platform of an image without an index, which must be among wanted.
func onlyFor(
	ctx context.Context, source medium.Source, manifest []byte, wanted []image.Platform,
) (image.Platform, error) {
	is, ok, err := bundle.ConfiguredPlatform(ctx, source, manifest)
	if err != nil {
		return image.Platform{}, err
	}
	if slices.ContainsFunc(wanted, is.Is) {
		return is, nil
	}
	why := fmt.Sprintf("the image is for %s only", is)
	if !ok {
		why = "the image does not say its platform"
	}
	return is, fault.Errorf(fault.NotFound, "pick platform", image.JoinPlatforms(wanted),
		"ask for a platform that all images have, or for --platform all", "%s", why)
}
