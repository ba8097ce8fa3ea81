package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	godigest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Media types that Docker gave before OCI.
const (
	dockerManifestList = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerManifest     = "application/vnd.docker.distribution.manifest.v2+json"
)

var acceptManifests = strings.Join([]string{
	ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageManifest, dockerManifestList, dockerManifest,
}, ", ")

// Repository is one repository of a registry, and what a reference names in it.
// Reading is safe for concurrent use; so is Put between Begin and Commit.
type Repository struct {
	client *Client
	ref    image.Reference
	host   *host
	finds  atomic.Int32 // how it is asked for a blob that is to be sent

	mu       sync.Mutex
	push     *push               // between Begin and Close
	sessions map[string]*url.URL // uploads that refused mounts have opened, by digest
	spare    *url.URL            // an upload that Preflight has opened
}

// Reference returns what the repository was opened with.
func (r *Repository) Reference() image.Reference { return r.ref }

// Root returns what the reference names; see [Repository.Resolve].
func (r *Repository) Root(ctx context.Context) (ocispec.Descriptor, error) { return r.Resolve(ctx) }

// Resolve returns the descriptor of what the reference names: of its digest where
// it has one, else of its tag.
func (r *Repository) Resolve(ctx context.Context) (ocispec.Descriptor, error) {
	d, found, err := r.stat(ctx, "resolve", r.ref.String(), r.ref.Identifier(), r.pulls())
	if err != nil || found {
		return d, err
	}
	return d, &fault.Error{
		Reason: fault.NotFound, Op: "resolve", Subject: r.ref.String(),
		Hint: "check the name, the tag and the digest", Err: errors.New("the registry does not have it"),
	}
}

// stat asks for a manifest by tag or digest. HEAD is enough where the registry
// answers it in full; else the manifest is read and hashed.
func (r *Repository) stat(ctx context.Context, op, subject, id string, a access) (ocispec.Descriptor, bool, error) {
	q := call{
		method: http.MethodHead, url: r.address("manifests", id), access: a,
		header: map[string]string{"Accept": acceptManifests},
		ok:     []int{200, 400, 404, 405, 406, 415, 501},
	}
	answer, err := r.small(ctx, op, subject, q, 0)
	if err != nil || answer.status == http.StatusNotFound {
		return ocispec.Descriptor{}, false, err
	}
	if answer.status == http.StatusOK {
		if d, ok := describe(answer); ok {
			return d, true, r.checkDigest(op, subject, id, d)
		}
	}
	q.method, q.ok = http.MethodGet, []int{200, 404}
	answer, err = r.small(ctx, op, subject, q, bundle.MaxManifestSize)
	if err != nil || answer.status == http.StatusNotFound {
		return ocispec.Descriptor{}, false, err
	}
	d := ocispec.Descriptor{MediaType: answer.mediaType(), Digest: godigest.FromBytes(answer.data), Size: int64(len(answer.data))}
	if err := r.misplaced(op, subject, answer); err != nil {
		return d, false, err
	}
	if told := answer.header.Get("Docker-Content-Digest"); strings.HasPrefix(told, "sha256:") && told != d.Digest.String() {
		return d, false, corrupt(op, subject, fmt.Errorf("the registry says %s, the content is %s", told, d.Digest))
	}
	if !bundle.IsManifest(d.MediaType) {
		return d, false, corrupt(op, subject, fmt.Errorf("it is a %q, no image or index", clean(d.MediaType, 100)))
	}
	return d, true, r.checkDigest(op, subject, id, d)
}

// checkDigest compares what was found with the digest that was asked for.
func (r *Repository) checkDigest(op, subject, id string, d ocispec.Descriptor) error {
	if strings.HasPrefix(id, "sha256:") && d.Digest.String() != id {
		return corrupt(op, subject, fmt.Errorf("the registry answered with %s", d.Digest))
	}
	return nil
}

func corrupt(op, subject string, err error) error {
	return &fault.Error{
		Reason: fault.Corrupt, Op: op, Subject: subject,
		Hint: "check the registry's storage and what stands between, and push the content again", Err: err,
	}
}

