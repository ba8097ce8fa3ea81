package archive

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"regexp"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
)

// Archive is a readable bundle on disk. It does not see later changes. Its methods are safe for concurrent use.
type Archive struct {
	x *index
	form
}

// form is how a bundle is stored: as a tar in one file or in parts, or as a directory.
type form interface {
	// rewrite locks the archive and lets do write its bundle again in place.
	rewrite(do func(w writer, open func() (*Archive, error)) error) error
	Close() error
}

// Root returns the descriptor of the bundle's root.
func (a *Archive) Root(ctx context.Context) (ocispec.Descriptor, error) { return a.x.root(ctx) }

// Fetch returns the bytes of a descriptor from an offset, not verified.
func (a *Archive) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	return a.x.from.Fetch(ctx, d, offset)
}

// Attachments returns the manifests of signatures and other referrers of subject.
func (a *Archive) Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	return a.x.attachments(ctx, subject)
}

// Base returns the base of a delta; nil for a whole bundle.
func (a *Archive) Base() *bundle.Base { return a.x.base }

// Can returns the capabilities of an archive. Parts cannot be signed.
func (a *Archive) Can() medium.Capabilities {
	can := medium.Capabilities{Base: a.Base(), CheckLayout: a.CheckLayout, Damage: a.Damage, Attach: a.Attach}
	if t := a.x.tar; t != nil && t.v.list != nil {
		can.Attach = nil
	}
	return can
}

// Attach adds signatures, all at once, in place of those with the same tags; the blobs of atts must carry data. It
// rewrites and verifies the bundle, and fails if index.json has changed since opening. Reopen to see the result.
func (a *Archive) Attach(ctx context.Context, atts ...bundle.Referrer) error {
	if err := ctx.Err(); err != nil || len(atts) == 0 {
		return err
	}
	return a.rewrite(func(w writer, open func() (*Archive, error)) error {
		now, err := open()
		if err != nil {
			return err
		}
		defer now.Close() //nolint:errcheck // nothing was written
		if err := now.x.unchanged(a.x.data); err != nil {
			return err
		}
		return copyOf(ctx, w, now.x, atts...)
	})
}

// layoutForm matches the oci-layout of every tool.
var layoutForm = regexp.MustCompile(`"imageLayoutVersion"\s*:\s*"1\.0\.0"`)

// readIndex checks oci-layout and returns the bytes of index.json.
func readIndex(path string, small func(name string, limit int64) ([]byte, error)) ([]byte, error) {
	layout, err := small(layoutName, 4096)
	if err != nil {
		return nil, err
	}
	if !layoutForm.Match(layout) {
		return nil, brokenFile(path, "oci-layout is not that of an OCI image layout 1.0.0")
	}
	return small(indexName, maxIndexSize)
}

// checkRead refuses descriptors that no archive can hold.
func checkRead(ctx context.Context, d ocispec.Descriptor) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return bundle.CheckDescriptor(d)
}

func notHeld(path string, d ocispec.Descriptor) error {
	return fault.Errorf(fault.NotFound, "read", path, "make the bundle again with `vdo-bundle pull`", "it holds no %s",
		d.Digest)
}

// OpenDir opens a directory for reading. It does not follow links out of it.
func OpenDir(path string) (*Archive, error) {
	dir, err := atomicfile.Open(path)
	if err != nil {
		return nil, openFault(path, err)
	}
	d := &directory{dir}
	x, err := d.read()
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return &Archive{x, d}, nil
}

func (d *directory) read() (*index, error) {
	data, err := readIndex(d.Path, d.small)
	if err != nil {
		return nil, err
	}
	return parseIndex(d.Path, data, d)
}

func (d *directory) small(name string, limit int64) ([]byte, error) {
	f, err := d.openToRead(name)
	if errors.Is(err, fs.ErrNotExist) && d.Has(partialDir) && !d.Has(indexName) {
		return nil, fault.Errorf(fault.Incomplete, "open", d.Path, "run the command that wrote it again: it resumes",
			"an interrupted run has left it incomplete")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notBundle(d.Path, "it is not an OCI image layout: it has no %s", name)
	}
	if err != nil {
		return nil, atomicfile.Fault("open", d.At(name), err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	if err := mustBeRegular(f); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, brokenFile(d.At(name), "it has more than %d bytes", limit)
	}
	return data, atomicfile.Fault("read", d.At(name), err)
}

func (d *directory) Fetch(ctx context.Context, b ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	if err := checkRead(ctx, b); err != nil {
		return nil, err
	}
	f, err := d.openToRead(blobName(b))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notHeld(d.Path, b)
	}
	if err == nil {
		if err = d.checkBlob(f, b); err == nil {
			_, err = f.Seek(offset, io.SeekStart)
		}
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return nil, atomicfile.Fault("read", d.At(blobName(b)), err)
	}
	return f, nil
}

func (d *directory) checkBlob(f *os.File, b ocispec.Descriptor) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return brokenFile(d.Path, "%s is not a regular file", b.Digest)
	case info.Size() < b.Size:
		return incomplete(d.Path, "%d of the %d bytes of %s are missing", b.Size-info.Size(), b.Size, b.Digest)
	case info.Size() > b.Size:
		return brokenFile(d.Path, "%s has %d bytes, not %d", b.Digest, info.Size(), b.Size)
	}
	return nil
}

// tarFile is an archive in one file or in parts, open for reading.
type tarFile struct{ *storage }

// OpenFile opens an archive and reads its headers and index.json. For an archive in parts, path is the parts file, or
// the archive's name if only its parts file exists.
func OpenFile(path string) (*Archive, error) {
	v, err := openStorage(path)
	if err != nil {
		return nil, err
	}
	x, err := scanStorage(v)
	if err != nil {
		if v.list != nil { // damaged parts may be the reason
			err = fault.Join(err, damaged(context.Background(), v))
		}
		return nil, errors.Join(err, v.Close())
	}
	return &Archive{x, tarFile{v}}, nil
}

func scanStorage(v *storage) (*index, error) {
	size, err := v.size()
	if err != nil {
		return nil, err
	}
	t, err := scanTar(v.path, v, size)
	if err != nil {
		return nil, err
	}
	t.v = v
	data, err := readIndex(v.path, t.small)
	if err != nil {
		return nil, err
	}
	x, err := parseIndex(v.path, data, t)
	if err == nil {
		x.tar = t
	}
	return x, err
}
