package lock

import (
	"context"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// pick returns the descriptor of one platform's own manifest, or of an index of several
// platforms' manifests, and the digest of the index that names them; zero where the image is
// a manifest, or is for these platforms alone. Of several platforms it says which the image
// lacks.
func (in Input) pick(
	ctx context.Context, source medium.Source, d ocispec.Descriptor, name image.Reference, p run.Progress,
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
		d, err = bundle.PickPlatform(ctx, source, data, in.Platforms[0])
		return d, index, err
	}
	kept, lacks, err := bundle.KeepPlatforms(ctx, source, data, in.Platforms)
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

func warnLacks(p run.Progress, name image.Reference, lacks []image.Platform) {
	if len(lacks) > 0 {
		p.Say(fmt.Sprintf("warning: %s is not for %s", name, image.JoinPlatforms(lacks)))
	}
}

// onlyFor returns the platform of an image without an index, which is one of those wanted.
func onlyFor(
	ctx context.Context, source medium.Source, manifest []byte, wanted []image.Platform,
) (image.Platform, error) {
	config, ok, err := bundle.ConfiguredPlatform(ctx, source, manifest)
	if err != nil {
		return image.Platform{}, err
	}
	is := image.Platform{OS: config.OS, Architecture: config.Architecture, Variant: config.Variant}
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
