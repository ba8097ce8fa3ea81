package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

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

	attaching sync.Mutex
	was       *index // as the folder was opened, with what this Dir attached since: what is attached next was made of it
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
	d.was = d.x
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
	return readAtMost(filepath.Join(d.path, name), f, limit)
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
		return err
	}
	_, err = checkEntries(ctx, d.path, x, g)
	return fault.Join(g.LeaveTo(x.base), err)
}

// Base returns what a delta leaves out; nil of a whole bundle.
func (d *Dir) Base() *bundle.Base { return d.index().base }

// Attach adds signatures, in the place of what had their tags: their blobs, then
// index.json. Nobody else changes the folder at that moment, and what has a tag has
// to be what it was when the folder was opened, or what was attached since through the
// same Dir: the signature was joined with that.
func (d *Dir) Attach(ctx context.Context, atts ...bundle.Attachment) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d.attaching.Lock()
	defer d.attaching.Unlock()
	in := &folder{path: d.path, root: d.root}
	lock, err := in.lockSelf()
	if err != nil {
		return err
	}
	err = d.attach(ctx, in, atts)
	if err := errors.Join(err, lock.Close()); err != nil {
		return err
	}
	d.was = &index{entries: with(d.was.entries, atts...)}
	return d.read()
}

// attach does so under the lock. What lies under the name of one of its blobs, which
// anybody can predict, is that blob only if it has its bytes; else it is replaced.
func (d *Dir) attach(ctx context.Context, in *folder, atts []bundle.Attachment) error {
	x, err := d.readIndex()
	if err != nil {
		return err
	}
	if err := sameTags(d.path, atts, d.was, x); err != nil {
		return err
	}
	has := func(hex string) bool { _, err := d.root.Stat(blobPrefix + hex); return err == nil }
	whole := func(b ocispec.Descriptor) (bool, error) { return wholeIn(ctx, d.root, b) }
	add, err := checkAttachments(d.path, atts, has, whole)
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
	text, err := indexJSON(with(x.entries, atts...), x.base)
	if err != nil {
		return err
	}
	return in.write(indexName, text)
}
