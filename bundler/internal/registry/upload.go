package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

const (
	// firstChunk is the first size of a part that is tried where a whole blob is not
	// taken; each further refusal makes it a quarter, down to leastChunk.
	firstChunk = 64 << 20
	leastChunk = 256 << 10
	// cutChunk is that where the connection broke in the middle of a whole blob of
	// more than cutLeast bytes: a proxy may have ended it, and otherwise the part
	// that arrived need not be sent again.
	cutChunk = 16 << 20
	cutLeast = 1 << 20
)

// upload is one blob on its way into a repository: as the body of one request, or
// in parts, each of which begins where the registry says that it is.
type upload struct {
	r    *Repository
	ctx  context.Context //nolint:containedctx // an upload is one call, in several steps
	d    ocispec.Descriptor
	open func(int64) (io.ReadCloser, error)

	chunk     int64 // bytes of one request; 0: all
	guessed   bool  // parts are tried because a connection broke, not because it was said
	wholeOnly bool  // the registry takes no parts
	probing   bool  // whether a part of this size is taken is not known yet
	unasked   bool  // whether the registry has the blob is not known yet

	session   *url.URL // nil: there is none
	given     bool     // it was opened some time ago, and the registry may have forgotten it
	offset    int64    // what the registry has in it
	resumed   bool     // the session has been gone on with after a fault
	outOfStep bool     // the registry has said that the last part began elsewhere

	src  *source // nil: not open
	mark mark    // where the source can be opened again

	failures int // since the last progress
	failedAt int64
}

// mark is the state of the hash at an offset.
type mark struct {
	offset int64
	state  []byte
}

// putBlob uploads a blob, as often as it takes.
func (r *Repository) putBlob(ctx context.Context, d ocispec.Descriptor, open func(int64) (io.ReadCloser, error)) error {
	release, err := r.host.Pushes(d.Size).Acquire(ctx)
	if err != nil {
		return r.client.Explain(ctx, r.host.Host, opPush, r.At(d.Digest.String()), err)
	}
	defer release()
	u := &upload{r: r, ctx: ctx, d: d, open: open, chunk: r.host.chunk.Load(), session: r.takeSession(d)}
	u.given = u.session != nil
	u.unasked = r.presumes(d)
	defer u.closeSource()
	return u.run()
}

// run makes attempts until the blob is there, its fault cannot pass, or there have
// been enough of them without progress.
func (u *upload) run() error {
	for {
		err := u.attempt()
		if err == nil {
			u.learn()
			return nil
		}
		if u.smaller(err) {
			continue
		}
		if u.offset-u.failedAt >= goodProgress {
			u.failures = 0
		}
		u.failedAt = u.offset
		u.failures++
		if err = u.r.client.Wait(u.ctx, u.r.host.Host, err, u.failures); err != nil {
			return u.r.client.Explain(u.ctx, u.r.host.Host, opPush, u.r.At(u.d.Digest.String()), err)
		}
	}
}

func (u *upload) attempt() error {
	parts := u.chunk > 0 && u.chunk < u.d.Size
	lost := u.failures > 0 // the answer may be, not the blob
	if lost || u.unasked && (parts || u.session != nil) {
		there, err := u.r.hasOnce(u.ctx, u.d, u.r.Pushes())
		if err != nil || there {
			return err
		}
		u.unasked = false
	}
	if parts {
		return u.inParts()
	}
	return u.whole()
}

// smaller decides whether the blob is sent in smaller parts after a fault, and
// whether that is tried at once: a refusal for the size is no failed attempt.
func (u *upload) smaller(err error) bool {
	var a *remote.AnswerError
	var s *remote.SourceError
	var f *fault.Error
	switch {
	case errors.As(err, &s), errors.As(err, &f), u.ctx.Err() != nil:
		return false
	case errors.As(err, &a) && a.Status == http.StatusRequestEntityTooLarge:
		return u.shrink(firstChunk, leastChunk)
	case errors.As(err, &a) && u.given && (a.Status == http.StatusNotFound || a.Status == http.StatusBadRequest):
		u.session, u.given, u.offset = nil, false, 0
		return true
	case errors.As(err, &a) && u.guessed && u.inPartsRefused(a):
		u.chunk, u.guessed, u.wholeOnly, u.session = 0, false, true, nil
		return true
	case errors.As(err, &a) || !remote.CanPass(err):
	case u.chunk == 0 && u.d.Size > cutLeast && !u.wholeOnly:
		u.guessed = u.shrink(cutChunk, cutLeast)
	case u.chunk > 0 && u.offset == u.failedAt && u.failures > 0: // twice at the same place
		u.shrink(cutChunk, leastChunk)
	}
	return false
}

