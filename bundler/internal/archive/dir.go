package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// partialDir holds the blobs of a folder that are not whole yet.
const partialDir = ".partial"

// Dir is an OCI image layout in a folder. Links that lead out of it are not
// followed.
type Dir struct {
	path string
	root *os.Root

	mu sync.RWMutex // Attach replaces x
	x  *index
}

// OpenDir opens a folder for reading.
func OpenDir(path string) (*Dir, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, openFault(path, err)
	}
	d := &Dir{path: path, root: root}
	if err := d.read(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return d, nil
}

func (d *Dir) read() error {
	layout, err := d.small(layoutName, 4096)
	if err != nil {
		return err
	}
	if !layoutForm.Match(layout) {
		return brokenFile(d.path, "oci-layout is not that of an OCI image layout 1.0.0")
	}
	data, err := d.small(indexName, maxIndexSize)
	if err != nil {
		return err
	}
	x, err := parseIndex(d.path, data, d)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.x = x
	return nil
}

func (d *Dir) small(name string, limit int64) ([]byte, error) {
	f, err := d.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "open", Subject: d.path,
			Hint: "name a folder that `vdo-bundle pull` made", Err: fmt.Errorf("it is no OCI image layout: it has no %s", name)}
	}
	if err != nil {
		return nil, storageFault("open", filepath.Join(d.path, name), err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, storageFault("read", filepath.Join(d.path, name), err)
	}
	if int64(len(data)) > limit {
		return nil, brokenFile(d.path, "%s has more than %d bytes", name, limit)
	}
	return data, nil
}

func (d *Dir) index() *index {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.x
}

// Root returns the descriptor of the bundle's root.
func (d *Dir) Root(ctx context.Context) (ocispec.Descriptor, error) { return d.index().root(ctx) }

// Fetch returns the bytes of a descriptor, not verified.
func (d *Dir) Fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	return d.FetchFrom(ctx, desc, 0)
}

// FetchFrom returns the bytes of a descriptor from an offset, not verified.
func (d *Dir) FetchFrom(ctx context.Context, desc ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := bundle.CheckDescriptor(desc); err != nil {
		return nil, err
	}
	if err := checkOffset(d.path, desc, offset); err != nil {
		return nil, err
	}
	name := blobPrefix + desc.Digest.Encoded()
	f, err := d.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &fault.Error{Reason: fault.NotFound, Op: "read", Subject: d.path,
			Hint: "make the bundle again with `vdo-bundle pull`", Err: fmt.Errorf("it holds no %s", desc.Digest)}
	}
	if err != nil {
		return nil, d.unopened(name, err)
	}
	if err := checkBlobFile(d.path, f, desc); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(storageFault("read", filepath.Join(d.path, name), err), f.Close())
	}
	return f, nil
}

// unopened says why a blob cannot be opened. A link that leads out of the folder is
// nobody's accident: it would have other files read as content.
func (d *Dir) unopened(name string, err error) error {
	if info, statErr := d.root.Lstat(name); statErr == nil && info.Mode()&fs.ModeSymlink != 0 {
		return brokenFile(d.path, "%s is a link out of the folder", name)
	}
	return storageFault("read", filepath.Join(d.path, name), err)
}

func checkBlobFile(path string, f *os.File, d ocispec.Descriptor) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return storageFault("read", f.Name(), err)
	case !info.Mode().IsRegular():
		return brokenFile(path, "%s is no regular file", d.Digest)
	case info.Size() < d.Size:
		return incomplete(path, "%d of the %d bytes of %s are missing", d.Size-info.Size(), d.Size, d.Digest)
	case info.Size() > d.Size:
		return brokenFile(path, "%s has %d bytes, not %d", d.Digest, info.Size(), d.Size)
	}
	return nil
}

// Attachments returns the manifests of signatures and other things about subject.
func (d *Dir) Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	return d.index().attachments(ctx, subject)
}

// Close closes the folder.
func (d *Dir) Close() error { return d.root.Close() }

// CheckLayout checks what the root does not reach: index.json names the bundle, its
// images and what is about them, and nothing else, and attachments are whole. The
// folder may have been written by any tool.
func (d *Dir) CheckLayout(ctx context.Context) error {
	x := d.index()
	root, err := x.root(ctx)
	if err != nil {
		return err
	}
	g, err := bundle.Load(ctx, d, root)
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	return fault.Join(g.LeaveTo(x.base), checkEntries(ctx, d.path, x, g))
}

