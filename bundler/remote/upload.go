package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

const (
	// firstChunk is the first size of a part after the host refused a whole blob. Each further refusal makes it a
	// quarter, down to leastChunk.
	firstChunk = 16 << 20
	leastChunk = 256 << 10
	// cutLeast is the size up to which a blob is resent whole after a broken connection. For larger ones a proxy may
	// be the cause, and parts save what arrived.
	cutLeast = 1 << 20
)

// upload is the upload of one blob: as one request, or in parts that begin where the registry says. An attempt
// continues to the end or a fault; after a fault the parts may become smaller.
type upload struct {
	r      *Repository
	ctx    context.Context //nolint:containedctx // an upload is one call, in several steps
	d      ocispec.Descriptor
	source source

	size     int64 // of a part; 0: one body
	verified bool  // the host has accepted a part of that size, or the user set it
	noParts  bool  // the host refuses parts

	session *session // nil: none to continue
	lost    bool     // an answer was lost: the blob may have arrived

	failures int   // since the last progress
	failedAt int64 // largest offset of a failure
}

type session struct {
	url        *url.URL // moves with each answer, also to another host, which gets no login
	offset     int64    // bytes that the registry has
	least      int64    // smallest size of a part, in bytes
	resumed    bool     // continued after a fault
	mismatched bool     // the registry said that the last part began elsewhere
}

// putBlob uploads a blob, with retries.
func (r *Repository) putBlob(ctx context.Context, d ocispec.Descriptor, open func(int64) (io.ReadCloser, error)) error {
	release, err := r.host.Pushes(d.Size).Acquire(ctx)
	if err != nil {
		return r.client.Explain(ctx, r.host, opPush, r.At(d.Digest.String()), err)
	}
	defer release()
	u := &upload{
		r: r, ctx: ctx, d: d, source: source{d: d, open: open}, size: r.host.chunk.Load(), verified: true,
	}
	defer u.source.close()
	return u.run()
}

// run makes attempts until the blob has arrived, the fault is permanent, or too many attempts made no progress.
func (u *upload) run() error {
	for {
		err := u.attempt()
		if err == nil {
			return nil
		}
		if u.cutSmaller(err) {
			continue
		}
		if u.offset()-u.failedAt >= goodProgress {
			u.failures = 0
		}
		u.failures, u.failedAt = u.failures+1, max(u.failedAt, u.offset())
		u.lost = true
		if err = u.r.client.Wait(u.ctx, u.r.host, err, u.failures); err != nil {
			return u.r.client.Explain(u.ctx, u.r.host, opPush, u.r.At(u.d.Digest.String()), err)
		}
	}
}

// attempt sends what the registry lacks of the blob. After a lost answer, it first asks whether the blob arrived.
func (u *upload) attempt() (err error) {
	if u.lost {
		exists, err := u.r.hasOnce(u.ctx, u.d, u.r.Pushes())
		if err != nil || exists {
			return err
		}
		u.lost = false
	}
	inParts := u.size > 0 && u.size < u.d.Size
	if u.session != nil && inParts {
		if err := u.resume(); err != nil {
			return err
		}
	}
	if u.session == nil {
		if u.session, err = u.r.openUpload(u.ctx, u.r.Pushes(), nil); err != nil {
			return err
		}
	}
	if !inParts {
		_, err := u.send(http.MethodPut, u.session.end(u.d), 0, u.d.Size, nil) //nolint:bodyclose // it is closed
		u.session = nil                                                        // an attempt uses it up
		return err
	}
	u.size = max(u.size, u.session.least)
	for u.session.offset < u.d.Size {
		if err := u.part(); err != nil {
			return err
		}
	}
	_, err = u.send(http.MethodPut, u.session.end(u.d), u.d.Size, 0, nil) //nolint:bodyclose // it is closed
	if err != nil {
		return err
	}
	u.r.host.chunk.CompareAndSwap(0, u.size) // saves later blobs the search
	return nil
}

func (u *upload) part() error {
	at := u.session
	n := min(u.size, u.d.Size-at.offset)
	header := map[string]string{"Content-Range": fmt.Sprintf("%d-%d", at.offset, at.offset+n-1)}
	if !u.verified { // so that a refusal arrives before the body and is not lost with the connection
		header["Expect"] = "100-continue"
	}
	resp, err := u.send(http.MethodPatch, at.url, at.offset, n, header) //nolint:bodyclose // it is closed
	if err != nil {
		return err
	}
	if err := at.moved(u.r, resp); err != nil {
		return err
	}
	// Its Range is not relied on: ECR's stays at the first part.
	at.offset, at.mismatched, u.verified = at.offset+n, false, true
	return nil
}

