package archive

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// partialDir is the subdirectory for incomplete blobs.
const partialDir = ".partial"

func halfName(d ocispec.Descriptor) string { return partialDir + "/" + d.Digest.Encoded() }

// DirWriter writes an OCI image layout into a directory. Call Begin first; then Put is safe for concurrent use.
type DirWriter struct {
	path  string
	o     Options
	again bool // rewrites the existing bundle: unnamed blobs stay
	dir   *directory
	lock  *os.File
	graph *bundle.Graph

	mu    sync.Mutex
	lacks map[digest.Digest]bool // the blobs still to put
}

// CreateDir prepares a directory; Begin writes first. It refuses a directory with other content than an interrupted
// run's. With o.Replace it takes a bundle's too, and replaces index.json at the end.
func CreateDir(path string, o Options) (*DirWriter, error) {
	dir := path
	switch info, err := os.Stat(path); {
	case err != nil:
		dir = filepath.Dir(path)
	case !info.IsDir():
		return nil, fault.Errorf(fault.Storage, "write", path, "name a folder, or write a file without oci:", "it is a file")
	}
	if err := checkDirectory(dir); err != nil {
		return nil, err
	}
	w := &DirWriter{path: path, o: o}
	return w, w.checkEmpty()
}

// Can returns no capabilities.
func (w *DirWriter) Can() medium.Capabilities { return medium.Capabilities{} }

// Ready returns a fault if a new directory lacks room for that many bytes.
func (w *DirWriter) Ready(_ context.Context, bytes int64) error {
	if exists(w.path) { // it may hold some of the blobs
		return nil
	}
	return checkSpace(w.path, bytes)
}

// Begin creates the directory, writes the data that the graph carries, and returns the blobs still to put. It hashes
// existing blobs first.
func (w *DirWriter) Begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	err := w.openDirectory()
	var missing []ocispec.Descriptor
	if err == nil {
		missing, err = w.begin(ctx, g)
	}
	if err != nil {
		err = errors.Join(err, w.Close())
	}
	return missing, err
}

