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
	// mostHashes is how often a blob is hashed whose files change in the meantime.
	mostHashes = 3
)

var errChanging = errors.New("the file is being changed while it is sent")

// fileSource is a blob that lies in files. Its bytes go out as they are, by the kernel
// where there is no TLS. What has its digest is a state of the files (see package
// ondisk): one in which the blob was verified before, or one in which it is hashed here,
// beside the sending. The end of the blob goes out once the files are in such a state,
// and the registry's answer counts while they still are: a blob whose files changed is
// hashed again at either point, and is refused if it has become another.
type fileSource struct {
	ctx    context.Context //nolint:containedctx // of the upload
	cancel context.CancelFunc
	d      ocispec.Descriptor
	stream io.Closer
	disk   *ondisk.Blob
	beside sync.WaitGroup // hashing beside the sending
	begun  bool           // it was decided whether that is needed

	checks sync.Mutex   // one looks at a time
	good   ondisk.State // in which the blob has its digest; empty: not known
	mu     sync.Mutex
	err    error // what is wrong with it
}

func newFileSource(ctx context.Context, d ocispec.Descriptor, stream io.Closer, disk *ondisk.Blob) *fileSource {
	s := &fileSource{d: d, stream: stream, disk: disk, good: disk.Verified}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// body begins to hash what is not known to be right, with the first body.
func (s *fileSource) body(offset, n int64) (io.ReadCloser, error) {
	if !s.begun {
		s.begun = true
		s.beside.Go(func() { _ = s.check() }) // what comes of it, the end of the body asks
	}
	s.moved(offset)
	return &fileRange{of: s, at: offset, end: offset + n}, nil
}

// check returns once the files are in a state in which the blob has its digest.
func (s *fileSource) check() error {
	s.checks.Lock()
	defer s.checks.Unlock()
	if err := s.wrong(); err != nil {
		return err
	}
	for range mostHashes {
		state, err := s.disk.State()
		if err == nil && state != s.good {
			err = s.hash()
		}
		if err != nil {
			return s.fail(err)
		}
		if state == s.good {
			return nil
		}
		s.good = state // unless they have changed meanwhile, which the next look tells
	}
	return s.fail(errChanging)
}

// hash reads the blob and compares its digest.
func (s *fileSource) hash() error {
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
	case s.good != "":
		return fmt.Errorf("%w any more: the file was changed after it was verified", errOtherContent)
	}
	return errOtherContent
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

// settle looks once more: the kernel sends from the file's own pages, up to the moment
// at which the registry has them.
func (s *fileSource) settle() error {
	if !s.begun {
		return nil
	}
	return wrongSource(s.d, s.check())
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
	err := r.of.check()
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
