package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/ondisk"
)

const (
	// heldBack is how much of a blob is kept back until all of it is known to be right.
	heldBack = 4 << 10
	// hashPiece is hashed at a time: few calls, and it stays in a core's cache.
	hashPiece = 128 << 10
)

var errChanging = errors.New("the file is being changed while it is sent")

// fileSource is a blob that lies in files. Its bytes go out as they are, by the kernel
// where there is no TLS. What has its digest is a state of the files (see package
// ondisk): one in which the blob was verified before, or one in which it is hashed here,
// beside the sending. The end of the blob goes out, and the registry's answer counts,
// only while the files are in such a state and it is the one in which the first byte
// went out: what was sent in between is in no other. A blob whose files changed is
// hashed again, and is refused if it has become another; if it has not, nobody knows
// what was sent, and all of it is sent again ([errChanging], restart).
type fileSource struct {
	ctx    context.Context //nolint:containedctx // of the upload
	cancel context.CancelFunc
	d      ocispec.Descriptor
	stream io.Closer
	disk   *ondisk.Blob
	beside sync.WaitGroup // hashing beside the sending
	begun  bool           // the first byte was asked for, and whether that is needed is decided

	checks  sync.Mutex   // one looks at a time
	good    ondisk.State // in which the blob has its digest; empty: not known
	doubted bool         // whether it has it still, though no state tells
	start   ondisk.State // in which the first byte was sent; written with checks held
	mu      sync.Mutex
	err     error // what is wrong with it
}