// shrink takes the next smaller size of a part, and tells whether there is one.
func (u *upload) shrink(first, least int64) bool {
	next := first
	for next >= least && (next >= u.d.Size || (u.chunk > 0 && next >= u.chunk)) {
		next /= 4
	}
	if next < least {
		return false
	}
	u.chunk, u.probing = next, true
	return true
}

// inPartsRefused tells whether a registry says that it takes no parts.
func (u *upload) inPartsRefused(a *remote.AnswerError) bool {
	return a.Method != http.MethodPost && (a.Status == http.StatusNotFound || a.Status == http.StatusMethodNotAllowed ||
		a.Status == http.StatusBadRequest || a.Status == http.StatusNotImplemented || a.Status == http.StatusUnsupportedMediaType)
}

// begin opens an upload. The registry says where it wants the blob, which may be
// on another host: that one gets no login.
func (u *upload) begin() error {
	resp, err := u.r.client.Send(u.ctx, u.r.host.Host, remote.Request{ //nolint:bodyclose // Drain closes it
		Method: http.MethodPost, URL: u.r.Address("blobs", "uploads", ""), Access: u.r.Pushes(), OK: []int{202},
	})
	if err != nil {
		return err
	}
	remote.Drain(resp.Body)
	if least, err := strconv.ParseInt(resp.Header.Get("Oci-Chunk-Min-Length"), 10, 64); err == nil && u.chunk > 0 {
		u.chunk = max(u.chunk, least)
	}
	u.offset, u.failedAt, u.resumed, u.outOfStep, u.given = 0, 0, false, false, false
	u.session, err = u.r.client.Location(u.r.host.Host, resp.Request.URL, resp)
	return err
}

// find opens an upload, unless the registry answers that it has the blob. One that
// is known to take a blob over from where it is to be, and so to say whether it is
// there, is asked that in one request; any other in two.
func (u *upload) find() (there bool, err error) {
	if !u.unasked {
		return false, u.begin()
	}
	if u.r.finds.Load() != findsByMount {
		if there, err = u.r.hasOnce(u.ctx, u.d, u.r.Pushes()); err == nil && !there {
			err = u.begin()
		}
		return there, err
	}
	there, at, err := u.r.mount(u.ctx, u.d, u.r.ref.Path())
	var a *remote.AnswerError
	if errors.As(err, &a) && !remote.CanPass(err) {
		u.r.finds.Store(findsByHead)
		return u.find()
	}
	if err == nil && !there {
		u.session, u.offset = at, 0
	}
	return there, err
}

// How a repository is asked for a blob that is to be sent if it is not there.
const (
	findsUnknown int32 = iota
	findsLearning
	findsByHead
	findsByMount
)

// learn finds out, once for a repository, whether it takes a blob over from itself:
// the one that has just been sent. Some registries open an upload whatever is there;
// the next blob has use for it.
func (u *upload) learn() {
	if !u.r.presumes(u.d) || !u.r.finds.CompareAndSwap(findsUnknown, findsLearning) {
		return
	}
	there, at, err := u.r.mount(u.ctx, u.d, u.r.ref.Path())
	if err == nil && there {
		u.r.finds.Store(findsByMount)
		return
	}
	u.r.finds.Store(findsByHead)
	u.r.mu.Lock()
	defer u.r.mu.Unlock()
	if u.r.spare == nil {
		u.r.spare = at
	}
}

