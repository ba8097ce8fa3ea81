package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const (
	checkpoint = 8 << 20 // bytes of one blob between two notes of its progress
	maxStalls  = 3       // times that a source may end early without a byte of progress
)

// A slot is the place of one blob in a file, and how far the blob has come.
type slot struct {
	mu      sync.Mutex // held by the one who fills it
	f       storage
	entry   entry
	note    func(*slot) error // remembers the progress
	offset  int64
	sum     hash.Hash
	resumed bool // offset and sum are an earlier run's
	done    bool
}

func newSlot(f storage, e entry, note func(*slot) error) *slot {
	return &slot{f: f, entry: e, note: note, sum: sha256.New()}
}

// resume takes up what the journal says, where the bytes on the disk are those that it
// speaks of: what this run has not written, it hashes.
func (s *slot) resume(ctx context.Context, p progress) error {
	if p.offset == 0 || p.offset > s.entry.size || p.place != s.entry.dataOffset() {
		return nil
	}
	sum := sha256.New()
	buf, free := buffer(p.offset)
	defer free()
	from := io.NewSectionReader(s.f, p.place, p.offset)
	n, err := io.CopyBuffer(struct{ io.Writer }{sum}, struct{ io.Reader }{&withContext{ctx, from}}, buf)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil || n != p.offset || !bytes.Equal(sum.Sum(nil), p.sum[:]) {
		return nil //nolint:nilerr // the disk has lost it: it is fetched again
	}
	s.offset, s.sum, s.resumed, s.done = p.offset, sum, true, p.whole(s.entry)
	return nil
}

// put fills the slot, verified as it streams, from where it is; open gives the
// blob's bytes from an offset, and is asked again where they end early.
func (s *slot) put(ctx context.Context, open func(offset int64) (io.ReadCloser, error)) error {
	if s.done {
		return nil
	}
	resumed := s.resumed
	err := s.fill(ctx, open)
	var wrong *bundle.DigestError
	if resumed && errors.As(err, &wrong) { // the disk lost what was noted: once more
		err = s.fill(ctx, open)
	}
	return err
}

func (s *slot) fill(ctx context.Context, open func(int64) (io.ReadCloser, error)) error {
	if s.offset == 0 {
		if _, err := s.f.WriteAt(s.entry.header, s.entry.offset); err != nil {
			return storageFault("write", s.f.Name(), err)
		}
	}
	for stalls := 0; s.offset < s.entry.size; {
		before := s.offset
		err := s.stream(ctx, open)
		if err == nil {
			break
		}
		var early *endedEarlyError
		if !errors.As(err, &early) || ctx.Err() != nil {
			return err
		}
		if s.offset == before {
			stalls++
		}
		if stalls == maxStalls {
			return &fault.Error{Reason: incompleteReason(err), Op: "read", Subject: s.entry.d.Digest.String(), Hint: "run the same command again: it goes on from here",
				Err: fmt.Errorf("%d of %d bytes came: %w", s.offset, s.entry.size, early.err)}
		}
	}
	return s.finish()
}

// incompleteReason keeps the reason of the source's own fault.
func incompleteReason(err error) fault.Reason {
	if len(fault.All(err)) > 0 {
		return fault.ReasonOf(err)
	}
	return fault.Incomplete
}

// endedEarlyError is a source that gave fewer bytes than it should.
type endedEarlyError struct{ err error }

func (e *endedEarlyError) Error() string { return e.err.Error() }
func (e *endedEarlyError) Unwrap() error { return e.err }

// stream copies from one opening of the source.
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
			return &endedEarlyError{readErr}
		}
		if s.offset >= next && s.offset < s.entry.size {
			next = s.offset + checkpoint
			if err := s.note(s); err != nil {
				return err
			}
		}
	}
	return noMore(rc, s.entry.d)
}

// write writes and hashes side by side: for one large blob that is nearly twice as
// fast as one after the other.
func (s *slot) write(b []byte) error {
	hashed := make(chan struct{})
	go func() {
		s.sum.Write(b)
		close(hashed)
	}()
	_, err := s.f.WriteAt(b, s.entry.dataOffset()+s.offset)
	<-hashed
	if err != nil { // the hash is of more than was written: what was noted last counts
		s.offset, s.sum, s.resumed = 0, sha256.New(), false
		return storageFault("write", s.f.Name(), err)
	}
	s.offset += int64(len(b))
	return nil
}

// noMore refuses a source that gives more bytes than the descriptor says.
func noMore(r io.Reader, d ocispec.Descriptor) error {
	var one [1]byte
	if n, _ := io.ReadFull(r, one[:]); n > 0 {
		return &fault.Error{Reason: fault.Corrupt, Op: "read", Subject: d.Digest.String(),
			Hint: "fetch it from another source", Err: fmt.Errorf("there is more than its %d bytes", d.Size)}
	}
	return nil
}

// finish holds the digest against what came. Wrong bytes are forgotten.
func (s *slot) finish() error {
	got := digest.NewDigest(digest.SHA256, s.sum)
	if got == s.entry.d.Digest {
		s.done = true
		return s.note(s)
	}
	s.offset, s.sum, s.resumed = 0, sha256.New(), false
	return errors.Join(&fault.Error{Reason: fault.Corrupt, Op: "read", Subject: s.entry.d.Digest.String(),
		Hint: "fetch it from another source", Err: &bundle.DigestError{Expected: s.entry.d.Digest, Got: got}}, s.note(s))
}