// misplaced is a fault where an answer is what no registry gives for a manifest: a page
// of a portal or proxy, or content that something between has compressed. Nothing is
// wrong with the registry's storage then.
func (r *Repository) misplaced(op, subject string, a reply) error {
	text := bytes.TrimLeft(a.data[:min(len(a.data), 512)], "\ufeff \t\r\n")
	f := &fault.Error{Reason: fault.Corrupt, Op: op, Subject: subject}
	switch {
	case strings.HasPrefix(a.mediaType(), "text/html"), bytes.HasPrefix(text, []byte("<")):
		f.Err = errors.New("it is a web page, not a manifest")
		f.Hint = "something answers in the place of " + r.host.name + ": check the address, and the proxy (HTTPS_PROXY, NO_PROXY) or portal between"
	case bytes.HasPrefix(a.data, []byte{0x1f, 0x8b}), a.header.Get("Content-Encoding") != "" && a.header.Get("Content-Encoding") != "identity":
		f.Err = errors.New("it is compressed, which manifests never are")
		f.Hint = "a proxy before " + r.host.name + " compresses its answers, or something else was stored there: have compression switched off for /v2/ (nginx: gzip off), or push the content again"
	default:
		return nil
	}
	return f
}

// describe makes a descriptor of the headers of an answer to HEAD.
func describe(a reply) (ocispec.Descriptor, bool) {
	digest, err := image.ParseDigest(a.header.Get("Docker-Content-Digest"))
	d := ocispec.Descriptor{MediaType: a.mediaType(), Digest: godigest.Digest(digest.String()), Size: a.length}
	return d, err == nil && bundle.IsManifest(d.MediaType) && d.Size > 0 && d.Size <= bundle.MaxManifestSize
}

// Manifest returns the bytes of a manifest, verified by size and digest.
func (r *Repository) Manifest(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	subject := r.at(d.Digest.String())
	if err := bundle.CheckDescriptor(d); err != nil {
		return nil, err
	}
	limit := d.Size
	if limit == 0 || limit > bundle.MaxManifestSize {
		limit = bundle.MaxManifestSize
	}
	limit = max(limit, 64<<10) // so that a page that comes instead is read, and named
	answer, err := r.small(ctx, "read", subject, call{
		method: http.MethodGet, url: r.address("manifests", d.Digest.String()), access: r.pulls(),
		header: map[string]string{"Accept": acceptManifests}, ok: []int{200},
	}, limit)
	var lost *fault.Error
	if fault.ReasonOf(err) == fault.NotFound && errors.As(err, &lost) {
		lost.Hint += "; where the registry has lost a part of a bundle, `vdo-bundle push BUNDLE REGISTRY/REPO:TAG --check-all` adds it again"
	}
	if err != nil {
		return nil, err
	}
	data := answer.data
	if err := r.misplaced("read", subject, answer); err != nil {
		return nil, err
	}
	if got := godigest.FromBytes(data); got != d.Digest || (d.Size > 0 && int64(len(data)) != d.Size) {
		return nil, corrupt("read", subject, fmt.Errorf("it is %d bytes with the digest %s, not %d bytes", len(data), got, d.Size))
	}
	return data, nil
}

// at names a thing of the repository in messages.
func (r *Repository) at(id string) string {
	if strings.HasPrefix(id, "sha256:") {
		return r.ref.Repository() + "@" + id
	}
	return r.ref.Repository() + ":" + id
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
			Reason: fault.InvalidInput, Op: "read", Subject: r.at(d.Digest.String()),
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

// Suffixes of the tags under which cosign keeps what is about an image.
var attachmentTags = []string{".sig", ".att", ".sbom"}

// Attachments lists the manifests that are about a subject: those under cosign's
// tags, with the tag in org.opencontainers.image.ref.name, and its referrers. That
// there is none is only said of a subject that can be read: registries answer 403
// or 404 for an absent tag and for one that may not be seen alike.
func (r *Repository) Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	const op = "list signatures of"
	name := r.at(subject.String())
	_, found, err := r.stat(ctx, op, name, subject.String(), r.pulls())
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, &fault.Error{
			Reason: fault.NotFound, Op: op, Subject: name,
			Hint: "check the name and the digest", Err: errors.New("the registry does not have it"),
		}
	}
	var out []ocispec.Descriptor
	for _, suffix := range attachmentTags {
		tag := "sha256-" + subject.Hex() + suffix
		d, found, err := r.stat(ctx, op, name, tag, r.pulls())
		if fault.ReasonOf(err) == fault.Forbidden {
			found, err = false, nil // the subject itself can be read
		}
		if err != nil {
			return nil, err
		}
		if found {
			d.Annotations = map[string]string{ocispec.AnnotationRefName: tag}
			out = append(out, d)
		}
	}
	referrers, err := r.referrers(ctx, op, name, subject)
	return append(out, referrers...), err
}