// Base returns what a delta leaves out; nil of a whole bundle.
func (d *Dir) Base() *bundle.Base { return d.index().base }

// Attach adds a signature, in the place of what had its tag: its blobs, then
// index.json.
func (d *Dir) Attach(ctx context.Context, att bundle.Attachment) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	has := func(hex string) bool { _, err := d.root.Stat(blobPrefix + hex); return err == nil }
	add, err := checkAttachment(d.path, att, has)
	if err != nil {
		return err
	}
	for _, b := range add {
		if err := writeWhole(filepath.Join(d.path, blobPrefix+b.Digest.Encoded()), b.Data); err != nil {
			return err
		}
	}
	text, err := indexJSON(with(d.index().entries, att), d.index().base)
	if err != nil {
		return err
	}
	if err := writeWhole(filepath.Join(d.path, indexName), text); err != nil {
		return err
	}
	return d.read()
}

// DirWriter writes an OCI image layout into a folder. Begin comes first; Put may
// be called concurrently.
type DirWriter struct {
	path  string
	o     Options
	graph *bundle.Graph
	blobs map[string]*dirSlot
}

type dirSlot struct {
	mu   sync.Mutex
	d    ocispec.Descriptor
	done bool
}

// CreateDir begins a folder; nothing is written before Begin. A folder that holds
// anything but this bundle is refused, unless it may be replaced: then index.json
// is, at the end, and blobs that nothing names any more stay.
func CreateDir(path string, o Options) (*DirWriter, error) {
	if err := checkParent(path); err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return nil, &fault.Error{Reason: fault.Storage, Op: "write", Subject: path,
			Hint: "name a folder, or write a file without oci:", Err: errors.New("it is a file")}
	}
	return &DirWriter{path: path, o: o}, nil
}

// Begin makes the folder, writes all that the graph itself carries and returns
// what is still to put.
func (w *DirWriter) Begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := w.checkFolder(g); err != nil {
		return nil, err
	}
	w.graph, w.blobs = g, map[string]*dirSlot{}
	for _, dir := range []string{blobPrefix, partialDir} {
		if err := os.MkdirAll(filepath.Join(w.path, dir), 0o755); err != nil {
			return nil, storageFault("write", w.path, err)
		}
	}
	var out []ocispec.Descriptor
	var need int64
	for _, d := range g.Order() {
		s := &dirSlot{d: d, done: w.whole(d)}
		w.blobs[d.Digest.Encoded()] = s
		if s.done {
			continue
		}
		need += padded(d.Size)
		if d.Data == nil {
			out = append(out, d)
		}
	}
	if err := checkSpace(filepath.Join(w.path, indexName), need-w.begun()); err != nil {
		return nil, err
	}
	return out, w.writeData()
}

// checkFolder refuses a folder of something else.
func (w *DirWriter) checkFolder(g *bundle.Graph) error {
	bad := func(why string) error {
		return &fault.Error{Reason: fault.Conflict, Op: "write", Subject: w.path,
			Hint: "name another folder, that is empty or not there yet", Err: errors.New(why)}
	}
	list, err := os.ReadDir(w.path)
	if errors.Is(err, fs.ErrNotExist) || w.o.Replace || (err == nil && len(list) == 0) {
		return nil
	}
	if err != nil {
		return storageFault("write", w.path, err)
	}
	names := make([]string, 0, len(list))
	for _, e := range list {
		names = append(names, e.Name())
	}
	if !slices.Contains(names, indexName) {
		if slices.Contains(names, partialDir) || slices.Contains(names, "blobs") {
			return nil // an interrupted run; blobs are named by digest, whoever wrote them
		}
		return bad("it is not empty, and no OCI image layout")
	}
	d, err := OpenDir(w.path)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // nothing was written
	for _, e := range d.index().entries {
		if e.Digest == g.Root.Digest {
			return nil
		}
	}
	return bad("it holds something else already")
}

func (w *DirWriter) blobPath(d ocispec.Descriptor) string {
	return filepath.Join(w.path, blobPrefix+d.Digest.Encoded())
}

