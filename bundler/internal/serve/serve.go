// Package serve is a read-only registry over bundles on disk: the pull half of the OCI distribution
// specification 1.1. It unpacks nothing; it reads blobs from the archive on request.
//
//	GET HEAD  /v2/                                200, or 401 if a login is needed
//	GET HEAD  /v2/NAME/manifests/TAG-or-DIGEST
//	GET HEAD  /v2/NAME/blobs/DIGEST               with Range
//	GET HEAD  /v2/NAME/tags/list                  n, last
//	GET HEAD  /v2/NAME/referrers/DIGEST           artifactType
//	GET HEAD  /v2/_catalog                        n, last
//
// Everything else gets 404, writes get 405 (UNSUPPORTED), and every error has the specification's
// JSON.
//
// Repositories have the layout of `push --layout paths`: the whole bundle in one, and each image
// with its attachments below that, under its upstream name:
//
//	vdo/drivers:1
//	vdo/drivers/registry.k8s.io/csi-vsphere/driver:v3.5.1
//
// The package does not verify bytes; clients check digests, as with any registry.
package serve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Registry is the served content by repository. It must not change while it is served.
type Registry map[string]*repository

// repository is the manifests and blobs of one name.
type repository struct {
	manifests map[string]bundle.Node // by digest
	blobs     map[string]blob
	tags      map[string]string // tag → digest
	referrers map[string][]ocispec.Descriptor
}

// blob is read from the bundle that holds it.
type blob struct {
	ocispec.Descriptor
	source bundle.Fetcher
}

// Add adds a bundle below the repository of at, under at's tag. It does not verify the source's bytes. If two bundles
// share an image name or signature tag in one repository, the last one gets the tag; both exist by digest.
func (r Registry) Add(g *bundle.Graph, s bundle.Fetcher, at image.Reference) error {
	r.add(at, g, s)
	var errs []error
	for _, d := range g.Images() {
		beside, err := image.ParseReference(d.Annotations[bundle.AnnotationReference])
		if err == nil {
			beside, err = beside.Below(at)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.add(beside, g.Below(d), s)
	}
	return fault.Join(errs...)
}

// add adds a graph to the repository of a reference, under its tag.
func (r Registry) add(at image.Reference, g *bundle.Graph, s bundle.Fetcher) {
	repo := r[at.Path()]
	if repo == nil {
		repo = &repository{
			manifests: map[string]bundle.Node{}, blobs: map[string]blob{},
			tags: map[string]string{}, referrers: map[string][]ocispec.Descriptor{},
		}
		r[at.Path()] = repo
	}
	for _, n := range g.Manifests {
		repo.manifests[n.Descriptor.Digest.String()] = n
	}
	for _, b := range g.Blobs {
		repo.blobs[b.Digest.String()] = blob{b, s}
	}
	for _, a := range g.Attachments {
		repo.attach(a, s)
	}
	if at.Tag() != "" {
		repo.tags[at.Tag()] = g.Root.Digest.String()
	}
}

func (r *repository) attach(a bundle.Referrer, s bundle.Fetcher) {
	d := a.Node.Descriptor
	r.manifests[d.Digest.String()] = a.Node
	for _, b := range a.Blobs {
		r.blobs[b.Digest.String()] = blob{b, s}
	}
	if a.Tag != "" {
		r.tags[a.Tag] = d.Digest.String()
	}
	var m ocispec.Manifest
	if json.Unmarshal(a.Node.Data, &m) == nil && m.Subject != nil && m.Subject.Digest.String() == a.Subject.String() {
		list := slices.Concat(r.referrers[a.Subject.String()], []ocispec.Descriptor{a.Node.Referrer()})
		slices.SortFunc(list, func(x, y ocispec.Descriptor) int { return cmp.Compare(x.Digest, y.Digest) })
		same := func(x, y ocispec.Descriptor) bool { return x.Digest == y.Digest }
		r.referrers[a.Subject.String()] = slices.CompactFunc(list, same)
	}
}

// Names returns the repositories, sorted.
func (r Registry) Names() []string { return slices.Sorted(maps.Keys(r)) }

func (r *repository) manifest(reference string) (bundle.Node, bool) {
	if digest, ok := r.tags[reference]; ok {
		reference = digest
	}
	n, ok := r.manifests[reference]
	return n, ok
}

// content reads a blob from any position, for http.ServeContent.
type content struct {
	blob
	ctx  context.Context //nolint:containedctx // of the one request that it answers
	at   int64
	open io.ReadCloser
}

func (c *content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.Size
	}
	if offset < 0 {
		return c.at, fmt.Errorf("offset %d is before the beginning", offset)
	}
	if offset != c.at {
		c.end()
	}
	c.at = offset
	return offset, nil
}

func (c *content) Read(p []byte) (int, error) {
	if c.at >= c.Size {
		return 0, io.EOF
	}
	if c.open == nil {
		var err error
		if c.open, err = c.source.Fetch(c.ctx, c.Descriptor, c.at); err != nil {
			return 0, err
		}
	}
	n, err := c.open.Read(p)
	c.at += int64(n)
	return n, err
}

func (c *content) end() {
	if c.open != nil {
		_ = c.open.Close() // only read
		c.open = nil
	}
}

// blobUnknown and the others are the error codes of the specification that a read-only server needs.
const (
	blobUnknown     = "BLOB_UNKNOWN"
	digestInvalid   = "DIGEST_INVALID"
	manifestUnknown = "MANIFEST_UNKNOWN"
	nameUnknown     = "NAME_UNKNOWN"
	unauthorized    = "UNAUTHORIZED"
	unsupported     = "UNSUPPORTED"
)