// target is where the upload ends: the query of the session is kept as it came,
// since it may be signed.
func (u *upload) target() *url.URL {
	to := *u.session
	query := "digest=" + strings.ReplaceAll(u.d.Digest.String(), ":", "%3A")
	if to.RawQuery != "" {
		query = to.RawQuery + "&" + query
	}
	to.RawQuery = query
	return &to
}

// whole sends the blob as one body.
func (u *upload) whole() error {
	if u.session == nil {
		if there, err := u.find(); err != nil || there {
			return err
		}
	}
	to := u.target()
	u.session = nil                                                    // used up, however this ends
	resp, err := u.r.client.Send(u.ctx, u.r.host.Host, remote.Request{ //nolint:bodyclose // Drain closes it
		Method: http.MethodPut, URL: to, Access: u.r.Pushes(), Size: u.d.Size, OK: []int{201, 204},
		Header: map[string]string{"Content-Type": "application/octet-stream"},
		Body:   func() (io.ReadCloser, error) { return u.body(0, u.d.Size) },
	})
	return u.sent(resp, err)
}

// inParts goes on with the session, or begins one.
func (u *upload) inParts() error {
	if u.session != nil {
		if err := u.resume(); err != nil {
			return err
		}
	}
	if u.session == nil {
		if err := u.begin(); err != nil {
			return err
		}
	}
	for u.offset < u.d.Size {
		if err := u.part(); err != nil {
			return err
		}
	}
	resp, err := u.r.client.Send(u.ctx, u.r.host.Host, remote.Request{ //nolint:bodyclose // Drain closes it
		Method: http.MethodPut, URL: u.target(), Access: u.r.Pushes(), OK: []int{201, 204},
		Header: map[string]string{"Content-Type": "application/octet-stream"},
		Body:   func() (io.ReadCloser, error) { return http.NoBody, nil },
	})
	if err = u.lost(u.sent(resp, err)); err == nil && u.r.host.chunk.Load() == 0 {
		u.r.host.chunk.Store(u.chunk) // the next blobs need not find out
	}
	return err
}

// part sends the next part.
func (u *upload) part() error {
	n := min(u.chunk, u.d.Size-u.offset)
	header := map[string]string{
		"Content-Type":  "application/octet-stream",
		"Content-Range": fmt.Sprintf("%d-%d", u.offset, u.offset+n-1),
	}
	if u.probing { // a refusal comes before the body, and is not lost with the connection
		header["Expect"] = "100-continue"
	}
	resp, err := u.r.client.Send(u.ctx, u.r.host.Host, remote.Request{ //nolint:bodyclose // Drain closes it
		Method: http.MethodPatch, URL: u.session, Access: u.r.Pushes(), Size: n, OK: []int{202, 201, 204},
		Header: header, Body: func() (io.ReadCloser, error) { return u.body(u.offset, n) },
	})
	if err := u.lost(u.sent(resp, err)); err != nil {
		return err
	}
	if u.session, err = u.next(resp); err != nil {
		return err
	}
	has, ok := uploaded(resp.Header.Get("Range"))
	if ok && has != u.offset+n {
		return fmt.Errorf("the registry has %d bytes of the upload where %d were sent", has, u.offset+n)
	}
	u.offset, u.outOfStep, u.probing = u.offset+n, false, false
	return nil
}

// next is where the session goes on; it may move with each answer.
func (u *upload) next(resp *http.Response) (*url.URL, error) {
	if resp.Header.Get("Location") == "" {
		return u.session, nil
	}
	return u.r.client.Location(u.r.host.Host, resp.Request.URL, resp)
}

// errSessionLost is an upload that the registry knows no more, or does not
// understand any more: a new one may do.
var errSessionLost = errors.New("the registry has given up the upload")

// lost ends a session that cannot go on.
func (u *upload) lost(err error) error {
	var a *remote.AnswerError
	if !errors.As(err, &a) {
		return err
	}
	if a.Status == http.StatusRequestedRangeNotSatisfiable && !u.outOfStep {
		u.outOfStep = true // it may have taken in more of a broken part meanwhile: ask it again
		return fmt.Errorf("the registry is at another place of the upload: %s", a.Error())
	}
	gone := a.Status == http.StatusRequestedRangeNotSatisfiable || a.Status == http.StatusNotFound && u.offset > 0 ||
		a.Has("BLOB_UPLOAD_UNKNOWN") || a.Has("BLOB_UPLOAD_INVALID") && u.offset > 0 || a.Has("DIGEST_INVALID") && u.resumed
	if !gone {
		return err
	}
	u.session, u.offset, u.failedAt = nil, 0, 0
	return fmt.Errorf("%w: %s", errSessionLost, a.Error())
}

