package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

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
func (r *Repository) Small(ctx context.Context, op, subject string, q Request, limit int64) (Reply, error) {
	var a Reply
	release, err := r.host.small.Acquire(ctx)
	if err != nil {
		return a, r.client.Explain(ctx, r.host, op, subject, err)
	}
	defer release()
	err = r.client.Retry(ctx, r.host, op, subject, func(int) error {
		resp, err := r.client.Send(ctx, r.host, q) //nolint:bodyclose // Drain closes it
		if err != nil {
			return err
		}
		defer Drain(resp.Body)
		a = Reply{Status: resp.StatusCode, Header: resp.Header, Length: resp.ContentLength}
		a.Data, err = ReadAll(resp.Body, limit)
		if err == nil && a.Length > 0 && q.Method != http.MethodHead && a.Length != int64(len(a.Data)) {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	return a, err
}

// exchange carries the requests of one call of oras'. Whole answers are read into memory
// before oras sees them, and tried again where they break off, which oras' own retries
// do not cover. What oras takes more strictly than registries mean it is put right.
type exchange struct {
	r           *Repository
	op, subject string
	access      Access
	ok          []int
	limit       int64
	last        Reply
}

// oras returns oras' client of the repository for one call. Whether there is a
// referrers API is asked here (see [Repository.Referrers]), and lists of referrers are
// kept here (see [Repository.EnsureListed]).
func (x *exchange) oras() *remote.Repository {
	base := x.r.host.base
	repo := &remote.Repository{
		Client: x, Reference: registry.Reference{Registry: base.Host, Repository: x.r.ref.Path()}, PlainHTTP: base.Scheme == "http",
		ManifestMediaTypes: manifestTypes, MaxMetadataBytes: bundle.MaxManifestSize, SkipReferrersGC: true,
		TagListPageSize: tagsAtATime, TagListMaxPages: maxTagPages, ReferrerListMaxPages: maxReferrerPages,
	}
	_ = repo.SetReferrersCapability(true) // the first setting is no error
	return repo
}

// errVague is an answer to HEAD that does not say enough.
var errVague = errors.New("the answer to HEAD does not say what is there")

// Do carries one request, see [remote.Client].
func (x *exchange) Do(req *http.Request) (*http.Response, error) {
	q := Request{Method: req.Method, URL: req.URL, Access: x.access, OK: x.ok, Header: map[string]string{}}
	for _, name := range []string{"Accept", "Content-Type"} {
		if v := req.Header.Get(name); v != "" {
			q.Header[name] = v
		}
	}
	if req.Body != nil && req.Body != http.NoBody {
		q.Body, q.Size = req.GetBody, req.ContentLength
	}
	a, err := x.r.Small(req.Context(), x.op, x.subject, q, x.limit)
	if err != nil {
		return nil, err
	}
	x.last = a
	resp := &http.Response{
		StatusCode: a.Status, Header: a.Header.Clone(), Body: io.NopCloser(bytes.NewReader(a.Data)), ContentLength: int64(len(a.Data)), Request: req,
	}
	resp.Header.Set("Content-Type", a.mediaType()) // oras knows no parameters
	if a.mediaType() == "" {
		resp.Header.Set("Content-Type", "application/octet-stream")
	}
	switch {
	case req.Method == http.MethodHead:
		resp.ContentLength = a.Length
		return x.described(resp)
	case req.Method == http.MethodPut:
		resp.StatusCode = http.StatusCreated // which of the successes it is does not matter
		return resp, nil
	case req.Method == http.MethodDelete:
		return resp, nil
	case strings.Contains(req.URL.Path, "/manifests/"):
		return x.content(resp)
	case strings.Contains(req.URL.Path, "/referrers/") && a.Status != http.StatusOK:
		resp.StatusCode, resp.Body = http.StatusNotFound, http.NoBody // in whatever words: there is no such API
		return resp, nil
	}
	return x.page(resp)
}

// described lets an answer to HEAD pass that says all of a manifest, or that there is none.
func (x *exchange) described(resp *http.Response) (*http.Response, error) {
	if resp.StatusCode == http.StatusNotFound {
		return resp, nil
	}
	_, err := image.ParseDigest(resp.Header.Get("Docker-Content-Digest"))
	if err != nil || resp.StatusCode != http.StatusOK || !bundle.IsManifest(resp.Header.Get("Content-Type")) || resp.ContentLength <= 0 || resp.ContentLength > bundle.MaxManifestSize {
		return nil, errVague
	}
	return resp, nil
}

// content lets a manifest pass, and nothing that came in its place.
func (x *exchange) content(resp *http.Response) (*http.Response, error) {
	if resp.StatusCode != http.StatusOK {
		return resp, nil
	}
	if err := x.misplaced(); err != nil {
		return nil, err
	}
	if _, err := image.ParseDigest(resp.Header.Get("Docker-Content-Digest")); err != nil {
		resp.Header.Del("Docker-Content-Digest") // of another algorithm
	}
	return resp, nil
}

// page lets a page of a list pass that is continued under the same address, if at all:
// oras would follow to another repository of the host, and any link for the next page.
func (x *exchange) page(resp *http.Response) (*http.Response, error) {
	link := resp.Header.Get("Link")
	target, params, ok := strings.Cut(strings.TrimPrefix(link, "<"), ">")
	if !ok || !strings.HasPrefix(link, "<") || !strings.Contains(params, "next") {
		resp.Header.Del("Link")
		return resp, nil
	}
	at := resp.Request.URL
	next, err := at.Parse(target)
	if err != nil || next.Host != at.Host || next.Path != at.Path {
		return nil, x.corrupt(errors.New("the registry names a next page elsewhere"))
	}
	next.Scheme = at.Scheme // registries behind a proxy do not know that they are spoken to by TLS
	resp.Header.Set("Link", "<"+next.String()+`>; rel="next"`)
	return resp, nil
}

// misplaced is a fault where an answer is what no registry gives for a manifest: a page
// of a portal or proxy, or content that something between has compressed. Nothing is
// wrong with the registry's storage then.
func (x *exchange) misplaced() error {
	a, host := x.last, x.r.host.name
	text := bytes.TrimLeft(a.Data[:min(len(a.Data), 512)], "\ufeff \t\r\n")
	f := &fault.Error{Reason: fault.Corrupt, Op: x.op, Subject: x.subject}
	switch {
	case strings.HasPrefix(a.mediaType(), "text/html"), bytes.HasPrefix(text, []byte("<")):
		f.Err = errors.New("it is a web page, not a manifest")
		f.Hint = "something answers in the place of " + host + ": check the address, and the proxy (HTTPS_PROXY, NO_PROXY) or portal between"
	case bytes.HasPrefix(a.Data, []byte{0x1f, 0x8b}), a.Header.Get("Content-Encoding") != "" && a.Header.Get("Content-Encoding") != "identity":
		f.Err = errors.New("it is compressed, which manifests never are")
		f.Hint = "a proxy before " + host + " compresses its answers, or something else was stored there: have compression switched off for /v2/ (nginx: gzip off), or push the content again"
	default:
		return nil
	}
	return f
}

// outcome makes of what oras says whether there is something, or a fault.
func (x *exchange) outcome(err error) (found bool, _ error) {
	var f *fault.Error
	var syntax *json.SyntaxError
	var form *json.UnmarshalTypeError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &f):
		return false, f
	case errors.Is(err, errdef.ErrNotFound):
		return false, nil
	case errors.Is(err, errdef.ErrTooManyPages):
		err = errors.New("the registry names pages without end")
	case errors.As(err, &syntax), errors.As(err, &form), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("it is not JSON of the right form")
	default:
		err = fmt.Errorf("its answer does not follow the OCI distribution specification: %s", Clean(withoutQuery(x.r.host.scrub(err.Error())), 300))
	}
	return false, x.corrupt(err)
}

// withoutQuery cuts a text at the query of an URL.
func withoutQuery(text string) string {
	text, _, _ = strings.Cut(text, "?")
	return text
}

func (x *exchange) corrupt(err error) error {
	if clean := x.r.host.scrub(err.Error()); clean != err.Error() {
		err = errors.New(clean)
	}
	return Corrupt(x.op, x.subject, err)
}

// Corrupt is a fault of content that is not what it has to be.
func Corrupt(op, subject string, err error) error {
	return &fault.Error{
		Reason: fault.Corrupt, Op: op, Subject: subject,
		Hint: "check the registry's storage and what is between, and push the content again", Err: err,
	}
}

// manifestTypes are the media types of manifests: those of OCI, and those that Docker
// gave before.
var manifestTypes = []string{
	ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageManifest,
	"application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.docker.distribution.manifest.v2+json",
}
