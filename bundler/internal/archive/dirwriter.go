package archive

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
)

// partialDir holds the blobs of a folder that are not whole yet.
const partialDir = ".partial"

// DirWriter writes an OCI image layout into a folder. Begin comes first; Put may
// be called concurrently.
type DirWriter struct {
	path  string
	o     Options
	dir   *folder
	lock  *os.File
	graph *bundle.Graph
	blobs slots
}

// CreateDir begins a folder; nothing is written before Begin. A folder that holds anything but what
// an interrupted run left is refused, unless it may be replaced: then index.json is, at the end.
func CreateDir(path string, o Options) (*DirWriter, error) {
	if err := checkParent(path); err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return nil, fault.Errorf(fault.Storage, "write", path, "name a folder, or write a file without oci:", "it is a file")
	}
	return &DirWriter{path: path, o: o}, nil
}

// Can tells what the writer of a folder can do besides being written to.
func (w *DirWriter) Can() medium.Capabilities {
	return medium.Capabilities{Preflight: w.Preflight}
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
	if err := w.checkFolder(w.dir); err != nil {
		return nil, err
	}
	for _, dir := range []string{blobPrefix, partialDir} {
		if err := w.dir.mkdir(dir); err != nil {
			return nil, err
		}
	}
	out, need, err := w.missing(ctx, g, w.dir)
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

// checkFolder refuses a folder that holds a bundle, or something else.
func (w *DirWriter) checkFolder(in *folder) error {
	why := "it is not empty, and no OCI image layout"
	list, err := os.ReadDir(w.path)
	switch {
	case err != nil:
		return storageFault("write", w.path, err)
	case len(list) == 0 || w.o.Replace:
		return nil
	case in.has(indexName):
		why = "it is there already"
	case in.has(partialDir) || in.has("blobs"): // an interrupted run; blobs are named by digest, whoever wrote them
		return nil
	}
	return fault.Errorf(fault.Conflict, "write", w.path,
		"name a folder that is empty or not there yet, or write into it with --replace", "%s", why)
}

// missing makes the slots, and returns what a folder (nil: there is none) does not have yet, and
// the bytes that it needs.
func (w *DirWriter) missing(ctx context.Context, g *bundle.Graph, in *folder) (out []ocispec.Descriptor, need int64,
	err error) {
	var all []*slot
	for _, d := range g.Order() {
		all = append(all, &slot{entry: entry{d: d, size: d.Size}, note: func(*slot) error { return nil }})
	}
	w.blobs, err = takeStock(all, func(s *slot) (err error) {
		s.done, err = in.holds(ctx, s.entry.d)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	for _, s := range all {
		d := s.entry.d
		if s.done {
			continue
		}
		need += padded(d.Size)
		if d.Data == nil {
			out = append(out, d)
		}
	}
	return out, need, nil
}

// holds tells whether a blob is in a folder with its bytes.
func (d *folder) holds(ctx context.Context, b ocispec.Descriptor) (bool, error) {
	if d == nil {
		return false, nil
	}
	name := blobPrefix + b.Digest.Encoded()
	if info, err := d.root.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return false, nil //nolint:nilerr // it is fetched
	}
	err := discardAll(ctx, d, b)
	return err == nil, ctx.Err()
}

func (w *DirWriter) writeData() error {
	for _, s := range w.blobs {
		if s.done || s.entry.d.Data == nil {
			continue
		}
		if err := w.dir.write(blobPrefix+s.entry.d.Digest.Encoded(), s.entry.d.Data); err != nil {
			return err
		}
		s.done = true
	}
	return nil
}

// partName is the name of a blob that is not whole yet.
func partName(d ocispec.Descriptor) string { return partialDir + "/" + d.Digest.Encoded() }

// Put writes one blob, verified as it streams: under another name, flushed, then
// renamed.
func (w *DirWriter) Put(ctx context.Context, d ocispec.Descriptor,
	open func(offset int64) (io.ReadCloser, error)) error {
	s, err := w.blobs.take(w.path, d)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.done {
		return nil
	}
	f, err := w.dir.create(partName(d), 0o644)
	if err != nil {
		return err
	}
	s.f, s.path = f, f.Name()
	s.reset()
	if err = s.put(ctx, open); err == nil {
		err = f.Sync()
	}
	if err = storageFault("write", f.Name(), errors.Join(err, f.Close())); err == nil {
		err = w.dir.rename(partName(d), blobPrefix+d.Digest.Encoded())
	}
	s.done = err == nil
	return err
}

// Commit writes oci-layout and, last, index.json, once everything is there.
func (w *DirWriter) Commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.graph == nil {
		return fault.Errorf(fault.Internal, "write", w.path, "", "it was not begun")
	}
	if err := w.blobs.complete(w.path); err != nil {
		return err
	}
	text, err := indexJSON(entriesOf(w.graph), w.graph.Base)
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

// Close without Commit leaves the blobs that are whole for a later run.
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

// Plan tells what Begin would return, without writing anything, and refuses what
// Begin would refuse.
func (w *DirWriter) Plan(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in, err := openFolder(w.path)
	if err == nil {
		defer in.Close() //nolint:errcheck // only read
		err = w.checkFolder(in)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out, need, err := (&DirWriter{path: w.path, o: w.o}).missing(ctx, g, in)
	if err != nil {
		return nil, err
	}
	return out, checkSpace(w.existing(), need)
}

// existing is a path in the folder, or in the one that it will be made in.
func (w *DirWriter) existing() string {
	if isThere(w.path) {
		return filepath.Join(w.path, indexName)
	}
	return w.path
}

// Preflight makes sure that files can be written where the folder is, or will be.
func (w *DirWriter) Preflight(context.Context) error { return writable(filepath.Dir(w.existing())) }
