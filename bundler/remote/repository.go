package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
)

// Repository is one repository of a registry, and what a reference names in it.
// Reading is safe for concurrent use; so is Put between Begin and Commit.
type Repository struct {
	client *Client
	ref    image.Reference
	host   *Host

	mu   sync.Mutex
	push *push // between Begin and Close
}

// Can tells what a repository can do besides being read and written.
func (r *Repository) Can() medium.Capabilities {
	return medium.Capabilities{
		Repository: r.ref, Attach: r.Attach, Mount: r.Mount, Lacks: r.Lacks, Notices: r.Notices,
	}
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
	return r.host.base.JoinPath("/v2/", r.ref.Path(), strings.Join(parts, "/"))
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

// subject names what is requested in messages.
func (l Look) subject(r *Repository) string { return cmp.Or(l.Subject, r.At(l.ID)) }

// access is the right that it needs.
func (l Look) access(r *Repository) Access {
	if l.Access.Path == "" {
		return r.Pulls()
	}
	return l.Access
}

// manifest makes one request for a manifest.
func (r *Repository) manifest(ctx context.Context, method string, l Look, limit int64, ok ...int) (Reply, error) {
	return r.Small(ctx, l.Op, l.subject(r), Request{
		Method: method, URL: r.Address("manifests", l.ID), Access: l.access(r), OK: ok,
		Header: map[string]string{"Accept": manifestTypes},
	}, limit)
}

// Root returns the descriptor of what the reference names: of its digest where
// it has one, else of its tag.
func (r *Repository) Root(ctx context.Context) (ocispec.Descriptor, error) {
	d, found, err := r.Stat(ctx, Look{Op: "resolve", Subject: r.ref.String(), ID: r.ref.Identifier()})
	if err != nil || found {
		return d, err
	}
	return d, notFound("resolve", r.ref.String(), "check the name, the tag and the digest")
}

func notFound(op, subject, hint string) error {
	return fault.Errorf(fault.NotFound, op, subject, hint, "the registry does not have it")
}

// Stat asks for a manifest by tag or digest. HEAD is enough where the registry
// answers it in full; else the manifest is read and hashed.
func (r *Repository) Stat(ctx context.Context, l Look) (d ocispec.Descriptor, found bool, err error) {
	a, err := r.manifest(ctx, http.MethodHead, l, 0, 200, 400, 404, 405, 406, 415, 501)
	if err != nil || a.Status == http.StatusNotFound {
		return d, false, err
	}
	digest, err := image.ParseDigest(a.Header.Get("Docker-Content-Digest"))
	isWhole := a.Status == http.StatusOK && a.Length > 0 && a.Length <= bundle.MaxManifestSize
	if err == nil && isWhole && bundle.IsManifest(a.mediaType()) {
		if strings.HasPrefix(l.ID, "sha256:") && digest.String() != l.ID {
			return d, false, r.corrupt(l, fmt.Errorf("the registry answered with %s", digest))
		}
		d = ocispec.Descriptor{MediaType: a.mediaType(), Digest: godigest.Digest(digest.String()), Size: a.Length}
		return d, true, nil
	}
	d, _, found, err = r.Get(ctx, l)
	if found && !bundle.IsManifest(d.MediaType) { // what is under a tag has no other proof
		err = r.corrupt(l, fmt.Errorf("it is a %q, not an image or index", Clean(r.host.scrub(d.MediaType), 100)))
	}
	return d, found, err
}

// Get reads a manifest by tag or digest. Its descriptor is that of the bytes that came.
func (r *Repository) Get(ctx context.Context, l Look) (d ocispec.Descriptor, data []byte, found bool, err error) {
	a, err := r.manifest(ctx, http.MethodGet, l, bundle.MaxManifestSize, 200, 404)
	if err != nil || a.Status == http.StatusNotFound {
		return d, nil, false, err
	}
	d = ocispec.Descriptor{MediaType: a.mediaType(), Digest: godigest.FromBytes(a.Data), Size: int64(len(a.Data))}
	said, err := image.ParseDigest(a.Header.Get("Docker-Content-Digest"))
	switch {
	case err == nil && said.String() != d.Digest.String(): // else it is none, or of another algorithm
		return d, nil, false, r.corrupt(l, fmt.Errorf("the registry says %s, the content is %s of the type %.100q",
			said, d.Digest, a.mediaType()))
	case strings.HasPrefix(l.ID, "sha256:") && d.Digest.String() != l.ID:
		return d, nil, false, r.corrupt(l, fmt.Errorf("the registry answered with %s of the type %.100q",
			d.Digest, a.mediaType()))
	}
	var own struct {
		MediaType string `json:"mediaType"`
	}
	if json.Unmarshal(a.Data, &own) == nil && own.MediaType != "" {
		d.MediaType = own.MediaType // the hashed bytes count before what is claimed about them
	}
	return d, a.Data, true, nil
}

// PutManifest writes a manifest under its digest or under a tag, and returns the header
// of the registry's answer. Nothing is listed anywhere by that, see EnsureListed.
func (r *Repository) PutManifest(ctx context.Context, op, id string, n bundle.Node) (http.Header, error) {
	a, err := r.Small(ctx, op, r.At(id), r.putting(id, n), MaxErrorBody)
	return a.Header, err
}

// putting is the request that writes a manifest.
func (r *Repository) putting(id string, n bundle.Node) Request {
	return Request{
		Method: http.MethodPut, URL: r.Address("manifests", id), Access: r.Pushes(), OK: []int{201, 200, 202, 204},
		Header: map[string]string{"Content-Type": n.Descriptor.MediaType}, Body: bodyOf(n.Data), Size: int64(len(n.Data)),
	}
}

// Fetch returns the bytes of a blob or manifest from an offset. They are not verified: the
// stream ends with io.EOF after exactly d.Size bytes, or with a fault; who reads them hashes
// them, once.
func (r *Repository) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	if err := bundle.CheckDescriptor(d); err != nil {
		return nil, err
	}
	if offset < 0 || offset > d.Size {
		return nil, fault.Errorf(fault.InvalidInput, "read", r.At(d.Digest.String()), "",
			"offset %d is not within its %d bytes", offset, d.Size)
	}
	return r.openStream(ctx, d, offset)
}

