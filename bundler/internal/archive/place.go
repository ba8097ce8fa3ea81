package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// identity returns the first line of a journal: the bundle's root, the base of omitted layers, and the size of parts.
// It excludes attachments, since a pull with other signatures has the same payload.
func identity(g *bundle.Graph, o Options) string {
	id := g.Root.Digest.String()
	if g.Base != nil {
		id += " base=" + g.Base.Root.String()
	}
	if o.VolumeSize != 0 {
		id += fmt.Sprintf(" volume=%d", o.VolumeSize)
	}
	return id
}

// checkTarget refuses to write over an existing file that must stay.
func checkTarget(path string, o Options) error {
	info, err := os.Lstat(path)
	bad := func(reason fault.Reason, why, hint string) error {
		return &fault.Error{Reason: reason, Op: "write", Subject: path, Hint: hint, Err: errors.New(why)}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return atomicfile.Fault("write", path, err)
	case info.IsDir():
		return bad(fault.Storage, "it is a folder", "name a file, or write into the folder as "+fault.Quote("oci:"+path))
	case !info.Mode().IsRegular():
		return bad(fault.Storage, "it is there and not a regular file", "name a file")
	case !o.Replace:
		return bad(fault.Conflict, "it is there already", "choose another name, or replace it with --replace")
	}
	return nil
}

// checkTargets refuses to write over an existing archive, whole or in parts.
func (w *FileWriter) checkTargets() error {
	if !w.overSource() {
		if err := checkTarget(w.path, w.o); err != nil {
			return err
		}
	}
	return checkTarget(w.path+parts.Suffix, w.o)
}

// overSource reports whether a split writes to the name of its own source.
func (w *FileWriter) overSource() bool { return w.source != "" && sameFile(w.source, w.path) }

var partialName = regexp.MustCompile(`^(\.p?[0-9]{3}|\.parts)?\.partial$`)

// leftovers returns the names of the archive's partial files, whole or in parts. Those of another interrupted run are
// a fault, unless o.Restart is set.
func (w *FileWriter) leftovers(before noted) (left []string, err error) {
	dir := filepath.Dir(w.path)
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, atomicfile.Fault("read", dir, err)
	}
	for _, e := range list {
		if rest, ok := strings.CutPrefix(e.Name(), w.name()); ok && partialName.MatchString(rest) {
			left = append(left, e.Name())
		}
	}
	if len(left) == 0 || before.bundle == w.id || w.o.Restart {
		return left, nil
	}
	drop := ", or drop it with --restart"
	if w.again { // sign has no such flag
		drop = ""
	}
	return nil, fault.Errorf(fault.Conflict, "resume", filepath.Join(dir, left[0]),
		"finish that run (pull, copy, split or sign) as it was begun"+drop+"; "+
			"or remove its .partial files and "+fault.Quote(w.path+journalSuffix),
		"an interrupted run of something else, or of an earlier version, left this file")
}

func (w *FileWriter) removePartial() error {
	left, err := w.leftovers(noted{bundle: w.id})
	for _, name := range left {
		err = errors.Join(err, w.dir.Remove(name))
	}
	return errors.Join(err, w.dir.Remove(w.lock.name))
}

// removeParts removes a parts file and its parts, except those in keep. The list goes last, so that the next run knows
// the parts that a killed one left.
func (d *directory) removeParts(name string, keep []string) error {
	if !d.Has(name) {
		return nil
	}
	l, err := d.ownParts(name)
	if err != nil {
		return err
	}
	for _, part := range l.Names() {
		if !slices.Contains(keep, part) {
			if err := d.Remove(part); err != nil {
				return err
			}
		}
	}
	return d.Remove(name)
}

// ownParts reads the parts file of an archive to replace. It refuses one that lists another archive's parts.
func (d *directory) ownParts(name string) (*parts.List, error) {
	l, err := readParts(d.At(name))
	if err == nil && l.File != strings.TrimSuffix(name, parts.Suffix) {
		err = fault.Errorf(fault.Conflict, "replace", d.At(name),
			"look at it, and remove it: the parts that it lists are not touched",
			"it lists the parts of another archive, %s", l.File)
	}
	return l, err
}

