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
	"slices"
	"strconv"
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

// Repository is a repository and a reference to it. Concurrent reads are safe, and Puts between Begin and Commit.
type Repository struct {
	client *Client
	ref    image.Reference
	host   *Host

	mu   sync.Mutex
	push *push // between Begin and Close
}

// Can returns the capabilities of a repository besides reading and writing.
func (r *Repository) Can() medium.Capabilities {
	return medium.Capabilities{
		Repository: r.ref, Attach: r.Attach, Mount: r.Mount, Lacks: r.Lacks, Notices: r.Notices,
	}
}

// Reference returns the reference of the repository.
func (r *Repository) Reference() image.Reference { return r.ref }

// Open opens a tag or digest of the repository.
func (r *Repository) Open(identifier string) (medium.Source, error) {
	if digest, err := image.ParseDigest(identifier); err == nil {
		return r.client.Repository(r.ref.Pin(digest)), nil
	}
	ref, err := r.ref.WithTag(identifier)
	if err != nil {
		return nil, err
	}
	return r.client.Repository(ref), nil
}

// At returns the name of a tag or digest for messages.
func (r *Repository) At(id string) string {
	if strings.HasPrefix(id, "sha256:") {
		return r.ref.Repository() + "@" + id
	}
	return r.ref.Repository() + ":" + id
}

// Address returns the URL of a part of the repository's API.
func (r *Repository) Address(parts ...string) *url.URL {
	return r.host.base.JoinPath("/v2/", r.ref.Path(), strings.Join(parts, "/"))
}

// Pulls returns the access for reading.
func (r *Repository) Pulls() Access { return Access{Path: r.ref.Path(), Actions: "pull"} }

// Pushes returns the access for writing.
func (r *Repository) Pushes() Access { return Access{Path: r.ref.Path(), Actions: "pull,push"} }

// Look is a request for a manifest.
type Look struct {
	Op      string // the operation, for messages
	Subject string // for messages; empty: the tag or digest
	ID      string // a tag or digest
	Access  Access // an access that the caller needs anyway; zero: to pull
}

func (l Look) subject(r *Repository) string { return cmp.Or(l.Subject, r.At(l.ID)) }

func (l Look) access(r *Repository) Access {
	if l.Access.Path == "" {
		return r.Pulls()
	}
	return l.Access
}

// manifest sends one request for a manifest.
func (r *Repository) manifest(ctx context.Context, method string, l Look, limit int64, ok ...int) (Reply, error) {
	return r.Small(ctx, l.Op, l.subject(r), Request{
		Method: method, URL: r.Address("manifests", l.ID), Access: l.access(r), OK: ok,
		Header: map[string]string{"Accept": manifestTypes},
	}, limit)
}

// Root returns the descriptor of the reference's digest, or else of its tag.
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

// Stat finds a manifest by tag or digest. If the answer to HEAD is incomplete, it reads and hashes the manifest.
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
	if found && !bundle.IsManifest(d.MediaType) { // a tag's content has no other proof
		err = r.corrupt(l, fmt.Errorf("it is a %q, not an image or index", Clean(r.host.scrub(d.MediaType), 100)))
	}
	return d, found, err
}

// Get reads a manifest by tag or digest. It computes the descriptor from the bytes.
func (r *Repository) Get(ctx context.Context, l Look) (d ocispec.Descriptor, data []byte, found bool, err error) {
	a, err := r.manifest(ctx, http.MethodGet, l, bundle.MaxManifestSize, 200, 404)
	if err != nil || a.Status == http.StatusNotFound {
		return d, nil, false, err
	}
	d = ocispec.Descriptor{MediaType: a.mediaType(), Digest: godigest.FromBytes(a.Data), Size: int64(len(a.Data))}
	said, err := image.ParseDigest(a.Header.Get("Docker-Content-Digest"))
	switch {
	case err == nil && said.String() != d.Digest.String(): // else no digest, or another algorithm
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
		d.MediaType = own.MediaType // the hashed bytes are trusted more than the header
	}
	return d, a.Data, true, nil
}

// PutManifest writes a manifest by digest or tag, and returns the answer's header. To list it, see EnsureListed.
func (r *Repository) PutManifest(ctx context.Context, op, id string, n bundle.Node) (http.Header, error) {
	a, err := r.Small(ctx, op, r.At(id), r.putting(id, n), MaxErrorBody)
	return a.Header, err
}

func (r *Repository) putting(id string, n bundle.Node) Request {
	return Request{
		Method: http.MethodPut, URL: r.Address("manifests", id), Access: r.Pushes(), OK: []int{201, 200, 202, 204},
		Header: map[string]string{"Content-Type": n.Descriptor.MediaType},
		Body:   bodyOf(n.Data), Size: int64(len(n.Data)),
	}
}

// Fetch streams a blob or manifest from an offset, unverified; the reader hashes the bytes once. The stream ends with
// io.EOF after exactly d.Size bytes, or with a fault.
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