// send sends bytes of the blob. A fault of the source hides the registry's answer to it.
func (u *upload) send(method string, to *url.URL, offset, n int64, header map[string]string) (*http.Response, error) {
	q := Request{
		Method: method, URL: to, Access: u.r.Pushes(), Size: n, OK: []int{201, 204},
		Header: map[string]string{"Content-Type": "application/octet-stream"},
		Body: func() (io.ReadCloser, error) {
			if n == 0 {
				return http.NoBody, nil
			}
			return u.source.body(offset, n)
		},
	}
	maps.Copy(q.Header, header)
	if method == http.MethodPatch {
		q.OK = append(q.OK, 202)
	}
	resp, err := u.r.client.call(u.ctx, u.r.host, q)
	if u.source.err != nil {
		return nil, u.source.err
	}
	if err != nil {
		u.source.close()
	}
	return resp, u.refused(err)
}

// refused turns the loss of a session into an error that can be retried in a new one. If only the offset differs, the
// session gets one more chance: the registry may still be storing a broken part.
func (u *upload) refused(err error) error {
	var a *AnswerError
	if !errors.As(err, &a) {
		return err
	}
	at := u.session
	if a.Status == http.StatusRequestedRangeNotSatisfiable && !at.mismatched {
		at.mismatched = true
		return fmt.Errorf("the registry is at another place of the upload: %s", a.Error())
	}
	isLost := a.Status == http.StatusRequestedRangeNotSatisfiable || a.Status == http.StatusNotFound && at.offset > 0 ||
		a.Has("BLOB_UPLOAD_UNKNOWN") || a.Has("BLOB_UPLOAD_INVALID") && at.offset > 0 || a.Has("DIGEST_INVALID") && at.resumed
	if !isLost {
		return err
	}
	u.session = nil
	return fmt.Errorf("the registry has given up the upload: %s", a.Error())
}

func (u *upload) offset() int64 {
	if u.session == nil {
		return 0
	}
	return u.session.offset
}

// cutSmaller decides whether to send smaller parts after a fault, and reports whether to do so at once. A refusal
// because of the size is no failed attempt.
func (u *upload) cutSmaller(err error) bool {
	var a *AnswerError
	var f *fault.Error
	isAnswer := errors.As(err, &a)
	switch {
	case errors.As(err, &f), u.ctx.Err() != nil, u.noParts:
	case isAnswer && a.Status == http.StatusRequestEntityTooLarge && !isQuota(a):
		return u.shrink()
	case isAnswer && a.Method == http.MethodPatch && slices.Contains([]int{400, 404, 405, 415, 501}, a.Status):
		u.size, u.noParts, u.session = 0, true, nil
		return true
	case isAnswer || !CanPass(err):
	case u.size == 0 && u.d.Size > cutLeast:
		u.shrink()
	case u.size > 0 && u.offset() <= u.failedAt && u.failures > 0: // twice without progress
		u.shrink()
	}
	return false
}

// shrink selects the next smaller size of a part, and reports whether there is one.
func (u *upload) shrink() bool {
	next := int64(firstChunk)
	for next >= leastChunk && (next >= u.d.Size || (u.size > 0 && next >= u.size)) {
		next /= 4
	}
	if next < leastChunk || u.session != nil && u.size > 0 && u.size <= u.session.least {
		return false
	}
	u.size, u.verified = next, false
	return true
}

// resume asks the registry how much it has. If the registry does not say, the upload restarts.
func (u *upload) resume() error {
	at := u.session
	if u.failures == 0 && at.offset == 0 {
		return nil // no bytes were sent
	}
	resp, err := u.r.client.call(u.ctx, u.r.host, Request{ //nolint:bodyclose // it is closed
		Method: http.MethodGet, URL: at.url, Access: u.r.Pushes(), OK: []int{200, 202, 204},
	})
	var a *AnswerError
	if err != nil && (!errors.As(err, &a) || CanPassStatus(a.Status) || a.Status == http.StatusUnauthorized) {
		return err
	}
	var ok bool
	if err == nil {
		at.offset, ok = uploaded(resp.Header.Get("Range"))
	}
	if !ok || at.offset > u.d.Size {
		u.session = nil
		return nil
	}
	at.resumed = true
	return at.moved(u.r, resp)
}

// uploaded parses the Range header of an upload, "0-LAST" with or without "bytes=". Registries write 0-0 for nothing
// and for one byte; uploaded assumes nothing. If that is wrong, the registry refuses the next Content-Range.
func uploaded(header string) (int64, bool) {
	first, last, ok := strings.Cut(strings.TrimPrefix(header, "bytes="), "-")
	n, err := strconv.ParseInt(last, 10, 64)
	if !ok || first != "0" || err != nil || n < 0 {
		return 0, false
	}
	if n == 0 {
		return 0, true
	}
	return n + 1, true
}

