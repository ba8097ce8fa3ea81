package registry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// Repository is one repository of a registry, and what a reference names in it.
// Reading is safe for concurrent use; so is Put between Begin and Commit.
type Repository struct {
	*remote.Repository
	client *Client
	ref    image.Reference
	host   *host

	mu       sync.Mutex
	push     *push               // between Begin and Close
	sessions map[string]*url.URL // uploads that refused mounts have opened, by digest
	spare    *url.URL            // an upload that Preflight has opened
}

// Root returns what the reference names; see [remote.Repository.Resolve].
func (r *Repository) Root(ctx context.Context) (ocispec.Descriptor, error) { return r.Resolve(ctx) }

// Fetch returns the bytes of a blob or manifest from the start.
//
// Manifests are verified before the first byte is returned. Blobs are not: the
// stream ends with io.EOF after exactly d.Size bytes, or with a fault; who writes
// them somewhere hashes them, once.
func (r *Repository) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	return r.FetchFrom(ctx, d, 0)
}

// FetchFrom returns the bytes of a blob or manifest from an offset; see Fetch.
func (r *Repository) FetchFrom(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	if err := bundle.CheckDescriptor(d); err != nil {
		return nil, err
	}
	if offset < 0 || offset > d.Size {
		return nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "read", Subject: r.At(d.Digest.String()),
			Err: fmt.Errorf("offset %d is not within its %d bytes", offset, d.Size),
		}
	}
	if bundle.IsManifest(d.MediaType) {
		data, err := r.Manifest(ctx, d)
		if err != nil {
			return nil, err
		}
		return io.NopCloser(bytes.NewReader(data[min(offset, int64(len(data))):])), nil
	}
	return r.openBlob(ctx, d, offset)
}
