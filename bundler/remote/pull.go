package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// goodProgress is how much must arrive between two faults of one blob for the
// first of them to be forgotten.
const goodProgress = 256 << 10

// blobStream is a blob that is being read. When the connection breaks it goes on
// where it stopped.
type blobStream struct {
	r       *Repository
	ctx     context.Context //nolint:containedctx // a stream outlives the call that opened it, within the caller's context
	d       ocispec.Descriptor
	offset  int64         // of the next byte to be returned
	end     int64         // of what is read: the blob's, or that of a segment
	strict  bool          // only from a host that gives ranges: else it ends with errNoRanges
	body    io.ReadCloser // nil when it has to be opened
	release func()

	noRange  bool  // the host does not give parts as asked
	failures int   // since the last good progress
	failedAt int64 // offset of the last failure
	err      error // what ended it
}

// openStream takes a slot of the host and opens the stream.
func (r *Repository) openStream(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	s := &blobStream{r: r, ctx: ctx, d: d, offset: offset, end: d.Size, release: func() {}}
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
	if s.offset == s.end {
		return 0, s.finish()
	}
	n, err := s.body.Read(p[:min(int64(len(p)), s.end-s.offset)])
	s.offset += int64(n)
	if err == nil || s.offset == s.end {
		return n, nil
	}
	s.err = s.resume(noEOF(err))
	return n, s.err
}

// finish makes sure that the blob ends where it has to.
func (s *blobStream) finish() error {
	s.err = io.EOF
	if s.body == nil {
		return s.err
	}
	var one [1]byte
	if n, _ := io.ReadFull(s.body, one[:]); n > 0 {
		s.err = Corrupt("read", s.subject(), fmt.Errorf("it is longer than %d bytes", s.d.Size))
	}
	return s.err
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
		if err = s.request(); err == nil || errors.Is(err, errNoRanges) {
			return err
		}
	}
}

// request asks once. What is left is asked for with its end: some hosts refuse ranges
// that are open. One that ignores Range gives the blob from its start, and what is
// here already is read over.
func (s *blobStream) request() error {
	q := Request{
		Method: http.MethodGet, URL: s.r.Address("blobs", s.d.Digest.String()), Access: s.r.Pulls(),
		Header: map[string]string{}, OK: []int{200},
	}
	ranged := s.strict || s.offset > 0 && !s.noRange
	if ranged {
		q.Header["Range"] = fmt.Sprintf("bytes=%d-%d", s.offset, s.end-1)
		q.OK = []int{200, 206, 416}
	}
	resp, err := s.r.client.Send(s.ctx, s.r.host, q)
	if err != nil {
		return err
	}
	given := resp.Header.Get("Content-Range")
	if resp.StatusCode == http.StatusPartialContent && spans(given, s.offset, s.end, s.d.Size) {
		return s.take(resp, s.end-s.offset)
	}
	if s.strict {
		_ = resp.Body.Close()
		return errNoRanges
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
		return noEOF(err)
	}
	return nil
}

// take keeps an answer's body if it can have the length that is due.
func (s *blobStream) take(resp *http.Response, due int64) error {
	if resp.ContentLength >= 0 && resp.ContentLength != due {
		_ = resp.Body.Close()
		return Corrupt("read", s.subject(), fmt.Errorf("the registry has %d bytes where %d are due", resp.ContentLength, due))
	}
	s.body = resp.Body
	return nil
}

