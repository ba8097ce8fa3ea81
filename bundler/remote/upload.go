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
	// firstChunk is the first size of a part that is tried where a whole blob is not
	// taken; each further refusal makes it a quarter, down to leastChunk.
	firstChunk = 16 << 20
	leastChunk = 256 << 10
	// cutLeast is up to which size a blob is sent as a whole again where the connection broke in the
	// middle of it: of a larger one a proxy may have ended it, and what arrived need not be sent again.
	cutLeast = 1 << 20
)

// upload is one blob on its way into a repository: as the body of one request, or
// in parts, each of which begins where the registry says that it is. An attempt goes from
// where it is to the end or to a fault; after that the blob may be cut into smaller parts.
type upload struct {
	r      *Repository
	ctx    context.Context //nolint:containedctx // an upload is one call, in several steps
	d      ocispec.Descriptor
	source source

	size     int64 // of a part; 0: the blob is one body
	verified bool  // the host has taken a part of that size, or the user gave it
	noParts  bool  // the host has refused parts

	session *session // nil: there is none that can be gone on with
	lost    bool     // an answer was lost: the blob may have arrived

	failures int   // since the last progress
	failedAt int64 // offset of the last failure
}

// session is an upload as the registry knows it.
type session struct {
	url        *url.URL // where it goes on; it may move with each answer, also to another host, which gets no login
	offset     int64    // what the registry has in it
	least      int64    // bytes that parts are of at least
	resumed    bool     // it was gone on with after a fault
	mismatched bool     // the registry has said that the last part began elsewhere
}

// putBlob uploads a blob, as often as it takes.
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

// run makes attempts until the blob is there, its fault cannot pass, or there have
// been enough of them without progress.
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
		u.failures, u.failedAt = u.failures+1, u.offset()
		u.lost = true
		if err = u.r.client.Wait(u.ctx, u.r.host, err, u.failures); err != nil {
			return u.r.client.Explain(u.ctx, u.r.host, opPush, u.r.At(u.d.Digest.String()), err)
		}
	}
}

// attempt asks whether the blob is there, where an answer was lost, and else sends it, or
// what the registry does not have of it.
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
		u.failedAt = 0
	}
	if !inParts {
		_, err := u.send(http.MethodPut, u.session.end(u.d), 0, u.d.Size, nil) //nolint:bodyclose // it is closed
		u.session = nil                                                        // used up, however this has ended
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
	u.r.host.chunk.CompareAndSwap(0, u.size) // the next blobs need not find out
	return nil
}

// part sends the next part.
func (u *upload) part() error {
	at := u.session
	n := min(u.size, u.d.Size-at.offset)
	header := map[string]string{"Content-Range": fmt.Sprintf("%d-%d", at.offset, at.offset+n-1)}
	if !u.verified { // a refusal comes before the body, and is not lost with the connection
		header["Expect"] = "100-continue"
	}
	resp, err := u.send(http.MethodPatch, at.url, at.offset, n, header) //nolint:bodyclose // it is closed
	if err != nil {
		return err
	}
	if err := at.moved(u.r, resp); err != nil {
		return err
	}
	if has, ok := uploaded(resp.Header.Get("Range")); ok && has != at.offset+n {
		return fmt.Errorf("the registry has %d bytes of the upload where %d were sent", has, at.offset+n)
	}
	at.offset, at.mismatched, u.verified = at.offset+n, false, true
	return nil
}

// send sends bytes of the blob. What is wrong with the source comes before what the registry
// made of it.
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

// refused makes of an answer that the session cannot go on what may be tried again, in a
// new session; but where the registry is at another place, it is asked once more: it may have taken
// in more of a broken part meanwhile.
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
	u.session, u.failedAt = nil, 0
	return fmt.Errorf("the registry has given up the upload: %s", a.Error())
}

// offset is what the registry has of the blob.
func (u *upload) offset() int64 {
	if u.session == nil {
		return 0
	}
	return u.session.offset
}

