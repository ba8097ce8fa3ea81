package remote

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// source is a blob that is uploaded. It opens when the first byte is needed, hashes every
// byte on its way out, and keeps the last ones back until all of them are right. It reads
// again from the last mark if the registry wants a part again.
type source struct {
	d    ocispec.Descriptor
	open func(int64) (io.ReadCloser, error)
	in   *hashed // nil: not open
	mark mark
}

// mark is the state of the hash at an offset: there the blob can be opened again.
type mark struct {
	offset int64
	state  []byte
}

// body returns n bytes from an offset on, as the body of a request; the body before has
// been closed. It brings the stream to the offset, with the hash of all that is before it,
// and marks the place. The stream stays open between parts: a distant store is asked once.
func (s *source) body(offset, n int64) (io.ReadCloser, error) {
	if s.in == nil || s.in.offset() != offset {
		if err := s.reopen(offset); err != nil {
			return nil, err
		}
	}
	state, err := s.in.sum.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("keep the state of a hash: %w", err)
	}
	s.mark = mark{offset, state}
	return &part{src: s.in, left: n}, nil
}

// reopen opens the source at the last mark that is not behind the offset, and reads
// on to it.
func (s *source) reopen(offset int64) error {
	s.close()
	from := s.mark
	sum := sha256.New()
	if from.offset > offset || from.offset == 0 {
		from = mark{}
	} else if err := sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(from.state); err != nil {
		return fmt.Errorf("take up the state of a hash: %w", err)
	}
	rc, err := s.open(from.offset)
	if err != nil {
		return err
	}
	s.in = &hashed{ReadCloser: rc, size: s.d.Size, left: s.d.Size - from.offset, sum: sum, want: s.d.Digest.Encoded()}
	_, err = io.CopyN(io.Discard, s.in, offset-from.offset)
	return err
}

// fault returns the fault of the source.
func (s *source) fault() error {
	if s.in == nil {
		return nil
	}
	return wrongSource(s.d, s.in.fault())
}

// close ends the stream; the next body opens it again.
func (s *source) close() {
	if s.in != nil {
		_ = s.in.Close()
		s.in = nil
	}
}

// part is a part of a stream, as the body of a request. Its end is not the stream's.
type part struct {
	src  *hashed
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

// hashed is a stream on its way out. It keeps the last bytes back until all of them are
// known to be right.
type hashed struct {
	io.ReadCloser
	size, left int64
	sum        hash.Hash
	want       string

	mu  sync.Mutex // the transport reads in its own goroutine
	err error
}

var errOtherContent = errors.New("its content is not what its digest says")

func (s *hashed) offset() int64 { return s.size - s.left }

func (s *hashed) Read(p []byte) (int, error) {
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

func (s *hashed) fault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// wrongSource makes a fault of what was wrong with a source, unless it is one.
func wrongSource(d ocispec.Descriptor, err error) error {
	var f *fault.Error
	if err == nil || errors.As(err, &f) {
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

// bytesOf serves bytes that are in memory.
func bytesOf(data []byte) func(int64) (io.ReadCloser, error) {
	return func(offset int64) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data[offset:])), nil }
}
