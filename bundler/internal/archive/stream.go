package archive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
)

// StreamWriter writes the bytes of [FileWriter] to a pipe, in order, once. Readers refuse a truncated stream.
type StreamWriter struct {
	path   string // for messages
	w      io.Writer
	at     int64 // bytes written so far
	layout *Layout
	next   int // index of the next entry
}

// NewStreamWriter returns a writer to w. It writes nothing before the first Put or Commit.
func NewStreamWriter(w io.Writer) *StreamWriter { return &StreamWriter{path: "standard output", w: w} }

// Begin lays out the archive and returns the blobs that the graph does not carry.
func (s *StreamWriter) Begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var err error
	if s.layout, err = NewLayout(g); err != nil {
		return nil, err
	}
	return s.layout.fetched(), nil
}

// Put writes the next blob of Begin, verified as it streams. The bytes of an interrupted blob cannot be withdrawn.
func (s *StreamWriter) Put(
	ctx context.Context, d ocispec.Descriptor, open func(offset int64) (io.ReadCloser, error),
) error {
	e, err := s.fetched()
	if err != nil {
		return err
	}
	if e.d.Digest != d.Digest || e.size != d.Size {
		return fault.Errorf(fault.Internal, "write", s.path, "", "%s does not come next", d.Digest)
	}
	if s.at != e.offset {
		return s.cutOff("a blob of it has broken off")
	}
	rc, err := open(0)
	if err != nil {
		return err
	}
	defer rc.Close() //nolint:errcheck // nothing was written through it
	for _, part := range []io.Reader{
		bytes.NewReader(e.header), bundle.Verify(rc, d),
		bytes.NewReader(make([]byte, padded(e.size)-e.size)),
	} {
		if _, err := pour(ctx, s, part, e.size); err != nil {
			return err
		}
	}
	s.next++
	return nil
}

// fetched writes entries that carry their data, up to one that does not. It returns zero at the end or before Begin.
func (s *StreamWriter) fetched() (entry, error) {
	for s.layout != nil && s.next < len(s.layout.entries) {
		e := s.layout.entries[s.next]
		if e.data == nil {
			return e, nil
		}
		if _, err := s.Write(e.bytes()); err != nil {
			return entry{}, err
		}
		s.next++
	}
	return entry{}, nil
}

// Write writes to the pipe.
func (s *StreamWriter) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.at += int64(n)
	return n, atomicfile.Fault("write", s.path, err)
}

func (s *StreamWriter) cutOff(why string) error {
	return fault.Errorf(fault.Incomplete, "write", s.path, "run the same command again, from its start", "%s", why)
}

// Commit writes the end mark.
func (s *StreamWriter) Commit(context.Context) error {
	e, err := s.fetched()
	if err != nil {
		return err
	}
	if s.layout == nil || e.header != nil {
		return s.cutOff("it was not written to its end")
	}
	_, err = s.Write(make([]byte, endSize))
	return err
}

// Can reports that a stream needs blobs in order.
func (s *StreamWriter) Can() medium.Capabilities { return medium.Capabilities{InOrder: true} }

// Ready reports that a pipe always has room.
func (s *StreamWriter) Ready(context.Context, int64) error { return nil }

// Close does nothing: the pipe is the caller's.
func (s *StreamWriter) Close() error { return nil }

// OpenStream opens an archive from an open file, such as standard input; name is for messages. It reads a regular
// file in place. It copies a pipe to an unnamed temporary file, since readers need random access and no blob fits
// memory.
func OpenStream(ctx context.Context, name string, from *os.File) (*Archive, error) {
	info, err := from.Stat()
	if err != nil {
		return nil, atomicfile.Fault("read", name, err)
	}
	f := from
	if !info.Mode().IsRegular() {
		if f, err = spool(ctx, from); err != nil {
			return nil, err
		}
	}
	v := oneFile(f)
	v.path, v.location = name, name
	x, err := scanStorage(v)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Archive{x, tarFile{v}}, nil
}

// spool copies a pipe into a file without a name.
func spool(ctx context.Context, from io.Reader) (*os.File, error) {
	dir := os.TempDir()
	f, err := os.CreateTemp(dir, "vdo-bundle-*.tar")
	if err != nil {
		return nil, spoolFault(dir, err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(spoolFault(dir, err), f.Close())
	}
	done := make(chan error, 1)
	go func() { // a read of a pipe cannot be cancelled; it ends with the program
		_, err := pour(ctx, f, from, bufferSize)
		done <- err
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(spoolFault(dir, err), f.Close())
	}
	return f, nil
}

func spoolFault(dir string, err error) error {
	return fault.Errorf(fault.Storage, "keep standard input in", dir,
		"name a folder with space for the whole archive in TMPDIR, or give the archive as a file",
		"%w", atomicfile.WithoutPath(err))
}
