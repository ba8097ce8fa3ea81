package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/atomicfile"
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
	root, err := atomicfile.OpenRoot(path)
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
	x, err := d.readIndex()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.x = x
	return nil
}

// readIndex reads what index.json says now.
func (d *Dir) readIndex() (*index, error) {
	layout, err := d.small(layoutName, 4096)
	if err != nil {
		return nil, err
	}
	if !layoutForm.Match(layout) {
		return nil, brokenFile(d.path, "oci-layout is not that of an OCI image layout 1.0.0")
	}
	data, err := d.small(indexName, maxIndexSize)
	if err != nil {
		return nil, err
	}
	return parseIndex(d.path, data, d)
}

// open opens a file of the folder for reading; it does not wait where a pipe has the name.
func (d *Dir) open(name string) (*os.File, error) {
	return d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

func (d *Dir) small(name string, limit int64) ([]byte, error) {
	f, err := d.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "open", Subject: d.path,
			Hint: "name a folder that `vdo-bundle pull` made", Err: fmt.Errorf("it is not an OCI image layout: it has no %s", name)}
	}
	if err != nil {
		return nil, storageFault("open", filepath.Join(d.path, name), err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	if err := mustBeRegular(f); err != nil {
		return nil, err
	}
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
	f, err := d.open(name)
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
	return &blobFile{f, desc.Size}, nil
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
		return brokenFile(path, "%s is not a regular file", d.Digest)
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
// index.json. Nobody else changes the folder at that moment, and what has the tag has
// to be what it was when the folder was read: the signature was joined with that.
func (d *Dir) Attach(ctx context.Context, att bundle.Attachment) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	in := &folder{path: d.path, root: d.root}
	lock, err := in.lockSelf()
	if err != nil {
		return err
	}
	err = d.attach(ctx, in, att)
	if err := errors.Join(err, lock.Close()); err != nil {
		return err
	}
	return d.read()
}

// attach does so under the lock. What lies under the name of one of its blobs, which
// anybody can predict, is that blob only if it has its bytes; else it is replaced.
func (d *Dir) attach(ctx context.Context, in *folder, att bundle.Attachment) error {
	x, err := d.readIndex()
	if err != nil {
		return err
	}
	if err := sameTag(d.path, att.Tag, d.index(), x); err != nil {
		return err
	}
	has := func(hex string) bool { _, err := d.root.Stat(blobPrefix + hex); return err == nil }
	whole := func(b ocispec.Descriptor) (bool, error) { return wholeIn(ctx, d.root, b) }
	add, err := checkAttachment(d.path, att, has, whole)
	if err != nil {
		return err
	}
	if err := in.mkdir(blobPrefix); err != nil {
		return err
	}
	for _, b := range add {
		if err := in.write(blobPrefix+b.Digest.Encoded(), b.Data); err != nil {
			return err
		}
	}
	text, err := indexJSON(with(x.entries, att), x.base)
	if err != nil {
		return err
	}
	return in.write(indexName, text)
}

// DirWriter writes an OCI image layout into a folder. Begin comes first; Put may
// be called concurrently.
type DirWriter struct {
	path  string
	o     Options
	dir   *folder
	lock  *os.File
	graph *bundle.Graph
	blobs map[string]*dirSlot
	seen  map[string]digest.Digest // tag → what Tagged found there; "": nothing
	kept  []ocispec.Descriptor     // entries of index.json that stay
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
// what is still to put. A blob that is there counts once it was hashed.
func (w *DirWriter) Begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	missing, err := w.begin(ctx, g)
	if err != nil {
		err = errors.Join(err, w.Close())
	}
	return missing, err
}

func (w *DirWriter) begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	if err := w.openFolder(); err != nil {
		return nil, err
	}
	if err := w.checkFolder(g); err != nil {
		return nil, err
	}
	if err := w.keep(ctx, g); err != nil {
		return nil, err
	}
	for _, dir := range []string{blobPrefix, partialDir} {
		if err := w.dir.mkdir(dir); err != nil {
			return nil, err
		}
	}
	out, need, err := w.missing(ctx, g, w.dir.root)
	if err != nil {
		return nil, err
	}
	if err := checkSpace(filepath.Join(w.path, indexName), need); err != nil {
		return nil, err
	}
	w.graph = g
	return out, w.writeData()
}