// Reply is an answer in memory.
type Reply struct {
	Status int
	Header http.Header
	Length int64 // the Content-Length; -1 if unknown
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

// Small sends a request, with retries, and reads at most limit bytes. Its errors are faults for op and subject.
func (r *Repository) Small(ctx context.Context, op, subject string, q Request, limit int64) (a Reply, err error) {
	err = r.client.Retry(ctx, r.host, op, subject, func() error {
		a, err = r.smallOnce(ctx, q, limit)
		return err
	})
	return a, err
}

// smallOnce is Small without retries.
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

// Corrupt returns a fault about content that is not the expected one.
func Corrupt(op, subject string, err error) error {
	return fault.Errorf(fault.Corrupt, op, subject,
		"check the registry's storage and what is between, such as a proxy or a portal, and push the content again",
		"%w", err)
}

// manifestTypes are the media types of manifests: OCI's, and Docker's older ones.
const manifestTypes = ocispec.MediaTypeImageIndex + ", " + ocispec.MediaTypeImageManifest +
	", application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json"

// Lacks returns the missing blobs and manifests. It needs the right to pull; during a push it uses the push's.
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

// group returns a group that runs small requests in parallel.
func (r *Repository) group(ctx context.Context) (*errgroup.Group, context.Context) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.host.small.Most())
	return g, ctx
}

// has reports whether one blob or manifest of that size exists. It uses a right that the caller needs anyway.
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

// hasOnce is has for a blob, without retries. A length in the answer must be the blob's. Some registries give none,
// or 0; reading the first byte tells these from one that lost the content.
func (r *Repository) hasOnce(ctx context.Context, d ocispec.Descriptor, right Access) (bool, error) {
	a, err := r.smallOnce(ctx, Request{
		Method: http.MethodHead, URL: r.Address("blobs", d.Digest.String()), Access: right, OK: []int{200, 404},
	}, 0)
	if err == nil && a.Status == http.StatusOK && a.Length <= 0 && d.Size > 0 {
		return r.gives(ctx, d, right)
	}
	return a.Status == http.StatusOK && max(a.Length, 0) == d.Size, err
}

// gives reports whether the registry serves the first byte of a blob.
func (r *Repository) gives(ctx context.Context, d ocispec.Descriptor, right Access) (bool, error) {
	a, err := r.smallOnce(ctx, Request{
		Method: http.MethodGet, URL: r.Address("blobs", d.Digest.String()), Access: right,
		Header: map[string]string{"Range": "bytes=0-0"}, OK: []int{200, 206, 404, 416},
	}, 1)
	if errors.Is(err, errTooLong) { // the host ignored the range
		err = nil
	}
	return a.Status < http.StatusMultipleChoices && len(a.Data) > 0, err
}

const (
	maxTags     = 20000 // of a repository
	maxTagPages = 1000
	tagsAtATime = 1000
)

// Tags returns all tags, sorted (OCI distribution specification 1.1, "Listing Tags").
func (r *Repository) Tags(ctx context.Context) ([]string, error) {
	look := Look{Op: "list tags of", Subject: r.ref.Repository()}
	q := Request{Method: http.MethodGet, URL: r.Address("tags", "list"), OK: []int{http.StatusOK}}
	q.URL.RawQuery = "n=" + strconv.Itoa(tagsAtATime)
	var out []string
	for a, err := range r.pages(ctx, look, q, maxTagPages) {
		if err != nil {
			return nil, err
		}
		var page struct{ Tags []string }
		if err := decode(a.Data, &page); err != nil {
			return nil, r.corrupt(look, err)
		}
		for _, tag := range page.Tags {
			if strings.HasPrefix(tag, "sha256:") { // Artifactory lists digests too
				continue
			}
			if _, err := r.ref.WithTag(tag); err != nil {
				return nil, r.corrupt(look, fmt.Errorf("%q is not a tag", Clean(r.host.scrub(tag), 100)))
			}
			if out = append(out, tag); len(out) > maxTags {
				return nil, r.corrupt(look, fmt.Errorf("there are more than %d", maxTags))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Delete deletes a manifest and tags that still name it: some registries keep them. A missing manifest is no fault.
func (r *Repository) Delete(ctx context.Context, d ocispec.Descriptor, tags []string) error {
	if err := r.remove(ctx, d.Digest.String()); err != nil {
		return err
	}
	for _, tag := range tags {
		exists, found, err := r.Stat(ctx, Look{Op: opDelete, ID: tag})
		if err != nil {
			return err
		}
		if !found || exists.Digest != d.Digest {
			continue
		}
		if err := r.remove(ctx, tag); err != nil {
			return err
		}
	}
	return nil
}

const opDelete = "delete"

// remove deletes a manifest or a tag. Package oras deletes manifests only, and accepts only the status 202.
func (r *Repository) remove(ctx context.Context, id string) error {
	q := Request{
		Method: http.MethodDelete, URL: r.Address("manifests", id), OK: []int{200, 202, 204, 400, 404, 405, 501},
		Access: Access{Path: r.ref.Path(), Actions: "pull,delete"},
	}
	a, err := r.Small(ctx, opDelete, r.At(id), q, MaxErrorBody)
	if no, ok := errors.AsType[*AnswerError](err); ok && no.Status == http.StatusBadRequest {
		q.Access = r.Pushes() // Quay's token service refuses a scope with "delete"
		a, err = r.Small(ctx, opDelete, r.At(id), q, MaxErrorBody)
	}
	if err != nil {
		return err
	}
	if !slices.Contains([]int{400, 405, 501}, a.Status) {
		return nil
	}
	return fault.Errorf(fault.Refused, opDelete, r.At(id),
		"have deletion allowed (distribution: REGISTRY_STORAGE_DELETE_ENABLED=true), or prune by the registry's own means",
		"the registry does not allow deletion: %d %s %s", a.Status, http.StatusText(a.Status),
		Clean(r.host.scrub(string(a.Data)), 200))
}
