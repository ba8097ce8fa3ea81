package lock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
)

// pick returns the descriptor of one platform's own manifest, and the digest of the index that
// names it; zero where the image is a manifest.
func pick(
	ctx context.Context, source medium.Source, d ocispec.Descriptor, p image.Platform,
) (ocispec.Descriptor, image.Digest, error) {
	data, err := bundle.Read(ctx, source, d, bundle.MaxManifestSize)
	if err != nil {
		return d, image.Digest{}, err
	}
	if !bundle.IsIndex(d.MediaType) {
		return d, image.Digest{}, onlyFor(ctx, source, data, p)
	}
	index := image.DigestOf(data)
	if data, err = withPlatforms(ctx, source, data); err == nil {
		d, err = bundle.PickPlatform(data, p)
	}
	return d, index, err
}

// maxWithoutPlatform bounds of how many children of an index the configuration is read.
const maxWithoutPlatform = 64

// withPlatforms adds the platforms that an index does not say of its manifests and
// their configurations do: the field is optional.
func withPlatforms(ctx context.Context, f bundle.Fetcher, data []byte) ([]byte, error) {
	index := ocispec.Index{Manifests: bundle.Node{Data: data}.Children()} // none where they cannot be read
	without := 0
	for n, d := range index.Manifests {
		if d.Platform != nil || bundle.IsIndex(d.MediaType) || !bundle.IsManifest(d.MediaType) {
			continue
		}
		if without++; without > maxWithoutPlatform {
			break
		}
		manifest, err := bundle.Read(ctx, f, bundle.Plain(d), bundle.MaxManifestSize)
		if err != nil {
			return nil, err
		}
		if p, ok, _ := bundle.ConfiguredPlatform(ctx, f, manifest); ok { // else it is for no platform
			index.Manifests[n].Platform = &p
		}
	}
	if without == 0 {
		return data, nil
	}
	return json.Marshal(index)
}

// onlyFor checks that an image without an index is for the platform.
func onlyFor(ctx context.Context, source medium.Source, manifest []byte, p image.Platform) error {
	config, ok, err := bundle.ConfiguredPlatform(ctx, source, manifest)
	if err != nil {
		return err
	}
	is := image.Platform{OS: config.OS, Architecture: config.Architecture, Variant: config.Variant}
	if is.OS == p.OS && is.Architecture == p.Architecture && (p.Variant == "" || p.Variant == is.Variant) {
		return nil
	}
	why := fmt.Errorf("the image is for %s only", is)
	if !ok {
		why = errors.New("the image does not say its platform")
	}
	return &fault.Error{
		Reason: fault.NotFound, Op: "pick platform", Subject: p.String(), Err: why,
		Hint: "ask for a platform that all images have, or for --platform all",
	}
}