// openFolder makes and opens the folder, and keeps other processes off it.
func (w *DirWriter) openFolder() (err error) {
	if w.dir != nil {
		return nil
	}
	if err := os.Mkdir(w.path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return storageFault("write", w.path, err)
	}
	if w.dir, err = openFolder(w.path); err == nil {
		w.lock, err = w.dir.lockSelf()
	}
	return err
}

// missing makes the slots, and returns what is to put and the bytes that it needs,
// beside what an interrupted run left.
func (w *DirWriter) missing(ctx context.Context, g *bundle.Graph, in *os.Root) (out []ocispec.Descriptor, need int64, err error) {
	order := g.Order()
	w.blobs = map[string]*dirSlot{}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, d := range order {
		s := &dirSlot{d: d}
		w.blobs[d.Digest.Encoded()] = s
		group.Go(func() (err error) {
			s.done, err = wholeIn(ctx, in, d)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, 0, err
	}
	for _, d := range order {
		if w.blobs[d.Digest.Encoded()].done {
			continue
		}
		need += padded(d.Size)
		if in != nil {
			if info, err := in.Lstat(partName(d)); err == nil && info.Mode().IsRegular() {
				need -= info.Size()
			}
		}
		if d.Data == nil {
			out = append(out, d)
		}
	}
	return out, need, nil
}

// wholeIn tells whether a blob is in a folder with its bytes.
func wholeIn(ctx context.Context, in *os.Root, d ocispec.Descriptor) (bool, error) {
	if in == nil {
		return false, nil
	}
	name := blobPrefix + d.Digest.Encoded()
	if info, err := in.Lstat(name); err != nil || !info.Mode().IsRegular() || info.Size() != d.Size {
		return false, nil //nolint:nilerr // it is fetched
	}
	f, err := in.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false, nil //nolint:nilerr // it is fetched
	}
	defer f.Close() //nolint:errcheck // nothing was written
	buf, free := buffer(max(d.Size, 1))
	defer free()
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{&withContext{ctx, bundle.Verify(f, d)}}, buf)
	return err == nil, ctx.Err()
}

// Tagged returns what is attached to a digest under a tag in the folder already, with
// its bytes; nil where there is nothing that is whole. Who signs what he writes adds to
// it, so that no signature is lost.
func (w *DirWriter) Tagged(ctx context.Context, subject image.Digest, tag string) (*bundle.Attachment, error) {
	if w.o.Replace {
		return nil, nil
	}
	if w.seen == nil {
		w.seen = map[string]digest.Digest{}
	}
	w.seen[tag] = "" // also where there is no folder yet: another process may make it meanwhile
	if !isThere(filepath.Join(w.path, indexName)) {
		return nil, nil
	}
	d, err := OpenDir(w.path)
	if err != nil {
		return nil, nil //nolint:nilerr // Begin says what is wrong with it
	}
	entry, _ := d.index().tagged(tag)
	w.seen[tag] = entry.Digest
	att, err := d.index().read(ctx, subject, tag)
	return att, errors.Join(err, d.Close())
}

// keep finds what is attached to the bundle that is in the folder already: what others
// have signed since stays. Where somebody has changed what Tagged returned, what was
// made of that would take it away.
func (w *DirWriter) keep(ctx context.Context, g *bundle.Graph) error {
	w.kept = nil
	if w.o.Replace || !w.dir.has(indexName) {
		return nil
	}
	d, err := OpenDir(w.path)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // nothing was written
	for tag, was := range w.seen {
		if is, _ := d.index().tagged(tag); is.Digest != was {
			return changed(w.path, tag)
		}
	}
	w.kept, err = d.index().about(ctx, g)
	return err
}

