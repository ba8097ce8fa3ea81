package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
)

// goodProgress is how much must arrive between two faults of one blob for the
// first of them to be forgotten.
const goodProgress = 256 << 10

// blobStream is a blob, or a manifest, that is being read. When the connection breaks it goes on
// where it stopped.
type blobStream struct {
	r       *Repository
	ctx     context.Context //nolint:containedctx // a stream outlives the call that opened it, within the caller's context
	d       ocispec.Descriptor
	offset  int64         // of the next byte to be returned
	body    io.ReadCloser // nil when it has to be opened
	release func()

	unsized  bool  // the answer does not say how long it is
	noRange  bool  // the host does not give parts as asked
	failures int   // since the last good progress
	failedAt int64 // offset of the last failure
	err      error // what ended it
}

// openStream takes a slot of the host and opens the stream.
func (r *Repository) openStream(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	s := &blobStream{r: r, ctx: ctx, d: d, offset: offset, release: func() {}}
	if offset == d.Size {
		return s, nil
	}
	release, err := r.host.Pulls(d.Size).Acquire(ctx)
	if err != nil {
		return nil, s.explain(err)
	}
	s.release = release
	if err := s.open(nil); err != nil {
		release()
		return nil, err
	}
	return s, nil
}

// Read returns the next bytes, at most up to the blob's size.
func (s *blobStream) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if s.offset == s.d.Size {
		s.err = io.EOF
		return 0, s.err
	}
	n, err := s.body.Read(p[:min(int64(len(p)), s.d.Size-s.offset)])
	s.offset += int64(n)
	if err == nil || s.offset == s.d.Size {
		return n, nil
	}
	s.err = s.resume(s.cut(err))
	return n, s.err
}

// resume waits after a fault and opens the blob where it stopped.
func (s *blobStream) resume(err error) error {
	s.closeBody()
	if s.offset-s.failedAt >= goodProgress && !s.noRange { // else all before the offset has to come once more
		s.failures = 0
	}
	s.failedAt = s.offset
	return s.open(err)
}

// open asks for the blob from the offset on until an answer begins; err is what ended the
// one before.
func (s *blobStream) open(err error) error {
	for {
		if err != nil {
			s.failures++
			if err = s.r.client.Wait(s.ctx, s.r.host, err, s.failures); err != nil {
				return s.explain(err)
			}
		}
		if err = s.request(); err == nil {
			return nil
		}
	}
}

// request asks once. What is left is requested with its end: some hosts refuse ranges
// that are open. One that ignores Range gives the blob from its start, and what is
// here already is read over.
func (s *blobStream) request() error {
	q := Request{
		Method: http.MethodGet, URL: s.r.Address("blobs", s.d.Digest.String()), Access: s.r.Pulls(),
		Header: map[string]string{}, OK: []int{200},
	}
	if bundle.IsManifest(s.d.MediaType) {
		q.URL, q.Header["Accept"] = s.r.Address("manifests", s.d.Digest.String()), manifestTypes
	}
	ranged := s.offset > 0 && !s.noRange
	if ranged {
		q.Header["Range"] = fmt.Sprintf("bytes=%d-%d", s.offset, s.d.Size-1)
		q.OK = []int{200, 206, 416}
	}
	resp, err := s.r.client.Send(s.ctx, s.r.host, q)
	if err != nil {
		return err
	}
	given := resp.Header.Get("Content-Range")
	if resp.StatusCode == http.StatusPartialContent && spans(given, s.offset, s.d.Size) {
		return s.take(resp, s.d.Size-s.offset)
	}
	if resp.StatusCode != http.StatusOK {
		Drain(resp.Body)
		s.noRange = true
		return s.request()
	}
	s.noRange = s.noRange || ranged
	if err := s.take(resp, s.d.Size); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, s.body, s.offset); err != nil {
		s.closeBody()
		return s.cut(err)
	}
	return nil
}

// take keeps an answer's body if it can have the length that is due.
func (s *blobStream) take(resp *http.Response, due int64) error {
	if resp.ContentLength >= 0 && resp.ContentLength != due {
		_ = resp.Body.Close()
		return Corrupt("read", s.subject(), fmt.Errorf("the registry has %d bytes where %d are due", resp.ContentLength, due))
	}
	s.body, s.unsized = resp.Body, resp.ContentLength < 0
	return nil
}

// spans tells whether a Content-Range is that of the rest, "bytes FROM-LAST/SIZE".
func spans(header string, from, size int64) bool {
	span := fmt.Sprintf("bytes %d-%d/", from, size-1)
	return header == span+"*" || header == span+strconv.FormatInt(size, 10)
}

// cut is why an answer ended too early. Where it ended well, and is that for a manifest, another thing came in the
// place of that, such as the page of a portal: no other attempt helps.
func (s *blobStream) cut(err error) error {
	switch {
	case !errors.Is(err, io.EOF):
		return err
	case s.unsized && bundle.IsManifest(s.d.MediaType):
		return Corrupt("read", s.subject(), fmt.Errorf("the registry has fewer than the %d bytes that are due", s.d.Size))
	}
	return io.ErrUnexpectedEOF
}

func (s *blobStream) subject() string { return s.r.At(s.d.Digest.String()) }

func (s *blobStream) explain(err error) error {
	return s.r.client.Explain(s.ctx, s.r.host, "read", s.subject(), err)
}

func (s *blobStream) closeBody() {
	if s.body != nil {
		_ = s.body.Close()
		s.body = nil
	}
}

// Close ends the stream and frees its slot.
func (s *blobStream) Close() error {
	s.closeBody()
	s.release()
	s.release = func() {}
	if s.err == nil {
		s.err = errors.New("read of a closed blob")
	}
	return nil
}