const (
	maxReferrers     = 1000
	maxReferrerPages = 50
)

// referrers lists what names the subject: by the API, or where there is none, by
// the tag sha256-<hex> (OCI distribution specification 1.1, "Listing Referrers").
func (r *Repository) referrers(ctx context.Context, op, name string, subject image.Digest) ([]ocispec.Descriptor, error) {
	list, supported, err := r.referrersAPI(ctx, op, name, subject)
	if err != nil || supported {
		return list, err
	}
	index, err := r.fallbackIndex(ctx, op, name, subject, r.pulls())
	if err != nil {
		return nil, err
	}
	return checkReferrers(op, name, index.Manifests)
}

// referrersAPI asks the API, page by page. Whether it is there is asked, not
// concluded from headers: some registries announce what they do not have.
func (r *Repository) referrersAPI(ctx context.Context, op, name string, subject image.Digest) (list []ocispec.Descriptor, supported bool, err error) {
	if r.host.lacksReferrers(r.ref.Path()) {
		return nil, false, nil
	}
	u := r.address("referrers", subject.String())
	for range maxReferrerPages {
		answer, err := r.small(ctx, op, name, call{
			method: http.MethodGet, url: u, access: r.pulls(),
			header: map[string]string{"Accept": ocispec.MediaTypeImageIndex}, ok: []int{200, 400, 403, 404, 405, 406, 501},
		}, bundle.MaxManifestSize)
		if err != nil {
			return nil, false, err
		}
		if answer.status != http.StatusOK || answer.mediaType() != ocispec.MediaTypeImageIndex {
			if answer.status == http.StatusNotFound {
				r.host.noteNoReferrers(r.ref.Path())
			}
			return nil, false, nil
		}
		page, err := parseReferrers(op, name, answer.data)
		if err != nil {
			return nil, true, err
		}
		if list = append(list, page...); len(list) > maxReferrers {
			return nil, true, corrupt(op, name, fmt.Errorf("there are more than %d", maxReferrers))
		}
		next := nextPage(answer.header.Get("Link"))
		if next == "" {
			return list, true, nil
		}
		v, err := u.Parse(next)
		if err != nil || v.Host != u.Host || v.Path != u.Path {
			return nil, true, corrupt(op, name, errors.New("the registry names a next page elsewhere"))
		}
		v.Scheme, u = u.Scheme, v
	}
	return nil, true, corrupt(op, name, errors.New("the registry names pages without end"))
}

func (h *host) lacksReferrers(path string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.noReferrers[path]
}

func (h *host) noteNoReferrers(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noReferrers[path] = true
}

func parseReferrers(op, name string, data []byte) ([]ocispec.Descriptor, error) {
	var index ocispec.Index
	if err := decode(data, &index); err != nil {
		return nil, corrupt(op, name, err)
	}
	return checkReferrers(op, name, index.Manifests)
}

// nextPage reads a Link header of RFC 8288: <URL>; rel="next".
func nextPage(link string) string {
	target, params, ok := strings.Cut(strings.TrimPrefix(link, "<"), ">")
	if !ok || !strings.HasPrefix(link, "<") || !strings.Contains(params, "next") {
		return ""
	}
	return target
}

// checkReferrers refuses lists with descriptors that cannot be.
func checkReferrers(op, name string, list []ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	out := make([]ocispec.Descriptor, 0, len(list))
	for _, d := range list {
		if err := bundle.CheckDescriptor(d); err != nil {
			return nil, corrupt(op, name, err)
		}
		if bundle.IsManifest(d.MediaType) {
			out = append(out, d)
		}
	}
	return out, nil
}

// fallbackIndex reads the index under the tag sha256-<hex>; none is an empty one.
func (r *Repository) fallbackIndex(ctx context.Context, op, name string, subject image.Digest, a access) (ocispec.Index, error) {
	empty := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	d, found, err := r.stat(ctx, op, name, "sha256-"+subject.Hex(), a)
	if fault.ReasonOf(err) == fault.Forbidden && a.actions == "pull" {
		found, err = false, nil
	}
	if err != nil || !found || d.MediaType != ocispec.MediaTypeImageIndex {
		return empty, err
	}
	data, err := r.Manifest(ctx, d)
	if err != nil {
		return empty, err
	}
	var index ocispec.Index
	if err := decode(data, &index); err != nil {
		return empty, corrupt(op, name, err)
	}
	return index, nil
}