// end returns the URL that completes the upload. It keeps the session's query unchanged, which may be signed.
func (s *session) end(d ocispec.Descriptor) *url.URL {
	to := *s.url
	query := "digest=" + strings.ReplaceAll(d.Digest.String(), ":", "%3A")
	if to.RawQuery != "" {
		query = to.RawQuery + "&" + query
	}
	to.RawQuery = query
	return &to
}

func (s *session) moved(r *Repository, resp *http.Response) (err error) {
	if resp.Header.Get("Location") != "" {
		s.url, err = r.client.Location(r.host, resp.Request.URL, resp)
	}
	return err
}

// openUpload opens an upload session. The session is nil if the registry mounted the blob that query names.
func (r *Repository) openUpload(ctx context.Context, right Access, query url.Values) (*session, error) {
	q := Request{Method: http.MethodPost, URL: r.Address("blobs", "uploads", ""), Access: right, OK: []int{202}}
	if query != nil {
		q.URL.RawQuery, q.OK = query.Encode(), []int{201, 202}
	}
	resp, err := r.client.call(ctx, r.host, q) //nolint:bodyclose // it is closed
	if err != nil || resp.StatusCode == http.StatusCreated {
		return nil, err
	}
	s := &session{}
	s.least, _ = strconv.ParseInt(resp.Header.Get("Oci-Chunk-Min-Length"), 10, 64) // 0 if not given
	s.url, err = r.client.Location(r.host, resp.Request.URL, resp)
	return s, err
}

// Ready checks that the registry is reachable and the login may write. It opens an upload, which a read-only registry
// refuses first. The registry drops it like every abandoned upload.
func (r *Repository) Ready(ctx context.Context, _ int64) error {
	return r.client.Retry(ctx, r.host, "begin a push to", r.ref.String(), func() error {
		_, err := r.openUpload(ctx, r.Pushes(), nil)
		return err
	})
}

// Mount lets the registry copy a blob from another of its repositories, and reports whether it did. If not, for lack
// of support or of a right there, the caller must Put the blob.
func (r *Repository) Mount(ctx context.Context, d ocispec.Descriptor, from image.Reference) (bool, error) {
	_, refused := r.host.noMount.Load(from.Path())
	if refused || from.Host() != r.ref.Host() || from.Path() == r.ref.Path() {
		return false, nil
	}
	release, err := r.host.small.Acquire(ctx)
	if err != nil {
		return false, r.client.Explain(ctx, r.host, opPush, r.At(d.Digest.String()), err)
	}
	defer release()
	right := r.Pushes()
	right.From = from.Path()
	s, err := r.openUpload(ctx, right, url.Values{"mount": {d.Digest.String()}, "from": {from.Path()}})
	switch {
	case err != nil:
		if ctx.Err() == nil && !CanPass(err) {
			r.host.noMount.Store(from.Path(), true)
		}
		return false, nil //nolint:nilerr // Put reports every other problem
	case s == nil:
		r.begun().arrived(d)
		return true, nil
	}
	return false, nil
}

// source is a blob to upload. It opens with the first byte, and withholds the last bytes until the digest matches, so
// a changed source never arrives whole. It rereads from the start if the registry wants a part again.
type source struct {
	d    ocispec.Descriptor
	open func(int64) (io.ReadCloser, error)

	in       io.ReadCloser // nil: not open
	verified io.Reader     // verifies in
	at       int64         // offset of its next byte
	err      error         // fault of the source
}

// body returns n bytes from an offset as a request's body; the previous one has been closed. The stream stays open
// between parts, so that a remote store is asked once.
func (s *source) body(offset, n int64) (io.ReadCloser, error) {
	if s.in == nil || s.at != offset {
		s.close()
		in, err := s.open(0)
		if err != nil {
			return nil, err
		}
		s.in, s.verified, s.at = in, bundle.Verify(io.LimitReader(in, s.d.Size), s.d), 0
		if _, err := io.CopyN(io.Discard, s, offset); err != nil {
			return nil, err
		}
	}
	return io.NopCloser(io.LimitReader(s, n)), nil
}

// close closes the stream; body reopens it.
func (s *source) close() {
	if s.in != nil {
		_ = s.in.Close()
		s.in, s.err = nil, nil
	}
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.verified.Read(p)
	s.at += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// bytesOf returns a function that opens bytes in memory at an offset.
func bytesOf(data []byte) func(int64) (io.ReadCloser, error) {
	return func(offset int64) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data[offset:])), nil }
}

// bodyOf returns a function that opens bytes in memory as a request's body.
func bodyOf(data []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}