// ServeHTTP answers one request.
func (r Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	rest, ok := strings.CutPrefix(req.URL.Path, "/v2")
	switch {
	case !ok || rest != "" && rest[0] != '/':
		refuse(w, http.StatusNotFound, unsupported, "the API is below /v2/")
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, unsupported, "this registry is read-only")
	case rest == "" || rest == "/":
		answer(w, req, "application/json", []byte("{}"))
	case rest == "/_catalog":
		answerJSON(w, req, map[string][]string{"repositories": page(w, req, r.Names())})
	default:
		r.route(w, req, rest[1:])
	}
}

// route serves NAME/KIND/REFERENCE; only names have slashes.
func (r Registry) route(w http.ResponseWriter, req *http.Request, path string) {
	parts := strings.Split(path, "/")
	if len(parts) < 3 {
		refuse(w, http.StatusNotFound, unsupported, "there is no such endpoint")
		return
	}
	n := len(parts)
	name, kind, reference := strings.Join(parts[:n-2], "/"), parts[n-2], parts[n-1]
	serve, ok := map[string]func(http.ResponseWriter, *http.Request, *repository, string){
		"manifests": r.serveManifest, "blobs": r.serveBlob, "referrers": r.serveReferrers, "tags": r.serveTags,
	}[kind]
	switch repo := r[name]; {
	case !ok || kind == "tags" && reference != "list":
		refuse(w, http.StatusNotFound, unsupported, "there is no such endpoint")
	case repo == nil:
		refuse(w, http.StatusNotFound, nameUnknown, "there is no such repository")
	case (kind == "blobs" || kind == "referrers") && !strings.Contains(reference, ":"): // of any algorithm
		refuse(w, http.StatusBadRequest, digestInvalid, "it is not a digest")
	default:
		serve(w, req, repo, reference)
	}
}

func (r Registry) serveManifest(w http.ResponseWriter, req *http.Request, repo *repository, reference string) {
	n, ok := repo.manifest(reference)
	if !ok {
		refuse(w, http.StatusNotFound, manifestUnknown, "there is no such manifest in this repository")
		return
	}
	identify(w, n.Descriptor)
	answer(w, req, n.Descriptor.MediaType, n.Data)
}

func (r Registry) serveBlob(w http.ResponseWriter, req *http.Request, repo *repository, digest string) {
	d, ok := repo.blobs[digest]
	if !ok {
		refuse(w, http.StatusNotFound, blobUnknown, "there is no such blob in this repository")
		return
	}
	identify(w, d.Descriptor)
	w.Header().Set("Content-Type", "application/octet-stream")
	if int64(len(d.Data)) == d.Size {
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(d.Data))
		return
	}
	c := &content{blob: d, ctx: req.Context()}
	defer c.end()
	http.ServeContent(w, req, "", time.Time{}, c)
}

// identify sets the headers that name immutable content.
func identify(w http.ResponseWriter, d ocispec.Descriptor) {
	w.Header().Set("Docker-Content-Digest", d.Digest.String())
	w.Header().Set("ETag", `"`+d.Digest.String()+`"`)
}

func (r Registry) serveTags(w http.ResponseWriter, req *http.Request, repo *repository, _ string) {
	name := strings.TrimSuffix(strings.TrimPrefix(req.URL.Path, "/v2/"), "/tags/list")
	tags := slices.AppendSeq([]string{}, maps.Keys(repo.tags))
	slices.Sort(tags)
	answerJSON(w, req, map[string]any{"name": name, "tags": page(w, req, tags)})
}

// page returns the part of a sorted list that a request wants with n and last, and links to the next one.
func page(w http.ResponseWriter, req *http.Request, names []string) []string {
	query := req.URL.Query()
	if last := query.Get("last"); last != "" {
		at, found := slices.BinarySearch(names, last)
		if found {
			at++
		}
		names = names[at:]
	}
	n, err := strconv.Atoi(query.Get("n"))
	if err != nil || n < 0 || n >= len(names) {
		return names
	}
	if n > 0 {
		query.Set("last", names[n-1])
		next := url.URL{Path: req.URL.Path, RawQuery: query.Encode()}
		w.Header().Set("Link", "<"+next.String()+`>; rel="next"`)
	}
	return names[:n]
}

// serveReferrers returns an empty index without referrers, even for a missing subject (OCI specification).
func (r Registry) serveReferrers(w http.ResponseWriter, req *http.Request, repo *repository, digest string) {
	index := ocispec.Index{Manifests: []ocispec.Descriptor{}}
	want := req.URL.Query().Get("artifactType")
	for _, d := range repo.referrers[digest] {
		if want == "" || d.ArtifactType == want {
			index.Manifests = append(index.Manifests, d)
		}
	}
	if want != "" {
		w.Header().Set("Oci-Filters-Applied", "artifactType")
	}
	answer(w, req, ocispec.MediaTypeImageIndex, bundle.NewIndex(index).Data)
}

func answerJSON(w http.ResponseWriter, req *http.Request, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		refuse(w, http.StatusInternalServerError, unsupported, "the list cannot be written")
		return
	}
	answer(w, req, "application/json", data)
}

// answer sends data from memory; package http handles conditions and ranges.
func answer(w http.ResponseWriter, req *http.Request, mediaType string, data []byte) {
	w.Header().Set("Content-Type", mediaType)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	type problem struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	data, err := json.Marshal(map[string][]problem{"errors": {{code, message}}})
	if err != nil {
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data) // it fails only if the client is gone
}
