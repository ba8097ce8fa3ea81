package lock

import (
	"context"
	"encoding/json"
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
		if p, ok := bundle.ConfiguredPlatform(ctx, f, manifest); ok {
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
	var m ocispec.Manifest
	if err := json.Unmarshal(manifest, &m); err != nil {
		return &fault.Error{Reason: fault.Corrupt, Op: "read image manifest", Err: err}
	}
	data, err := bundle.Read(ctx, source, m.Config, bundle.MaxManifestSize)
	if err != nil {
		return err
	}
	var config ocispec.Platform
	if err := json.Unmarshal(data, &config); err != nil {
		return &fault.Error{Reason: fault.Corrupt, Op: "read image configuration", Err: err}
	}
	is := image.Platform{OS: config.OS, Architecture: config.Architecture, Variant: config.Variant}
	if is.OS == p.OS && is.Architecture == p.Architecture && (p.Variant == "" || p.Variant == is.Variant) {
		return nil
	}
	return &fault.Error{
		Reason: fault.NotFound, Op: "pick platform", Subject: p.String(), Err: fmt.Errorf("the image is for %s only", is),
		Hint: "ask for a platform that all images have, or for --platform all",
	}
}
