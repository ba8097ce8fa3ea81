package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/atomicfile"
)

// checkpoint is how many bytes of one blob are between two notes of its progress.
const checkpoint = 8 << 20

// A slot is the place of one blob in a file, and how far the blob has come.
type slot struct {
	mu     sync.Mutex // held by the one who fills it
	of     *FileWriter
	entry  entry
	offset int64
	sum    hash.Hash
	done   bool
}

// reset forgets what came.
func (s *slot) reset() { s.offset, s.sum = 0, sha256.New() }

// resume takes up what the journal says, where the bytes on the disk are those that it
// speaks of: what this run has not written, it hashes.
func (s *slot) resume(ctx context.Context, p progress) error {
	if p.offset == 0 || p.offset > s.entry.size || p.location != s.entry.dataOffset() {
		return nil
	}
	sum := sha256.New()
	n, err := pour(ctx, sum, io.NewSectionReader(s.of.f, p.location, p.offset), p.offset)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil || n != p.offset || !bytes.Equal(sum.Sum(nil), p.sum[:]) {
		return nil //nolint:nilerr // the disk has lost it: it is fetched again
	}
	s.offset, s.sum, s.done = p.offset, sum, p.whole(s.entry)
	return nil
}

// put fills the slot, verified as it streams, from where it is; open gives the
// blob's bytes from an offset.
func (s *slot) put(ctx context.Context, open func(offset int64) (io.ReadCloser, error)) error {
	if s.done {
		return nil
	}
	if s.offset < s.entry.size {
		if err := s.stream(ctx, open); err != nil {
			return err
		}
	}
	return s.finish()
}

// stream copies from the source what is not there yet.
func (s *slot) stream(ctx context.Context, open func(int64) (io.ReadCloser, error)) error {
	rc, err := open(s.offset)
	if err != nil {
		return err
	}
	defer rc.Close() //nolint:errcheck // nothing was written through it
	buf, free := buffer(s.entry.size)
	defer free()
	next := s.offset + checkpoint
	for s.offset < s.entry.size {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, readErr := io.ReadFull(rc, buf[:min(int64(len(buf)), s.entry.size-s.offset)])
		if err := s.write(buf[:n]); err != nil {
			return err
		}
		if readErr != nil && s.offset < s.entry.size {
			return s.cutOff(readErr)
		}
		if s.offset >= next && s.offset < s.entry.size {
			next = s.offset + checkpoint
			if err := s.of.note(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// cutOff is the fault of a source that gives fewer bytes than it should.
func (s *slot) cutOff(err error) error {
	reason := fault.Incomplete
	if len(fault.All(err)) > 0 { // the source's own
		reason = fault.ReasonOf(err)
	}
	return fault.Errorf(reason, "read", s.entry.d.Digest.String(), "run the same command again: it goes on from here",
		"%d of %d bytes came: %w", s.offset, s.entry.size, err)
}

// write writes and hashes side by side: for one large blob that is nearly twice as
// fast as one after the other.
func (s *slot) write(b []byte) error {
	hashed := make(chan struct{})
	go func() {
		s.sum.Write(b)
		close(hashed)
	}()
	_, err := s.of.f.WriteAt(b, s.entry.dataOffset()+s.offset)
	<-hashed
	if err != nil { // the hash is of more than was written: what was noted last counts
		s.reset()
		return atomicfile.Fault("write", s.of.path, err)
	}
	s.offset += int64(len(b))
	return nil
}

// finish holds the digest against what came. Wrong bytes are forgotten.
func (s *slot) finish() (err error) {
	if got := digest.NewDigest(digest.SHA256, s.sum); got != s.entry.d.Digest {
		err = &fault.Error{Reason: fault.Corrupt, Op: "read", Subject: s.entry.d.Digest.String(),
			Hint: "fetch it from another source", Err: &bundle.DigestError{Expected: s.entry.d.Digest, Got: got}}
		s.reset()
	}
	s.done = err == nil
	return errors.Join(err, s.of.note(s))
}

// bufferSize is what is copied at a time, of each concurrent blob: with 64 of them 8 MiB.
const bufferSize = 128 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}

// buffer is for copying size bytes, until free is called. Small blobs get no more
// than they have: many of them are copied at a time.
func buffer(size int64) (b []byte, free func()) {
	if size < bufferSize/2 {
		return make([]byte, max(size, 1)), func() {}
	}
	pooled := buffers.Get().(*[]byte)
	return *pooled, func() { buffers.Put(pooled) }
}

// pour copies all that r has, about size bytes, to w.
func pour(ctx context.Context, w io.Writer, r io.Reader, size int64) (int64, error) {
	buf, free := buffer(size)
	defer free()
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{&withContext{ctx, r}}, buf)
}

// withContext stops reading when the context is done.
type withContext struct {
	ctx context.Context //nolint:containedctx // io.Copy has no context of its own
	r   io.Reader
}

func (w *withContext) Read(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.r.Read(p)
}

// discardAll reads and verifies everything of d.
func discardAll(ctx context.Context, from bundle.Fetcher, d ocispec.Descriptor) error {
	rc, err := from.Fetch(ctx, d, 0)
	if err != nil {
		return err
	}
	defer rc.Close() //nolint:errcheck // nothing was written
	_, err = pour(ctx, io.Discard, bundle.Verify(rc, d), d.Size)
	return err
}