// Reply is an answer that was read into memory.
type Reply struct {
	Status int
	Header http.Header
	Length int64 // the Content-Length; -1 for nothing
	Data   []byte
}

// mediaType returns the Content-Type without parameters, or "".
func (a Reply) mediaType() string {
	t, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}

// Small makes a request whose answer is read into memory, of at most limit bytes, tried
// as often as it takes. Its errors are faults for op and subject.
func (r *Repository) Small(ctx context.Context, op, subject string, q Request, limit int64) (a Reply, err error) {
	err = r.client.Retry(ctx, r.host, op, subject, func() error {
		a, err = r.smallOnce(ctx, q, limit)
		return err
	})
	return a, err
}

// smallOnce is Small without attempts of its own.
func (r *Repository) smallOnce(ctx context.Context, q Request, limit int64) (a Reply, err error) {
	release, err := r.host.small.Acquire(ctx)
	if err != nil {
		return a, err
	}
	defer release()
	resp, err := r.client.Send(ctx, r.host, q) //nolint:bodyclose // Drain closes it
	if err != nil {
		return a, err
	}
	defer Drain(resp.Body)
	a = Reply{Status: resp.StatusCode, Header: resp.Header, Length: resp.ContentLength}
	if q.Method == http.MethodHead {
		return a, nil
	}
	a.Data, err = ReadAll(resp.Body, limit)
	if err == nil && a.Length > 0 && a.Length != int64(len(a.Data)) {
		err = io.ErrUnexpectedEOF
	}
	return a, err
}

func (r *Repository) corrupt(l Look, err error) error {
	if clean := r.host.scrub(err.Error()); clean != err.Error() {
		err = errors.New(clean)
	}
	return Corrupt(l.Op, l.subject(r), err)
}

// Corrupt is a fault of content that is not what it has to be.
func Corrupt(op, subject string, err error) error {
	return fault.Errorf(fault.Corrupt, op, subject,
		"check the registry's storage and what is between, such as a proxy or a portal, and push the content again",
		"%w", err)
}

// manifestTypes are the media types of manifests: those of OCI, and those that Docker
// gave before.
const manifestTypes = ocispec.MediaTypeImageIndex + ", " + ocispec.MediaTypeImageManifest +
	", application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json"

// Lacks asks for blobs and manifests, and returns those that the repository does not have. It needs no
// more than the right to pull; where a push has begun, it asks with the right that this has.
func (r *Repository) Lacks(ctx context.Context, ds []ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	if r.begun() != nil {
		return r.lacks(ctx, ds, r.Pushes())
	}
	return r.lacks(ctx, ds, r.Pulls())
}

func (r *Repository) lacks(
	ctx context.Context, ds []ocispec.Descriptor, a Access,
) (out []ocispec.Descriptor, err error) {
	found := make([]bool, len(ds))
	group, ctx := r.group(ctx)
	for i, d := range ds {
		group.Go(func() (err error) {
			found[i], err = r.has(ctx, d, a)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, d := range ds {
		if !found[i] {
			out = append(out, d)
		}
	}
	return out, nil
}

// group runs small requests side by side.
func (r *Repository) group(ctx context.Context) (*errgroup.Group, context.Context) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.host.small.Most())
	return g, ctx
}

// has asks for one blob or manifest with its size, with a right that the caller needs
// anyway.
func (r *Repository) has(ctx context.Context, d ocispec.Descriptor, right Access) (found bool, err error) {
	const op = "look for"
	subject := r.At(d.Digest.String())
	if bundle.IsManifest(d.MediaType) {
		exists, found, err := r.Stat(ctx, Look{Op: op, Subject: subject, ID: d.Digest.String(), Access: right})
		return found && (d.Size == 0 || exists.Size == d.Size), err
	}
	err = r.client.Retry(ctx, r.host, op, subject, func() (err error) {
		found, err = r.hasOnce(ctx, d, right)
		return err
	})
	return found, err
}

// hasOnce is has for a blob, without attempts of its own. An answer that gives a length has to
// give the blob's. Some registries give none, and some 0 for each blob: the first byte tells these from one
// that has lost the content.
func (r *Repository) hasOnce(ctx context.Context, d ocispec.Descriptor, right Access) (bool, error) {
	a, err := r.smallOnce(ctx, Request{
		Method: http.MethodHead, URL: r.Address("blobs", d.Digest.String()), Access: right, OK: []int{200, 404},
	}, 0)
	if err == nil && a.Status == http.StatusOK && a.Length <= 0 && d.Size > 0 {
		return r.gives(ctx, d, right)
	}
	return a.Status == http.StatusOK && max(a.Length, 0) == d.Size, err
}

// gives tells whether the first byte of a blob comes.
func (r *Repository) gives(ctx context.Context, d ocispec.Descriptor, right Access) (bool, error) {
	a, err := r.smallOnce(ctx, Request{
		Method: http.MethodGet, URL: r.Address("blobs", d.Digest.String()), Access: right,
		Header: map[string]string{"Range": "bytes=0-0"}, OK: []int{200, 206, 404, 416},
	}, 1)
	if errors.Is(err, errTooLong) { // no part was given
		err = nil
	}
	return a.Status < http.StatusMultipleChoices && len(a.Data) > 0, err
}
