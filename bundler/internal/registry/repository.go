package registry

import (
	"context"
	"errors"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

var errNotYet = errors.New("being written")

type host struct{}

func (c *Client) host(string) *host { return &host{} }

// Credential is a login.
type Credential struct{ Username, Password, IdentityToken, RegistryToken string }

// CredentialFunc finds the login for host/path.
type CredentialFunc func(ctx context.Context, host, path string) (Credential, error)

// DefaultCredentials reads the docker and podman configuration.
func DefaultCredentials(context.Context, string, string) (Credential, error) {
	return Credential{}, errNotYet
}

// ConfigCredentials reads a docker config.json.
func ConfigCredentials(name string, data []byte) (CredentialFunc, error) { return nil, errNotYet }

// Repository is one repository of a registry.
type Repository struct {
	client *Client
	ref    image.Reference
	host   *host
}

// Resolve returns what the reference names.
func (r *Repository) Resolve(context.Context) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{}, errNotYet
}

// Root is Resolve.
func (r *Repository) Root(ctx context.Context) (ocispec.Descriptor, error) { return r.Resolve(ctx) }

// Manifest reads and verifies a manifest.
func (r *Repository) Manifest(context.Context, ocispec.Descriptor) ([]byte, error) {
	return nil, errNotYet
}

// Fetch reads a blob or manifest.
func (r *Repository) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	return r.FetchFrom(ctx, d, 0)
}

// FetchFrom reads a blob or manifest from an offset.
func (r *Repository) FetchFrom(context.Context, ocispec.Descriptor, int64) (io.ReadCloser, error) {
	return nil, errNotYet
}

// Attachments lists signatures and other referrers.
func (r *Repository) Attachments(context.Context, image.Digest) ([]ocispec.Descriptor, error) {
	return nil, errNotYet
}

// Begin asks what is there.
func (r *Repository) Begin(context.Context, *bundle.Graph) ([]ocispec.Descriptor, error) {
	return nil, errNotYet
}

// Put writes a blob or manifest.
func (r *Repository) Put(context.Context, ocispec.Descriptor, func(int64) (io.ReadCloser, error)) error {
	return errNotYet
}

// Commit writes the manifests and the tag.
func (r *Repository) Commit(context.Context) error { return errNotYet }

// Close ends the work.
func (r *Repository) Close() error { return nil }

func readAll(r io.Reader, limit int64) ([]byte, error) { return io.ReadAll(io.LimitReader(r, limit)) }