// cutSmaller decides whether the blob is sent in smaller parts after a fault, and
// whether that is tried at once: a refusal for the size is no failed attempt.
func (u *upload) cutSmaller(err error) bool {
	var a *AnswerError
	var f *fault.Error
	isAnswer := errors.As(err, &a)
	switch {
	case errors.As(err, &f), u.ctx.Err() != nil, u.noParts:
	case isAnswer && a.Status == http.StatusRequestEntityTooLarge:
		return u.shrink()
	case isAnswer && a.Method == http.MethodPatch && slices.Contains([]int{400, 404, 405, 415, 501}, a.Status):
		u.size, u.noParts, u.session = 0, true, nil
		return true
	case isAnswer || !CanPass(err):
	case u.size == 0 && u.d.Size > cutLeast:
		u.shrink()
	case u.size > 0 && u.offset() == u.failedAt && u.failures > 0: // twice at the same place
		u.shrink()
	}
	return false
}

// shrink takes the next smaller size of a part, and tells whether there is one.
func (u *upload) shrink() bool {
	next := int64(firstChunk)
	for next >= leastChunk && (next >= u.d.Size || (u.size > 0 && next >= u.size)) {
		next /= 4
	}
	if next < leastChunk {
		return false
	}
	u.size, u.verified = next, false
	return true
}

// resume asks the registry how much it has. A registry that does not say gets a
// new upload.
func (u *upload) resume() error {
	at := u.session
	if u.failures == 0 && at.offset == 0 {
		return nil // nothing was sent to it
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

// uploaded reads the Range header of an upload, "0-LAST", sometimes with "bytes="
// before it. Registries write 0-0 for nothing as well as for one byte; nothing is
// the likelier, and a wrong guess is refused by the next part's Content-Range.
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

// end is where the upload ends: the query of the session is kept as it came, since it
// may be signed.
func (s *session) end(d ocispec.Descriptor) *url.URL {
	to := *s.url
	query := "digest=" + strings.ReplaceAll(d.Digest.String(), ":", "%3A")
	if to.RawQuery != "" {
		query = to.RawQuery + "&" + query
	}
	to.RawQuery = query
	return &to
}

// moved keeps where the session goes on.
func (s *session) moved(r *Repository, resp *http.Response) (err error) {
	if resp.Header.Get("Location") != "" {
		s.url, err = r.client.Location(r.host, resp.Request.URL, resp)
	}
	return err
}

// openUpload asks once for an upload; a query may ask for a blob of another repository
// instead, and there is no session where the registry has taken that over.
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
	s.least, _ = strconv.ParseInt(resp.Header.Get("Oci-Chunk-Min-Length"), 10, 64) // 0 where it does not say
	s.url, err = r.client.Location(r.host, resp.Request.URL, resp)
	return s, err
}

// Ready makes sure that the registry can be reached and that the login may
// write: it opens an upload, which is the first thing that a read-only registry or
// one without the right refuses. The registry forgets it as it forgets all that no one went
// on with.
func (r *Repository) Ready(ctx context.Context, _ int64) error {
	return r.client.Retry(ctx, r.host, "begin a push to", r.ref.String(), func() error {
		_, err := r.openUpload(ctx, r.Pushes(), nil)
		return err
	})
}

// Mount has the registry take a blob over from another repository of its own,
// without the bytes coming here, and tells whether it did. Where it does not offer
// that, or the login may not read there, the blob has to be put.
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
		return false, nil //nolint:nilerr // Put tells what is wrong, if it is more than this
	case s == nil:
		r.begun().arrived(d)
		return true, nil
	}
	return false, nil
}

// source is a blob that is uploaded. It opens when the first byte is needed, and keeps the last
// bytes back until all of them are right: what changes after it was verified never arrives,
// whatever the registry compares. It reads again from the start if the registry wants a part again.
type source struct {
	d    ocispec.Descriptor
	open func(int64) (io.ReadCloser, error)

	in       io.ReadCloser // nil: not open
	verified io.Reader     // what it gives
	at       int64         // offset of its next byte
	err      error         // what is wrong with it
}

// body returns n bytes from an offset on, as the body of a request; the body before has
// been closed. The stream stays open between parts: a distant store is asked once.
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

// close ends the stream; the next body opens it again.
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

// bytesOf serves bytes that are in memory.
func bytesOf(data []byte) func(int64) (io.ReadCloser, error) {
	return func(offset int64) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data[offset:])), nil }
}

// bodyOf is the same as the body of a request.
func bodyOf(data []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}
