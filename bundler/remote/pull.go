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

// goodProgress is how many bytes must arrive between two faults of one blob to reset the count of failures.
const goodProgress = 256 << 10

// blobStream reads a blob or a manifest. After a broken connection it continues where it stopped.
type blobStream struct {
	r       *Repository
	ctx     context.Context //nolint:containedctx // a stream outlives the call that opened it, within the caller's context
	d       ocispec.Descriptor
	offset  int64         // of the next byte to return
	body    io.ReadCloser // nil if it must be opened
	release func()

	unsized  bool  // the answer has no length
	noRange  bool  // the host does not serve ranges as requested
	failures int   // since the last good progress
	failedAt int64 // offset of the last failure
	err      error // the reason why it ended
}

// openStream allocates a slot of the host and opens the stream.
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

// resume waits after a fault and reopens the blob where it stopped.
func (s *blobStream) resume(err error) error {
	s.closeBody()
	if s.offset-s.failedAt >= goodProgress && !s.noRange { // without ranges all bytes before the offset come again
		s.failures = 0
	}
	s.failedAt = s.offset
	return s.open(err)
}

// open requests the blob from the offset until an answer begins; err is the fault of the previous answer.
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

// request sends one request. The range has an end, since some hosts refuse open ranges. If a host ignores Range,
// request skips the bytes that have already been read.
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

// take keeps an answer's body if its length can be the one that is due.
func (s *blobStream) take(resp *http.Response, due int64) error {
	if resp.ContentLength >= 0 && resp.ContentLength != due {
		_ = resp.Body.Close()
		return Corrupt("read", s.subject(), fmt.Errorf("the registry has %d bytes where %d are due", resp.ContentLength, due))
	}
	s.body, s.unsized = resp.Body, resp.ContentLength < 0
	return nil
}

// spans reports whether a Content-Range covers the rest, "bytes FROM-LAST/SIZE".
func spans(header string, from, size int64) bool {
	span := fmt.Sprintf("bytes %d-%d/", from, size-1)
	return header == span+"*" || header == span+strconv.FormatInt(size, 10)
}

// cut returns why an answer ended too early. A manifest's answer without a length that ended cleanly is something
// else, such as a portal's page. Retrying does not help then.
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
