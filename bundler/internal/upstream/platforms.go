package upstream

import (
	"bytes"
	"context"
	"io"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
)

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
	kept, _, err := bundle.KeepPlatforms(ctx, f, data, platforms)
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
