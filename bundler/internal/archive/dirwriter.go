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

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// DirWriter writes an OCI image layout into a folder. Begin comes first; Put may
// be called concurrently.
type DirWriter struct {
	path  string
	o     Options
	dir   *folder
	lock  *os.File
	graph *bundle.Graph
	blobs map[string]*dirSlot
	was   *index               // when the writer was made
	kept  []ocispec.Descriptor // entries of index.json that stay
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
	w := &DirWriter{path: path, o: o, was: &index{}}
	if d, err := OpenDir(path); err == nil { // else there is none, or Begin says what is wrong with it
		w.was = d.index()
		_ = d.Close() // nothing was written
	}
	return w, nil
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

// checkFolder refuses a folder of something else.
func (w *DirWriter) checkFolder(g *bundle.Graph) error {
	bad := func(why string) error {
		return &fault.Error{Reason: fault.Conflict, Op: "write", Subject: w.path,
			Hint: "name another folder, that is empty or not there yet", Err: errors.New(why)}
	}
	list, err := os.ReadDir(w.path)
	if errors.Is(err, fs.ErrNotExist) || w.o.Replace {
		return nil
	}
	if err != nil {
		return storageFault("write", w.path, err)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(list, func(e fs.DirEntry) bool { return e.Name() == name })
	}
	if len(list) == 0 {
		return nil
	}
	if !has(indexName) {
		if has(partialDir) || has("blobs") {
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

// partName is the name of a blob that is not whole yet.
func partName(d ocispec.Descriptor) string { return partialDir + "/" + d.Digest.Encoded() }

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
	text, err := indexJSON(with(slices.Concat(w.graph.Names, w.kept), w.graph.Attachments...), w.graph.Base)
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
	return errors.Join(w.sweep(), storageFault("remove", w.path, w.dir.root.RemoveAll(partialDir)), w.Close())
}

// sweep removes the blobs of what was replaced.
func (w *DirWriter) sweep() error {
	if !w.o.Replace {
		return nil
	}
	list, err := os.ReadDir(filepath.Join(w.path, blobPrefix))
	if err != nil {
		return storageFault("read", w.path, err)
	}
	var errs []error
	for _, e := range list {
		if w.blobs[e.Name()] == nil && isBlobName(blobPrefix+e.Name()) {
			errs = append(errs, w.dir.remove(blobPrefix+e.Name()))
		}
	}
	return errors.Join(errs...)
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