func newFileSource(ctx context.Context, d ocispec.Descriptor, stream io.Closer, disk *ondisk.Blob) *fileSource {
	s := &fileSource{d: d, stream: stream, disk: disk, good: disk.Verified}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// body keeps the state of the files, and begins to hash what is not known to be right,
// with the first body.
func (s *fileSource) body(offset, n int64) (io.ReadCloser, error) {
	if !s.begun {
		if err := s.begin(); err != nil {
			return nil, err
		}
	}
	s.moved(offset)
	return &fileRange{of: s, start: s.start, at: offset, end: offset + n}, nil
}

func (s *fileSource) begin() error {
	s.checks.Lock()
	defer s.checks.Unlock()
	start, err := s.disk.State()
	if err != nil {
		return s.fail(err)
	}
	s.begun, s.start = true, start
	if start != s.good || s.doubted {
		s.beside.Go(func() { _ = s.check(start) }) // what comes of it, the end of the body asks
	}
	return nil
}

// check returns once it is known that the blob has its digest in the state in which its
// first byte was sent, and that the files are in that state still. Where they have moved
// on, what was sent may be neither what they were nor what they are.
func (s *fileSource) check(start ondisk.State) error {
	s.checks.Lock()
	defer s.checks.Unlock()
	if start != s.start {
		return errChanging // asked by a body that was given up
	}
	if err := s.wrong(); err != nil {
		return err
	}
	state, err := s.disk.State()
	if err == nil && (state != s.good || s.doubted) {
		err = s.verify(state)
	}
	if err == nil && state != start {
		err = errChanging
	}
	if err != nil {
		return s.fail(err)
	}
	return nil
}

// verify hashes the blob. The state is known to be good if the files are in it still
// when all of them was read.
func (s *fileSource) verify(state ondisk.State) error {
	if err := s.hash(state); err != nil {
		return err
	}
	after, err := s.disk.State()
	if err == nil && after != state {
		err = errChanging
	}
	if err == nil {
		s.good, s.doubted = state, false
	}
	return err
}

// hash reads the blob and compares its digest.
func (s *fileSource) hash(state ondisk.State) error {
	sum, buf := sha256.New(), hashBuffers.Get().(*[]byte) //nolint:forcetypeassert // nothing else is put there
	defer hashBuffers.Put(buf)
	from := io.NewSectionReader(s.disk, 0, s.d.Size)
	for {
		n, err := from.Read(*buf)
		sum.Write((*buf)[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = context.Cause(s.ctx)
		}
		if err != nil {
			return err
		}
	}
	at, _ := from.Seek(0, io.SeekCurrent) // where it is: that cannot fail
	switch {
	case at < s.d.Size:
		return io.ErrUnexpectedEOF
	case hex.EncodeToString(sum.Sum(nil)) == s.d.Digest.Encoded():
		return nil
	case s.good == "":
		return errOtherContent
	case s.good == state:
		return fmt.Errorf("%w any more: the medium gives other bytes than before, and nothing has written to the file", errOtherContent)
	}
	return fmt.Errorf("%w any more: the file was changed after it was verified", errOtherContent)
}

var hashBuffers = sync.Pool{New: func() any { b := make([]byte, hashPiece); return &b }}

func (s *fileSource) wrong() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// fail keeps what is wrong with the source. That the upload was stopped is not.
func (s *fileSource) fail(err error) error {
	if s.ctx.Err() != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	return err
}

func (s *fileSource) fault() error { return wrongSource(s.d, s.wrong()) }
func (s *fileSource) rewind()      {}

// restart has the next body be the first one again. Bodies that were given up, and that
// a connection may still read, are of another state: they are not ended any more, and
// what they find out is not held against the next one.
func (s *fileSource) restart() {
	s.beside.Wait()
	s.checks.Lock()
	defer s.checks.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun, s.start, s.err = false, "", nil
}

// doubt has the next look hash the blob: a medium may give other bytes than before.
func (s *fileSource) doubt() {
	s.checks.Lock()
	defer s.checks.Unlock()
	s.doubted = true
}

// settle looks once more: the kernel sends from the file's own pages, up to the moment
// at which the registry has them.
func (s *fileSource) settle() error {
	if !s.begun {
		return nil
	}
	return wrongSource(s.d, s.check(s.start))
}

func (s *fileSource) close() {
	s.cancel()
	s.beside.Wait()
	_ = s.stream.Close()
}

func (s *fileSource) moved(to int64) {
	if s.disk.Moved != nil {
		s.disk.Moved(to)
	}
}

// fileRange is a part of such a blob, as the body of a request.
type fileRange struct {
	of      *fileSource
	start   ondisk.State // in which the first byte of the blob was sent
	at, end int64
	checked bool
}

// allowed is up to where the range may be sent now; it waits for the blob to be right
// where nothing else is left.
func (r *fileRange) allowed() (int64, error) {
	hold := max(r.of.d.Size-heldBack, 0)
	if r.checked || r.end <= hold {
		return r.end, nil
	}
	if r.at < hold {
		return hold, nil
	}
	err := r.of.check(r.start)
	r.checked = err == nil
	return r.end, err
}

// Span returns what the kernel may send next.
func (r *fileRange) Span() (f *os.File, at, n int64, err error) {
	if r.at == r.end {
		return nil, 0, 0, io.EOF
	}
	to, err := r.allowed()
	if err != nil {
		return nil, 0, 0, err
	}
	f, at, n = r.of.disk.Span(r.at)
	return f, at, min(n, to-r.at), nil
}

// Sent takes note of what it has sent.
func (r *fileRange) Sent(n int64) {
	r.at += n
	r.of.moved(r.at)
}

// Read is for what the kernel does not send.
func (r *fileRange) Read(p []byte) (int, error) {
	if r.at == r.end {
		return 0, io.EOF
	}
	to, err := r.allowed()
	if err != nil {
		return 0, err
	}
	n, err := r.of.disk.ReadAt(p[:min(int64(len(p)), to-r.at)], r.at)
	if n > 0 {
		r.Sent(int64(n))
		return n, nil // an error comes again
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, r.of.fail(err)
}

// Close does nothing: the files are open until the upload is done.
func (r *fileRange) Close() error { return nil }