func (w *DirWriter) begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	if err := errors.Join(w.checkEmpty(), w.checkReplaced(ctx)); err != nil {
		return nil, err
	}
	for _, dir := range []string{partialDir, blobPrefix} { // see checkEmpty
		if err := w.dir.Mkdir(dir); err != nil {
			return nil, err
		}
	}
	order := g.Order()
	exists := make([]bool, len(order))
	err := run.Each(ctx, runtime.GOMAXPROCS(0), len(order), func(i int) (err error) {
		exists[i], err = w.dir.holds(ctx, order[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	var lacks []ocispec.Descriptor
	for i, d := range order {
		if exists[i] {
			continue
		}
		lacks = append(lacks, d)
		if err := w.dir.Remove(halfName(d)); err != nil { // it would take space twice
			return nil, err
		}
	}
	if err := checkSpace(filepath.Join(w.path, indexName), blockSize*int64(len(lacks))+bundle.SizeOf(lacks)); err != nil {
		return nil, err
	}
	w.graph, w.lacks = g, map[digest.Digest]bool{}
	var missing []ocispec.Descriptor
	for _, d := range lacks {
		if d.Data == nil {
			missing, w.lacks[d.Digest] = append(missing, d), true
		} else if err := w.dir.Replace(blobName(d), d.Data, 0o644); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

// openDirectory creates, opens and locks the directory, until Close.
func (w *DirWriter) openDirectory() (err error) {
	if err := os.Mkdir(w.path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return atomicfile.Fault("write", w.path, err)
	}
	if w.dir, err = openDirectory(w.path); err != nil {
		return err
	}
	if w.lock, err = w.dir.Root.Open("."); err != nil {
		return atomicfile.Fault("lock", w.path, err)
	}
	if !lockFile(w.lock) {
		return busy(w.path)
	}
	return nil
}

// checkEmpty refuses a directory that holds a bundle or unknown files, such as another tool's blobs.
func (w *DirWriter) checkEmpty() error {
	has := func(name string) bool { return exists(filepath.Join(w.path, name)) }
	why := "it is not empty, and no OCI image layout"
	list, err := os.ReadDir(w.path)
	isOfFileSystem := func(e fs.DirEntry) bool { return e.Name() == "lost+found" }
	list = slices.DeleteFunc(list, isOfFileSystem)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return atomicfile.Fault("write", w.path, err)
	case len(list) == 0, w.o.Replace && has(indexName):
		return nil
	case has(indexName):
		why = "it is there already"
	case has(partialDir): // an interrupted run
		return nil
	}
	hint := "name a folder that is empty or not there yet"
	if !w.o.Replace {
		hint += ", or replace a bundle with --replace"
	}
	return fault.Errorf(fault.Conflict, "write", w.path, hint, "%s", why)
}

// checkReplaced refuses to replace a layout with other images than a bundle's, whose blobs would be lost. A damaged
// bundle may be replaced.
func (w *DirWriter) checkReplaced(ctx context.Context) error {
	if !w.o.Replace || w.again || !exists(filepath.Join(w.path, indexName)) {
		return nil
	}
	x, err := w.dir.read()
	if err == nil {
		_, err = x.root(ctx)
	}
	if err == nil {
		if g, damaged := x.graph(ctx); damaged == nil {
			_, err = x.checkEntries(ctx, g)
		}
	}
	if r := fault.ReasonOf(err); err == nil || r == fault.Incomplete {
		return nil
	}
	return fault.Errorf(fault.Conflict, "replace", w.path, "name another folder, or move its images away first", "%w", err)
}

// holds reports whether a directory has a blob with the right bytes.
func (d *directory) holds(ctx context.Context, b ocispec.Descriptor) (bool, error) {
	if info, err := d.Root.Lstat(blobName(b)); err != nil || !info.Mode().IsRegular() {
		return false, nil //nolint:nilerr // it is fetched
	}
	err := discardAll(ctx, d, b)
	return err == nil, ctx.Err()
}

// Put writes one blob, verified as it streams, under another name; it flushes, then renames it.
func (w *DirWriter) Put(ctx context.Context, d ocispec.Descriptor,
	open func(offset int64) (io.ReadCloser, error)) error {
	rc, err := open(0)
	if err != nil {
		return err
	}
	defer rc.Close() //nolint:errcheck // nothing was written through it
	name := halfName(d)
	f, err := w.dir.Create(name, 0o644)
	if err != nil {
		return err
	}
	if _, err = pour(ctx, f, bundle.Verify(rc, d), d.Size); err == nil {
		err = f.Sync()
	}
	if err = atomicfile.Fault("write", f.Name(), errors.Join(err, f.Close())); err == nil {
		err = w.dir.Rename(name, blobName(d))
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.lacks, d.Digest)
	return nil
}

// Commit writes oci-layout and, last, index.json, once all blobs exist.
func (w *DirWriter) Commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.graph == nil {
		return fault.Errorf(fault.Internal, "write", w.path, "", "it was not begun")
	}
	for lacking := range w.lacks {
		return lacksBlob(w.path, lacking)
	}
	text := indexJSON(with(w.graph.Names, w.graph.Attachments...), w.graph.Base)
	if err := w.dir.Sync(blobPrefix); err != nil {
		return err
	}
	if err := w.dir.Replace(layoutName, []byte(layoutData), 0o644); err != nil {
		return err
	}
	if err := w.dir.Replace(indexName, text, 0o644); err != nil {
		return err
	}
	return errors.Join(w.sweep(), atomicfile.Fault("remove", w.path, w.dir.Root.RemoveAll(partialDir)), w.Close())
}

// sweep removes all other blobs: those of the replaced bundle, or of an interrupted run of another one.
func (w *DirWriter) sweep() error {
	if w.again {
		return nil
	}
	list, err := os.ReadDir(filepath.Join(w.path, blobPrefix))
	if err != nil {
		return atomicfile.Fault("read", w.path, err)
	}
	keep := map[string]bool{}
	for _, d := range w.graph.Order() {
		keep[d.Digest.Encoded()] = true
	}
	var errs []error
	for _, e := range list {
		if !keep[e.Name()] && isBlobName(blobPrefix+e.Name()) {
			errs = append(errs, w.dir.Remove(blobPrefix+e.Name()))
		}
	}
	return errors.Join(errs...)
}

// Close without Commit leaves complete blobs for a later run.
func (w *DirWriter) Close() error {
	var errs []error
	if w.lock != nil {
		errs = append(errs, w.lock.Close())
	}
	if w.dir != nil {
		errs = append(errs, w.dir.Close())
	}
	w.lock, w.dir = nil, nil
	return errors.Join(errs...)
}
