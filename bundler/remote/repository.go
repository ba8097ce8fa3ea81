package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Repository is one repository of a registry, and what a reference names in it.
// Reading is safe for concurrent use; so is Put between Begin and Commit.
type Repository struct {
	client *Client
	ref    image.Reference
	host   *Host

	mu       sync.Mutex
	push     *push               // between Begin and Close
	sessions map[string]*url.URL // uploads that refused mounts have opened, by digest
	spare    *url.URL            // an upload that Preflight has opened
}

// Reference returns what the repository was opened with.
func (r *Repository) Reference() image.Reference { return r.ref }

// At names a thing of the repository, by tag or digest, in messages.
func (r *Repository) At(id string) string {
	if strings.HasPrefix(id, "sha256:") {
		return r.ref.Repository() + "@" + id
	}
	return r.ref.Repository() + ":" + id
}

// Address returns the URL of a thing in the repository.
func (r *Repository) Address(parts ...string) *url.URL {
	return &url.URL{Scheme: r.host.base.Scheme, Host: r.host.base.Host, Path: "/v2/" + r.ref.Path() + "/" + strings.Join(parts, "/")}
}

// Pulls is the right to read.
func (r *Repository) Pulls() Access { return Access{Path: r.ref.Path(), Actions: "pull"} }

// Pushes is the right to write.
func (r *Repository) Pushes() Access { return Access{Path: r.ref.Path(), Actions: "pull,push"} }

// Look is what is asked of the repository.
type Look struct {
	Op      string // what is done, for messages
	Subject string // for messages; empty: the tag or digest
	ID      string // a tag or digest
	Access  Access // a right that the caller needs anyway; zero: to pull
}

// exchange makes that of a look.
func (r *Repository) exchange(l Look, limit int64, ok ...int) *exchange {
	if l.Subject == "" {
		l.Subject = r.At(l.ID)
	}
	if l.Access.Path == "" {
		l.Access = r.Pulls()
	}
	return &exchange{r: r, op: l.Op, subject: l.Subject, access: l.Access, ok: ok, limit: limit}
}

// Root returns the descriptor of what the reference names: of its digest where
// it has one, else of its tag.
func (r *Repository) Root(ctx context.Context) (ocispec.Descriptor, error) {
	d, found, err := r.Stat(ctx, Look{Op: "resolve", Subject: r.ref.String(), ID: r.ref.Identifier()})
	if err != nil || found {
		return d, err
	}
	return d, notThere("resolve", r.ref.String(), "check the name, the tag and the digest")
}

func notThere(op, subject, hint string) error {
	return &fault.Error{Reason: fault.NotFound, Op: op, Subject: subject, Hint: hint, Err: errors.New("the registry does not have it")}
}

// Stat asks for a manifest by tag or digest. HEAD is enough where the registry
// answers it in full; else the manifest is read and hashed.
func (r *Repository) Stat(ctx context.Context, l Look) (d ocispec.Descriptor, found bool, err error) {
	x := r.exchange(l, 0, 200, 400, 404, 405, 406, 415, 501)
	d, err = x.oras().Resolve(ctx, l.ID)
	if errors.Is(err, errVague) {
		d, _, found, err = r.Get(ctx, l)
		if found {
			err = x.mediaTypeIs(d)
		}
		return d, found, err
	}
	found, err = x.outcome(err)
	return d, found, err
}

// Get reads a manifest by tag or digest. Its descriptor is that of the bytes that came.
func (r *Repository) Get(ctx context.Context, l Look) (d ocispec.Descriptor, data []byte, found bool, err error) {
	return r.get(ctx, l.ID, r.exchange(l, bundle.MaxManifestSize, 200, 404))
}

func (r *Repository) get(ctx context.Context, id string, x *exchange) (d ocispec.Descriptor, data []byte, found bool, err error) {
	d, body, err := x.oras().FetchReference(ctx, id)
	if found, err = x.outcome(err); !found {
		return ocispec.Descriptor{}, nil, false, err
	}
	_ = body.Close() // it is in memory
	data = x.last.Data
	got := godigest.FromBytes(data)
	switch {
	case got != d.Digest:
		return d, nil, false, x.corrupt(fmt.Errorf("the registry says %s, the content is %s", d.Digest, got))
	case strings.HasPrefix(id, "sha256:") && got.String() != id:
		return d, nil, false, x.corrupt(fmt.Errorf("the registry answered with %s", got))
	}
	var own struct {
		MediaType string `json:"mediaType"`
	}
	if json.Unmarshal(data, &own) == nil && own.MediaType != "" {
		d.MediaType = own.MediaType // the hashed bytes count before what is claimed about them
	}
	return d, data, true, nil
}

// mediaTypeIs demands that of a manifest: what is under a tag has no other proof.
func (x *exchange) mediaTypeIs(d ocispec.Descriptor) error {
	if bundle.IsManifest(d.MediaType) {
		return nil
	}
	return x.corrupt(fmt.Errorf("it is a %q, not an image or index", Clean(x.r.host.scrub(d.MediaType), 100)))
}

// Manifest returns the bytes of a manifest, verified by size and digest.
func (r *Repository) Manifest(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	if err := bundle.CheckDescriptor(d); err != nil {
		return nil, err
	}
	limit := d.Size
	if limit == 0 || limit > bundle.MaxManifestSize {
		limit = bundle.MaxManifestSize
	}
	limit = max(limit, 64<<10) // so that a page that comes instead is read, and named
	id := d.Digest.String()
	x := r.exchange(Look{Op: "read", ID: id}, limit, 200)
	_, data, _, err := r.get(ctx, id, x)
	var lost *fault.Error
	if fault.ReasonOf(err) == fault.NotFound && errors.As(err, &lost) {
		lost.Hint += "; where the registry has lost a part of a bundle, `vdo-bundle push BUNDLE REGISTRY/REPO:TAG` adds it again"
	}
	if err != nil {
		return nil, err
	}
	if d.Size > 0 && int64(len(data)) != d.Size {
		return nil, x.corrupt(fmt.Errorf("expected %d bytes, got %d", d.Size, len(data)))
	}
	return data, nil
}

// PutManifest writes a manifest under its digest or under a tag, and returns the header
// of the registry's answer. Nothing is listed anywhere by that, see EnsureListed.
func (r *Repository) PutManifest(ctx context.Context, op, id string, n bundle.Node) (http.Header, error) {
	x := r.exchange(Look{Op: op, ID: id, Access: r.Pushes()}, MaxErrorBody, 201, 200, 202, 204)
	d := ocispec.Descriptor{MediaType: n.Descriptor.MediaType, Digest: n.Descriptor.Digest, Size: int64(len(n.Data))}
	_, err := x.outcome(x.oras().PushReference(ctx, d, bytes.NewReader(n.Data), id))
	return x.last.Header, err
}

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
