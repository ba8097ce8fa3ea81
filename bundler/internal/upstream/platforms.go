package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
)

// maxWithoutPlatform bounds of how many children of an index the configuration is read.
const maxWithoutPlatform = 64

// WithPlatforms adds the platforms that an index does not say of its manifests and
// their configurations do: the field is optional.
func WithPlatforms(ctx context.Context, f bundle.Fetcher, data []byte) ([]byte, error) {
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
		p, ok, err := bundle.ConfiguredPlatform(ctx, f, manifest)
		if err != nil && fault.ReasonOf(err) != fault.Corrupt {
			return nil, err
		}
		if ok { // else it is for no platform
			index.Manifests[n].Platform = &p
		}
	}
	if without == 0 {
		return data, nil
	}
	return json.Marshal(index)
}

// Keep returns an index with those of its manifests alone that are for some platforms: the
// same bytes for the same index and platforms, and the index itself where nothing is left
// out. It tells which platforms the image lacks, and refuses one that has none of them.
func Keep(
	ctx context.Context, f bundle.Fetcher, data []byte, platforms []image.Platform,
) (kept []byte, lacks []image.Platform, err error) {
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, nil, &fault.Error{Reason: fault.Corrupt, Op: "read", Subject: "image index", Err: err,
			Hint: "ask who publishes the image, or name a mirror that has it whole with --source-map"}
	}
	told, err := WithPlatforms(ctx, f, data)
	if err != nil {
		return nil, nil, err
	}
	found := map[image.Platform]bool{}
	var children []ocispec.Descriptor
	for n, d := range (bundle.Node{Data: told}).Children() {
		if n >= len(index.Manifests) || d.Platform == nil || !bundle.IsManifest(d.MediaType) {
			continue
		}
		is := image.Platform{OS: d.Platform.OS, Architecture: d.Platform.Architecture, Variant: d.Platform.Variant}
		wanted := false
		for _, p := range platforms {
			if is.Is(p) {
				found[p], wanted = true, true
			}
		}
		if wanted {
			children = append(children, index.Manifests[n])
		}
	}
	lacks = slices.DeleteFunc(slices.Clone(platforms), func(p image.Platform) bool { return found[p] })
	switch len(children) {
	case 0:
		return nil, nil, &fault.Error{
			Reason: fault.NotFound, Op: "pick platforms", Subject: image.JoinPlatforms(platforms),
			Err: errors.New("the image has none of them"), Hint: "ask for a platform that all images have, or for --platform all",
		}
	case len(index.Manifests):
		return data, lacks, nil
	}
	index.Manifests, index.Subject = children, nil
	kept, err = json.Marshal(index)
	return kept, lacks, err
}

// derived reads the index of an image of which the lock keeps some platforms, and returns a
// source that has what was kept of it beside what the index names.
func derived(
	ctx context.Context, of medium.Source, i bundle.Image, platforms []image.Platform,
) (bundle.Fetcher, error) {
	x, _ := i.Index()
	data, err := readIndexOf(ctx, of, x)
	if err != nil {
		return nil, err
	}
	kept, err := comesTo(ctx, of, data, i, platforms)
	if err == nil && kept == nil {
		err = notOf(x, i)
	}
	return overlay{of, digest.Digest(i.Digest.String()), kept}, err
}

// comesTo returns what a lock keeps of an index, nil where that is not the image.
func comesTo(
	ctx context.Context, f bundle.Fetcher, data []byte, i bundle.Image, platforms []image.Platform,
) ([]byte, error) {
	kept, _, err := Keep(ctx, f, data, platforms)
	if err != nil || image.DigestOf(kept) != i.Digest {
		return nil, err
	}
	return kept, nil
}

// overlay has one more manifest than its source.
type overlay struct {
	bundle.Fetcher
	digest digest.Digest
	data   []byte
}

func (o overlay) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if d.Digest == o.digest {
		return io.NopCloser(bytes.NewReader(o.data)), nil
	}
	return o.Fetcher.Fetch(ctx, d)
}
