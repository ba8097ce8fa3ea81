package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// StreamWriter writes an archive to a pipe: the bytes that [FileWriter] gives, in
// their order, once. What breaks off has no end mark, and no reader takes it.
type StreamWriter struct {
	w      io.Writer
	layout *Layout
	next   int       // the entry that is written now
	at     int64     // how much of its data is
	sum    hash.Hash // of that; nil: not even its header is
}

// NewStreamWriter returns a writer to w. Nothing is written before the first Put, or Commit.
func NewStreamWriter(w io.Writer) *StreamWriter { return &StreamWriter{w: w} }

// Begin lays the archive out and returns what the graph itself does not carry.
func (s *StreamWriter) Begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var err error
	if s.layout, err = NewLayout(g); err != nil {
		return nil, err
	}
	var out []ocispec.Descriptor
	for _, e := range s.layout.entries[2:] {
		if e.data == nil {
			out = append(out, e.d)
		}
	}
	return out, nil
}

// Put writes what comes next of what Begin returned, verified as it streams. It goes on
// where an earlier call for the same blob broke off.
func (s *StreamWriter) Put(ctx context.Context, d ocispec.Descriptor, open func(offset int64) (io.ReadCloser, error)) error {
	e, err := s.fetched()
	if err != nil {
		return err
	}
	if e.d.Digest != d.Digest || e.size != d.Size {
		return &fault.Error{Reason: fault.Internal, Op: "write", Subject: streamName,
			Err: fmt.Errorf("%s does not come next", d.Digest)}
	}
	if s.sum == nil {
		if err := s.write(e.header); err != nil {
			return err
		}
		s.sum = sha256.New()
	}
	if err := s.copy(ctx, e, open); err != nil {
		return err
	}
	if got := digest.NewDigest(digest.SHA256, s.sum); got != d.Digest { // it is too late to begin again
		return &fault.Error{Reason: fault.Corrupt, Op: "read", Subject: d.Digest.String(),
			Hint: "fetch it from another source", Err: &bundle.DigestError{Expected: d.Digest, Got: got}}
	}
	s.next, s.at, s.sum = s.next+1, 0, nil
	return s.write(make([]byte, padded(e.size)-e.size))
}

// fetched writes the entries that carry their data, up to one that does not; the zero entry
// is the end of the archive, or no beginning.
func (s *StreamWriter) fetched() (entry, error) {
	for s.layout != nil && s.next < len(s.layout.entries) {
		e := s.layout.entries[s.next]
		if e.data == nil {
			return e, nil
		}
		if err := s.write(slices.Concat(e.header, e.data, make([]byte, padded(e.size)-e.size))); err != nil {
			return entry{}, err
		}
		s.next++
	}
	return entry{}, nil
}

func (s *StreamWriter) copy(ctx context.Context, e entry, open func(offset int64) (io.ReadCloser, error)) error {
	rc, err := open(s.at)
	if err != nil {
		return err
	}
	defer rc.Close() //nolint:errcheck // nothing was written through it
	buf, free := buffer(max(e.size, 1))
	defer free()
	from := &withContext{ctx, io.LimitReader(rc, e.size-s.at)}
	n, err := io.CopyBuffer(io.MultiWriter(s, s.sum), struct{ io.Reader }{from}, buf)
	if s.at += n; err == nil && s.at < e.size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	return noMore(rc, e.d)
}

// Write writes to the pipe: what fails is a fault of it, not of what is read.
func (s *StreamWriter) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	return n, storageFault("write", "the archive's stream", err)
}

func (s *StreamWriter) write(p []byte) error {
	_, err := s.Write(p)
	return err
}

const streamName = "standard output"

// Commit writes the end.
func (s *StreamWriter) Commit(context.Context) error {
	e, err := s.fetched()
	if err != nil {
		return err
	}
	if s.layout == nil || e.header != nil {
		return &fault.Error{Reason: fault.Incomplete, Op: "write", Subject: streamName,
			Hint: "run the same command again, from its start", Err: errors.New("it was not written to its end")}
	}
	return s.write(make([]byte, endSize))
}

// Close does nothing: the pipe is the caller's.
func (s *StreamWriter) Close() error { return nil }

// OpenStream opens an archive that comes from an open file, such as standard input;
// name is for messages. A regular file is read where it is. What comes from a pipe
// is kept in a file of the folder for temporary ones, which has no name and ends
// with the program: an archive is read at many places at once, and again where an
// upload has to be, and no blob is held in memory.
func OpenStream(ctx context.Context, name string, from *os.File) (*File, error) {
	info, err := from.Stat()
	if err != nil {
		return nil, storageFault("read", name, err)
	}
	f := from
	if !info.Mode().IsRegular() {
		if f, err = spool(ctx, name, from); err != nil {
			return nil, err
		}
	}
	s, err := scanStorage(name, f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &File{path: name, f: f, scan: s}, nil
}

// spool copies a pipe into a file without a name.
func spool(ctx context.Context, name string, from io.Reader) (*os.File, error) {
	dir := os.TempDir()
	f, err := os.CreateTemp(dir, "vdo-bundle-*.tar")
	if err != nil {
		return nil, spoolFault(dir, err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(spoolFault(dir, err), f.Close())
	}
	done := make(chan error, 1)
	go func() { // who reads a pipe cannot be stopped; the program's end does
		buf := make([]byte, bufferSize)
		_, err := io.CopyBuffer(spoolWriter{ctx, f, dir}, readFault{name, from}, buf)
		done <- err
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// spoolWriter writes what is spooled, as long as it is wanted.
type spoolWriter struct {
	ctx context.Context //nolint:containedctx // io.Copy has no context of its own
	f   *os.File
	dir string
}

func (w spoolWriter) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.f.Write(p)
	if err != nil {
		return n, spoolFault(w.dir, err)
	}
	return n, nil
}

func spoolFault(dir string, err error) error {
	return &fault.Error{
		Reason: fault.Storage, Op: "keep standard input in", Subject: dir, Err: cause(err),
		Hint: "name a folder with space for the whole archive in TMPDIR, or give the archive as a file",
	}
}

// readFault makes a fault of what breaks the pipe.
type readFault struct {
	name string
	io.Reader
}

func (r readFault) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = storageFault("read", r.name, err)
	}
	return n, err
}