// about returns the entries of what is about a graph or a part of it, and is whole.
func (x *index) about(ctx context.Context, g *bundle.Graph) (out []ocispec.Descriptor, err error) {
	known := map[string]bool{}
	for _, n := range g.Manifests {
		known[n.Descriptor.Digest.String()] = true
	}
	for _, d := range x.entries {
		known[d.Digest.String()] = true // a signature may have an attestation
	}
	for _, d := range x.entries {
		of, fallback, ok := tagSubject(d.Annotations[ocispec.AnnotationRefName])
		if !ok && d.Annotations[ocispec.AnnotationRefName] == "" {
			of, _ = x.subject(ctx, d)
		}
		subject, err := image.ParseDigest(of)
		if err != nil || !known[of] {
			continue // an image, or a stranger
		}
		listed := []ocispec.Descriptor{d}
		if fallback {
			if listed, err = x.fallback(ctx, d); err != nil {
				continue
			}
		}
		damaged := slices.ContainsFunc(listed, func(d ocispec.Descriptor) bool {
			return x.checkWhole(ctx, subject, d) != nil
		})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !damaged {
			out = append(out, d)
		}
	}
	return out, nil
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

// partName is the name of a blob that is not whole yet.
func partName(d ocispec.Descriptor) string { return partialDir + "/" + d.Digest.Encoded() }

func (w *DirWriter) writeData() error {
	for _, s := range w.blobs {
		if s.done || s.d.Data == nil {
			continue
		}
		if err := w.dir.write(blobPrefix+s.d.Digest.Encoded(), s.d.Data); err != nil {
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
	f, err := w.dir.resume(partName(d))
	if err != nil {
		return err
	}
	err = fillPart(ctx, f, d, open)
	if err := errors.Join(err, storageFault("write", f.Name(), f.Close())); err != nil {
		return err
	}
	if err := w.dir.rename(partName(d), blobPrefix+d.Digest.Encoded()); err != nil {
		return err
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
	var wrong *bundle.DigestError
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
	text, err := indexJSON(withKept(entriesOf(w.graph), w.kept), w.graph.Base)
	if err != nil {
		return err
	}
	if err := w.dir.sync(blobPrefix); err != nil {
		return err
	}
	if err := w.dir.write(layoutName, []byte(layoutData)); err != nil {
		return err
	}
	if err := w.dir.write(indexName, text); err != nil {
		return err
	}
	return errors.Join(storageFault("remove", w.path, w.dir.root.RemoveAll(partialDir)), w.Close())
}

// withKept returns the entries of an index.json with those that stay.
func withKept(entries, kept []ocispec.Descriptor) []ocispec.Descriptor {
	var names, atts []ocispec.Descriptor
	tags := map[string]bool{}
	for _, d := range entries {
		tag := d.Annotations[ocispec.AnnotationRefName]
		if _, _, isTag := tagSubject(tag); tag == "" || isTag {
			atts, tags[tag] = append(atts, d), tag != ""
		} else {
			names = append(names, d)
		}
	}
	for _, d := range kept {
		if !tags[d.Annotations[ocispec.AnnotationRefName]] && !slices.ContainsFunc(atts, func(o ocispec.Descriptor) bool { return compareAttached(o, d) == 0 }) {
			atts = append(atts, d)
		}
	}
	slices.SortFunc(atts, compareAttached)
	return append(names, atts...)
}

// Close without Commit leaves what can be resumed.
func (w *DirWriter) Close() error {
	var errs []error
	if w.lock != nil {
		errs = append(errs, w.lock.Close())
	}
	if w.dir != nil {
		errs = append(errs, w.dir.close())
	}
	w.lock, w.dir = nil, nil
	return errors.Join(errs...)
}