// spans tells whether a Content-Range is "bytes FROM-LAST/SIZE", with LAST before the end.
func spans(header string, from, end, size int64) bool {
	span := fmt.Sprintf("bytes %d-%d/", from, end-1)
	return header == span+"*" || header == span+strconv.FormatInt(size, 10)
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
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

const (
	// segmentSize is what one connection reads at a time of a blob that is read over
	// several, and rangesFrom the size from which on blobs are.
	segmentSize = 1 << 20
	rangesFrom  = 64 << 20
	// maxSegments is how many are in memory at a time, of all blobs of a client
	// together: 8 MiB, whatever Options.Ranges and Options.Concurrency are.
	maxSegments = 8
)

// segmented is a blob that is read over several connections, each of which reads
// the next segment that nobody reads. The first takes a slot of the host as any
// stream does; the others take what is free at the moment, so that a large blob
// never holds up the rest. What is in memory is bounded for all blobs together: a
// segment keeps its place until its last byte was returned.
type segmented struct {
	r      *Repository
	caller context.Context //nolint:containedctx // a stream outlives the call that opened it, within the caller's context
	ctx    context.Context //nolint:containedctx // of the segments, within the caller's
	cancel context.CancelFunc
	d      ocispec.Descriptor

	next   int64 // where the next segment begins
	ahead  []*segment
	fetch  sync.WaitGroup
	single io.ReadCloser // the rest over one connection, where the host gives no ranges
	offset int64         // of the next byte to be returned
	err    error
}

// segment is a part of a blob, in memory.
type segment struct {
	from int64
	data []byte
	done chan struct{} // closed when data is there, or err says why not
	err  error
	free func() // its slot
	room func() // its place in memory
}

// segmentBuffers keeps the memory of segments.
var segmentBuffers = sync.Pool{New: func() any { b := make([]byte, segmentSize); return &b }}

var errNoRanges = errors.New("the registry does not give ranges as asked")

// openSegmented opens a stream over several connections.
func (r *Repository) openSegmented(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	s := &segmented{r: r, caller: ctx, d: d, next: offset, offset: offset}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if err := s.start(); err != nil {
		s.cancel()
		return nil, err
	}
	return s, nil
}

// start begins as many segments as there are slots for: one at least.
func (s *segmented) start() error {
	for len(s.ahead) < s.r.client.opts.Ranges && s.next < s.d.Size {
		room, free, err := s.take()
		if err != nil {
			return s.explain(err)
		}
		if free == nil {
			return nil
		}
		buf := segmentBuffers.Get().(*[]byte) //nolint:forcetypeassert // nothing else is put there
		data := (*buf)[:min(segmentSize, s.d.Size-s.next)]
		g := &segment{from: s.next, data: data, done: make(chan struct{}), free: free, room: room}
		s.next += int64(len(g.data))
		s.ahead = append(s.ahead, g)
		s.fetch.Go(func() {
			defer close(g.done)
			defer g.free()
			g.err = s.fill(g)
		})
	}
	return nil
}

// take waits for a place in memory and a slot for the first segment; for any other it
// takes them if they are free, and else returns none.
func (s *segmented) take() (room, free func(), err error) {
	places, slots := s.r.client.segments, s.r.host.pull
	if len(s.ahead) > 0 {
		if room = places.Try(); room == nil {
			return nil, nil, nil
		}
		if free = slots.Try(); free == nil {
			room()
			return nil, nil, nil
		}
		return room, free, nil
	}
	if room, err = places.Acquire(s.ctx); err != nil {
		return nil, nil, err
	}
	if free, err = slots.Acquire(s.ctx); err != nil {
		room()
	}
	return room, free, err
}

// fill reads a segment, as often as it takes.
func (s *segmented) fill(g *segment) error {
	end := g.from + int64(len(g.data))
	part := &blobStream{r: s.r, ctx: s.ctx, d: s.d, offset: g.from, end: end, strict: true, release: func() {}}
	defer part.Close() //nolint:errcheck // only read
	if err := part.open(nil); err != nil {
		return err
	}
	_, err := io.ReadFull(part, g.data)
	return err
}

// Read returns the next bytes.
func (s *segmented) Read(p []byte) (n int, err error) {
	if s.err == nil {
		n, s.err = s.read(p)
	}
	return n, s.err
}

func (s *segmented) read(p []byte) (int, error) {
	switch {
	case s.single != nil:
		return s.single.Read(p)
	case s.offset == s.d.Size:
		return 0, io.EOF
	}
	if err := s.start(); err != nil {
		return 0, err
	}
	g := s.ahead[0]
	<-g.done // also when ctx is done, which ends its request
	if errors.Is(g.err, errNoRanges) {
		return s.goOnSingle(p)
	}
	if g.err != nil {
		return 0, g.err
	}
	at := int(s.offset - g.from)
	n := copy(p, g.data[at:])
	if s.offset += int64(n); at+n == len(g.data) {
		s.ahead = s.ahead[1:]
		g.recycle()
		return n, s.start()
	}
	return n, nil
}

// goOnSingle reads the rest over one connection.
func (s *segmented) goOnSingle(p []byte) (n int, err error) {
	s.r.host.noRanges.Store(true)
	s.stop()
	if s.single, err = s.r.openStream(s.caller, s.d, s.offset); err != nil {
		return 0, err
	}
	return s.single.Read(p)
}

// stop ends what is under way.
func (s *segmented) stop() {
	s.cancel()
	s.fetch.Wait()
	for _, g := range s.ahead {
		g.recycle()
	}
	s.ahead = nil
}

func (g *segment) recycle() {
	buf := g.data[:cap(g.data)]
	segmentBuffers.Put(&buf)
	g.data = nil
	g.room()
}

// Close ends the stream and frees its slots.
func (s *segmented) Close() error {
	s.stop()
	if s.err == nil {
		s.err = errors.New("read of a closed blob")
	}
	if s.single != nil {
		return s.single.Close()
	}
	return nil
}

func (s *segmented) explain(err error) error {
	return s.r.client.Explain(s.caller, s.r.host, "read", s.r.At(s.d.Digest.String()), err)
}