// resume asks the registry how much it has. A registry that does not say gets a
// new upload.
func (u *upload) resume() error {
	if u.failures == 0 && u.offset == 0 {
		return nil // nothing was sent to it
	}
	resp, err := u.r.client.Send(u.ctx, u.r.host.Host, remote.Request{ //nolint:bodyclose // Drain closes it
		Method: http.MethodGet, URL: u.session, Access: u.r.Pushes(), OK: []int{200, 202, 204},
	})
	var a *remote.AnswerError
	if errors.As(err, &a) && !remote.CanPassStatus(a.Status) && a.Status != http.StatusUnauthorized {
		u.session = nil
		return nil
	}
	if err != nil {
		return err
	}
	remote.Drain(resp.Body)
	has, ok := uploaded(resp.Header.Get("Range"))
	if !ok || has > u.d.Size {
		u.session = nil
		return nil
	}
	u.resumed = true
	u.offset = has
	u.session, err = u.next(resp)
	return err
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

// sent closes the answer of a request with a body. What was wrong with the source
// comes before what the registry made of it.
func (u *upload) sent(resp *http.Response, err error) error {
	if resp != nil {
		remote.Drain(resp.Body)
	}
	if u.src != nil && u.src.fault() != nil {
		return &remote.SourceError{Err: u.src.explain(u.d)}
	}
	if err != nil {
		u.closeSource()
	}
	return err
}

// body gives n bytes of the source from an offset. The source stays open between
// parts, so that a source that is far away is asked once.
func (u *upload) body(offset, n int64) (io.ReadCloser, error) {
	if err := u.seek(offset); err != nil {
		return nil, err
	}
	return &part{src: u.src, left: n}, nil
}

// seek brings the source to an offset, with the hash of all that is before it, and
// marks the place.
func (u *upload) seek(offset int64) error {
	if u.src == nil || u.src.offset() != offset {
		if err := u.reopen(offset); err != nil {
			return err
		}
	}
	state, err := u.src.sum.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return fmt.Errorf("keep the state of a hash: %w", err)
	}
	u.mark = mark{offset, state}
	return nil
}

// reopen opens the source at the last mark that is not behind the offset, and reads
// on to it.
func (u *upload) reopen(offset int64) error {
	u.closeSource()
	from := u.mark
	sum := sha256.New()
	if from.offset > offset || from.offset == 0 {
		from = mark{}
	} else if err := sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(from.state); err != nil {
		return fmt.Errorf("take up the state of a hash: %w", err)
	}
	rc, err := u.open(from.offset)
	if err != nil {
		return err
	}
	u.src = &source{ReadCloser: rc, size: u.d.Size, left: u.d.Size - from.offset, sum: sum, want: u.d.Digest.Encoded()}
	_, err = io.CopyN(io.Discard, u.src, offset-from.offset)
	return err
}

func (u *upload) closeSource() {
	if u.src != nil {
		_ = u.src.Close()
		u.src = nil
	}
}

// part is a part of a source, as the body of a request. Its end is not the
// source's.
type part struct {
	src  *source
	left int64
}

func (p *part) Read(b []byte) (int, error) {
	if p.left == 0 {
		return 0, io.EOF
	}
	n, err := p.src.Read(b[:min(int64(len(b)), p.left)])
	p.left -= int64(n)
	return n, err
}

func (p *part) Close() error { return nil }

// source is a blob on its way out. It keeps the last bytes back until all of them
// are known to be right.
type source struct {
	io.ReadCloser
	size, left int64
	sum        hash.Hash
	want       string

	mu  sync.Mutex // the transport reads in its own goroutine
	err error
}

