package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

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
		g := &segment{from: s.next, data: (*buf)[:min(segmentSize, s.d.Size-s.next)], done: make(chan struct{}), free: free, room: room}
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
	c, h := s.r.client, s.r.host
	for got, failures := 0, 0; ; {
		n, err := s.request(g.from+int64(got), g.data[got:])
		if got += n; err == nil {
			return nil
		}
		if errors.Is(err, errNoRanges) {
			return err
		}
		if n >= goodProgress {
			failures = 0
		}
		failures++
		if err = c.Wait(s.ctx, h, err, failures); err != nil {
			return err
		}
	}
}

// request asks for a part of the blob once and tells how much of it came.
func (s *segmented) request(from int64, to []byte) (int, error) {
	last := from + int64(len(to)) - 1
	resp, err := s.r.client.Send(s.ctx, s.r.host, Request{
		Method: http.MethodGet, URL: s.r.Address("blobs", s.d.Digest.String()), Access: s.r.Pulls(),
		Header: map[string]string{"Range": fmt.Sprintf("bytes=%d-%d", from, last)}, OK: []int{200, 206, 416},
	})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // all that was asked for has been read, or is not wanted
	want := fmt.Sprintf("bytes %d-%d/", from, last)
	if resp.StatusCode != http.StatusPartialContent || !strings.HasPrefix(resp.Header.Get("Content-Range"), want) {
		return 0, errNoRanges
	}
	n, err := io.ReadFull(resp.Body, to)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		_, _ = io.CopyN(io.Discard, resp.Body, 1) // its end, so that the connection can serve again
	}
	return n, err
}

// Read returns the next bytes.
func (s *segmented) Read(p []byte) (int, error) {
	switch {
	case s.err != nil:
		return 0, s.err
	case s.single != nil:
		return s.single.Read(p)
	case s.offset == s.d.Size:
		return 0, io.EOF
	}
	if err := s.start(); err != nil {
		s.err = err
		return 0, err
	}
	g := s.ahead[0]
	select {
	case <-g.done:
	case <-s.ctx.Done():
		s.err = s.explain(context.Cause(s.ctx))
		return 0, s.err
	}
	if errors.Is(g.err, errNoRanges) {
		return s.goOnSingle(p)
	}
	if g.err != nil {
		s.err = s.explain(g.err)
		return 0, s.err
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
func (s *segmented) goOnSingle(p []byte) (int, error) {
	s.r.host.noRanges.Store(true)
	s.stop()
	var err error
	if s.single, err = s.r.openStream(s.caller, s.d, s.offset); err != nil {
		s.err = err
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
