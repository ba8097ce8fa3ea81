package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// StreamWriter writes an archive to a pipe: the bytes that [FileWriter] gives, in
// their order, once. What breaks off has no end mark, and no reader takes it.
type StreamWriter struct {
	w      io.Writer
	layout *Layout
	done   bool
}

// NewStreamWriter returns a writer to w. Nothing is written before Stream.
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

// Stream writes all of it; what is not at hand is fetched, one after the other.
func (s *StreamWriter) Stream(ctx context.Context, f bundle.Fetcher) error {
	if s.layout == nil || s.done {
		return &fault.Error{Reason: fault.Internal, Op: "write", Subject: streamName, Err: errors.New("it was not begun, or is written already")}
	}
	if err := s.layout.Stream(ctx, s.w, f); err != nil {
		return err
	}
	s.done = true
	return nil
}

const streamName = "standard output"

// Put is no way to write a stream, whose order is its own.
func (s *StreamWriter) Put(_ context.Context, d ocispec.Descriptor, _ func(int64) (io.ReadCloser, error)) error {
	return &fault.Error{Reason: fault.Internal, Op: "write", Subject: streamName, Err: fmt.Errorf("%s is put into a stream", d.Digest)}
}

// Commit makes sure that the end was written.
func (s *StreamWriter) Commit(context.Context) error {
	if s.done {
		return nil
	}
	return &fault.Error{Reason: fault.Incomplete, Op: "write", Subject: streamName, Hint: "run the same command again, from its start", Err: errors.New("it was not written to its end")}
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
