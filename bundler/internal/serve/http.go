package serve

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

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
		answerJSON(w, req, "application/json", map[string][]string{"repositories": page(w, req, r.Names())})
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
	answerJSON(w, req, "application/json", map[string]any{"name": name, "tags": page(w, req, tags)})
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
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{}}
	want := req.URL.Query().Get("artifactType")
	for _, d := range repo.referrers[digest] {
		if want == "" || d.ArtifactType == want {
			index.Manifests = append(index.Manifests, d)
		}
	}
	if want != "" {
		w.Header().Set("Oci-Filters-Applied", "artifactType")
	}
	answerJSON(w, req, ocispec.MediaTypeImageIndex, index)
}

func answerJSON(w http.ResponseWriter, req *http.Request, mediaType string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		refuse(w, http.StatusInternalServerError, unsupported, "the list cannot be written")
		return
	}
	answer(w, req, mediaType, data)
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
