package installer

import (
	"bytes"
	"context"
	"errors"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// mirror is a bundle in a registry.
type mirror struct{ repo *remote.Repository }

// Mirror is a bundle in a registry.
func Mirror(c *remote.Client, ref image.Reference) Source { return mirror{c.Repository(ref)} }

func (m mirror) Root(ctx context.Context) (ocispec.Descriptor, error) {
	id := m.repo.Reference().Identifier()
	d, _, found, err := m.repo.Get(ctx, remote.Look{Op: "read", ID: id})
	if err == nil && !found {
		err = &fault.Error{Reason: fault.NotFound, Op: "read", Subject: m.repo.At(id), Err: errors.New("the registry does not have it"), Hint: "check the name and the tag, or push the bundle with `vdo-bundle push`"}
	}
	return d, err
}

func (m mirror) Signatures(ctx context.Context, root image.Digest) ([]ocispec.Descriptor, error) {
	return m.repo.Signatures(ctx, root)
}

func (m mirror) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if !bundle.IsManifest(d.MediaType) {
		return m.repo.Blob(ctx, d)
	}
	data, err := m.repo.Manifest(ctx, d)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}