func (w *DirWriter) partPath(d ocispec.Descriptor) string {
	return filepath.Join(w.path, partialDir, d.Digest.Encoded())
}

// whole reports whether a blob is there: a name is given to whole blobs only, so
// the size is enough.
func (w *DirWriter) whole(d ocispec.Descriptor) bool {
	info, err := os.Lstat(w.blobPath(d))
	return err == nil && info.Mode().IsRegular() && info.Size() == d.Size
}

// begun is the size of all that an interrupted run left.
func (w *DirWriter) begun() int64 {
	var n int64
	for _, s := range w.blobs {
		if info, err := os.Lstat(w.partPath(s.d)); err == nil && !s.done {
			n += info.Size()
		}
	}
	return n
}

func (w *DirWriter) writeData() error {
	for _, s := range w.blobs {
		if s.done || s.d.Data == nil {
			continue
		}
		if err := writeWhole(w.blobPath(s.d), s.d.Data); err != nil {
			return err
		}
		s.done = true
	}
	return nil
}

// Put writes one blob, verified as it streams: under another name, flushed, then
// renamed. What an interrupted run left of it is hashed and gone on from.
func (w *DirWriter) Put(ctx context.Context, d ocispec.Descriptor, open func(offset int64) (io.ReadCloser, error)) error {
	s, ok := w.blobs[d.Digest.Encoded()]
	if !ok || s.d.Size != d.Size {
		return &fault.Error{Reason: fault.Internal, Op: "write", Subject: w.path,
			Err: fmt.Errorf("%s of %d bytes is not in the bundle", d.Digest, d.Size)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return nil
	}
	f, err := os.OpenFile(w.partPath(d), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return storageFault("write", w.partPath(d), err)
	}
	err = fillPart(ctx, f, d, open)
	if err := errors.Join(err, storageFault("write", f.Name(), f.Close())); err != nil {
		return err
	}
	if err := os.Rename(w.partPath(d), w.blobPath(d)); err != nil {
		return storageFault("write", w.blobPath(d), err)
	}
	s.done = true
	return nil
}

// fillPart takes up the part that is there and fetches the rest; where the sum is
// wrong because of that part, it begins anew.
func fillPart(ctx context.Context, f *os.File, d ocispec.Descriptor, open func(int64) (io.ReadCloser, error)) error {
	s := newSlot(f, entry{d: d, size: d.Size}, func(*slot) error { return nil })
	had, err := io.Copy(s.sum, io.LimitReader(f, d.Size))
	if err != nil {
		return storageFault("read", f.Name(), err)
	}
	s.offset, s.resumed = had, had > 0
	err = s.put(ctx, open)
	var wrong *wrongSumError
	if errors.As(err, &wrong) {
		return errors.Join(err, storageFault("write", f.Name(), f.Truncate(0)))
	}
	if err != nil {
		return err
	}
	return storageFault("write", f.Name(), errors.Join(f.Truncate(d.Size), f.Sync()))
}

// Commit writes oci-layout and, last, index.json, once everything is there.
func (w *DirWriter) Commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.graph == nil {
		return &fault.Error{Reason: fault.Internal, Op: "write", Subject: w.path, Err: errors.New("it was not begun")}
	}
	lack := 0
	for _, s := range w.blobs {
		s.mu.Lock()
		if !s.done {
			lack++
		}
		s.mu.Unlock()
	}
	if lack > 0 {
		return &fault.Error{Reason: fault.Incomplete, Op: "write", Subject: w.path, Hint: "run the same command again: it goes on from here",
			Err: fmt.Errorf("%d of %d blobs are missing", lack, len(w.blobs))}
	}
	text, err := indexJSON(entriesOf(w.graph), w.graph.Base)
	if err != nil {
		return err
	}
	if err := syncDir(filepath.Join(w.path, blobPrefix)); err != nil {
		return err
	}
	if err := writeWhole(filepath.Join(w.path, layoutName), []byte(layoutData)); err != nil {
		return err
	}
	if err := writeWhole(filepath.Join(w.path, indexName), text); err != nil {
		return err
	}
	return storageFault("remove", w.path, os.RemoveAll(filepath.Join(w.path, partialDir)))
}

// Close without Commit leaves what can be resumed.
func (w *DirWriter) Close() error { return nil }