// exists reports whether a file or link has this name, even a dangling link.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// checkpoint is how many bytes of one blob lie between two notes of its progress.
const checkpoint = 8 << 20

// slot is the place of one blob in a file, and its progress.
type slot struct {
	mu     sync.Mutex // held while the slot is filled
	of     *FileWriter
	entry  entry
	offset int64
	sum    hash.Hash
	done   bool
}

func (s *slot) reset() { s.offset, s.sum = 0, sha256.New() }

func (s *slot) digest() digest.Digest { return digest.NewDigest(digest.SHA256, s.sum) }

// resume adopts the journal's progress if the bytes on disk, which another run wrote, have the noted hash.
func (s *slot) resume(ctx context.Context, p progress) error {
	if p.Offset <= 0 || p.Offset > s.entry.size {
		return nil
	}
	sum := sha256.New()
	n, err := pour(ctx, sum, io.NewSectionReader(s.of.f, s.entry.dataOffset(), p.Offset), p.Offset)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil || n != p.Offset || !bytes.Equal(sum.Sum(nil), p.Sum) {
		return nil //nolint:nilerr // the disk lost it: fetch it again
	}
	s.offset, s.sum = p.Offset, sum
	s.done = s.offset == s.entry.size && s.digest() == s.entry.d.Digest
	return nil
}

// put fills the slot from its offset, verified as it streams. Function open returns the blob's bytes from an offset.
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

// stream copies the missing bytes from the source.
func (s *slot) stream(ctx context.Context, open func(int64) (io.ReadCloser, error)) error {
	rc, err := open(s.offset)
	if err != nil {
		return err
	}
	defer rc.Close() //nolint:errcheck // nothing was written through it
	buf := buffer(s.entry.size)
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

// cutOff returns the fault for a source that gave too few bytes.
func (s *slot) cutOff(err error) error {
	reason := fault.Incomplete
	if len(fault.All(err)) > 0 { // of the source
		reason = fault.ReasonOf(err)
	}
	return fault.Errorf(reason, "read", s.entry.d.Digest.String(), "run the same command again: it goes on from here",
		"%d of %d bytes came: %w", s.offset, s.entry.size, err)
}

// write writes and hashes in parallel: nearly twice as fast for one large blob.
func (s *slot) write(b []byte) error {
	hashed := make(chan struct{})
	go func() {
		s.sum.Write(b)
		close(hashed)
	}()
	_, err := s.of.f.WriteAt(b, s.entry.dataOffset()+s.offset)
	<-hashed
	if err != nil { // the hash covers unwritten bytes: the last note counts
		s.reset()
		return atomicfile.Fault("write", s.of.path, err)
	}
	s.offset += int64(len(b))
	return nil
}

// finish checks the digest and discards wrong bytes.
func (s *slot) finish() (err error) {
	if got := s.digest(); got != s.entry.d.Digest {
		err = &fault.Error{Reason: fault.Corrupt, Op: "read", Subject: s.entry.d.Digest.String(),
			Hint: "fetch it from another source", Err: &bundle.DigestError{Expected: s.entry.d.Digest, Got: got}}
		s.reset()
	}
	s.done = err == nil
	return errors.Join(err, s.of.note(s))
}

// bufferSize is the copy buffer of each concurrent blob: 8 MiB for 64 blobs.
const bufferSize = 128 << 10

// buffer returns a buffer to copy size bytes. Small blobs get small ones, as many are copied at once.
func buffer(size int64) []byte { return make([]byte, min(max(size, 1), bufferSize)) }

// pour copies all of r, about size bytes, to w.
func pour(ctx context.Context, w io.Writer, r io.Reader, size int64) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{&withContext{ctx, r}}, buffer(size))
}

// withContext stops reading when the context ends.
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

// discardAll reads and verifies all of d.
func discardAll(ctx context.Context, from bundle.Fetcher, d ocispec.Descriptor) error {
	rc, err := from.Fetch(ctx, d, 0)
	if err != nil {
		return err
	}
	defer rc.Close() //nolint:errcheck // nothing was written
	_, err = pour(ctx, io.Discard, bundle.Verify(rc, d), d.Size)
	return err
}