var errOtherContent = errors.New("its content is not what its digest says")

func (s *source) offset() int64 { return s.size - s.left }

func (s *source) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n, err := s.ReadCloser.Read(p[:min(int64(len(p)), s.left)])
	s.sum.Write(p[:n])
	s.left -= int64(n)
	switch {
	case s.left == 0 && hex.EncodeToString(s.sum.Sum(nil)) != s.want:
		err = errOtherContent
	case s.left == 0:
		return n, nil
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	return 0, err
}

func (s *source) fault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// explain makes a fault of what was wrong with the source, unless it is one.
func (s *source) explain(d ocispec.Descriptor) error {
	err := s.fault()
	var f *fault.Error
	if errors.As(err, &f) {
		return err
	}
	out := &fault.Error{Reason: fault.Storage, Op: "read", Subject: d.Digest.String(), Hint: "check the medium that the bundle is on", Err: err}
	switch {
	case errors.Is(err, errOtherContent):
		out.Reason, out.Hint = fault.Corrupt, "pull or copy the bundle again"
	case errors.Is(err, io.ErrUnexpectedEOF):
		out.Reason, out.Hint = fault.Incomplete, "pull or copy the bundle again"
		out.Err = fmt.Errorf("it ends before its %d bytes", d.Size)
	}
	return out
}

// Mount has the registry take a blob over from another repository of its own,
// without the bytes coming here, and tells whether it did. Where it does not offer
// that, or the login may not read there, the blob has to be put; the upload that
// the registry opens instead is used for it.
func (r *Repository) Mount(ctx context.Context, d ocispec.Descriptor, from image.Reference) (bool, error) {
	if from.Host() != r.ref.Host() || from.Path() == r.ref.Path() || r.host.refusesMount(from.Path()) {
		return false, nil
	}
	release, err := r.host.small.Acquire(ctx)
	if err != nil {
		return false, r.client.Explain(ctx, r.host.Host, opPush, r.At(d.Digest.String()), err)
	}
	defer release()
	there, at, err := r.mount(ctx, d, from.Path())
	switch {
	case err != nil:
		if ctx.Err() == nil && !remote.CanPass(err) {
			r.host.refuseMount(from.Path())
		}
		return false, nil //nolint:nilerr // Put tells what is wrong, if it is more than this
	case there:
		r.arrived(d)
		return true, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions == nil {
		r.sessions = map[string]*url.URL{}
	}
	r.sessions[d.Digest.String()] = at
	return false, nil
}

// mount asks the registry once to take a blob over from a repository, which may be
// this one: that tells whether it is here. Where it is not, the registry opens an
// upload.
func (r *Repository) mount(ctx context.Context, d ocispec.Descriptor, from string) (there bool, at *url.URL, err error) {
	q := remote.Request{Method: http.MethodPost, URL: r.Address("blobs", "uploads", ""), OK: []int{201, 202}, Access: r.Pushes()}
	q.URL.RawQuery = url.Values{"mount": {d.Digest.String()}, "from": {from}}.Encode()
	if from != r.ref.Path() {
		q.Access.From = from
	}
	resp, err := r.client.Send(ctx, r.host.Host, q) //nolint:bodyclose // Drain closes it
	if err != nil {
		return false, nil, err
	}
	remote.Drain(resp.Body)
	if resp.StatusCode == http.StatusCreated {
		return true, nil, nil
	}
	at, err = r.client.Location(r.host.Host, resp.Request.URL, resp)
	return false, at, err
}

// takeSession returns an upload that was opened before: by a refused mount of the
// blob, or by Preflight; else nil.
func (r *Repository) takeSession(d ocispec.Descriptor) *url.URL {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.sessions[d.Digest.String()]
	delete(r.sessions, d.Digest.String())
	if at == nil {
		at, r.spare = r.spare, nil
	}
	return at
}

func (h *host) refusesMount(path string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.noMount[path]
}

func (h *host) refuseMount(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noMount[path] = true
}

// bytesOf serves bytes that are in memory.
func bytesOf(data []byte) func(int64) (io.ReadCloser, error) {
	return func(offset int64) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data[offset:])), nil }
}
