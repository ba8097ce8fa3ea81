package archive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
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

// Can returns the capabilities of an archive. Parts cannot be signed.
func (a *Archive) Can() medium.Capabilities {
	can := medium.Capabilities{Base: a.x.base, CheckLayout: a.CheckLayout, Damage: a.Damage, Attach: a.Attach}
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

// writer writes a bundle under its own lock.
type writer interface {
	begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error)
	Put(ctx context.Context, d ocispec.Descriptor, open func(offset int64) (io.ReadCloser, error)) error
	Commit(ctx context.Context) error
}

// rewrite writes the archive again beside itself and replaces it.
func (a tarFile) rewrite(do func(w writer, open func() (*Archive, error)) error) error {
	path, err := userfile.Behind(a.location)
	if err != nil {
		return atomicfile.Fault("sign", a.location, err)
	}
	w := &FileWriter{path: path, o: Options{Replace: true}, again: true}
	if err := w.acquire(); err != nil {
		return err
	}
	if err := do(w, func() (*Archive, error) { return OpenFile(path) }); err != nil {
		return w.giveUp(atomicfile.Fault("sign", a.location, err))
	}
	return w.Close()
}

// rewrite writes new blobs into the directory, then index.json. It replaces files under their predictable names.
func (d *directory) rewrite(do func(w writer, open func() (*Archive, error)) error) error {
	w := &DirWriter{path: d.Path, o: Options{Replace: true}, again: true}
	if err := w.openDirectory(); err != nil {
		return errors.Join(err, w.Close())
	}
	err := errors.Join(do(w, func() (*Archive, error) { return OpenDir(d.Path) }), w.Close())
	_ = d.Root.Remove(partialDir) // only if empty
	return err
}

// unchanged returns a fault unless index.json is still was: signing would drop signatures that it has not read.
func (x *index) unchanged(was []byte) error {
	if bytes.Equal(x.data, was) {
		return nil
	}
	return fault.Errorf(fault.Conflict, "sign", x.path, "run the same command again: it adds to what is there now",
		"another process has changed it in the meantime")
}

// copyOf writes the bundle of another archive under the lock, verified like a pull. Its attachments stay, except
// those with the tags of atts.
func copyOf(ctx context.Context, w writer, x *index, atts ...bundle.Referrer) error {
	g, err := x.graph(ctx)
	if err == nil {
		g.Attachments, err = x.withAttached(ctx, g, atts)
	}
	if err != nil {
		return err
	}
	missing, err := w.begin(ctx, g)
	if err != nil {
		return err
	}
	err = run.Each(ctx, 2, len(missing), func(i int) error { // the disk is the bottleneck
		return w.Put(ctx, missing[i], func(offset int64) (io.ReadCloser, error) {
			return x.from.Fetch(ctx, missing[i], offset)
		})
	})
	if err != nil {
		return err
	}
	return w.Commit(ctx)
}

// withAttached returns the attachments of a graph, with atts in place of those with the same tags. An unreadable or
// unexpected attachment is a fault, as it would be lost.
func (x *index) withAttached(
	ctx context.Context, g *bundle.Graph, atts []bundle.Referrer,
) (all []bundle.Referrer, err error) {
	exists, err := x.checkEntries(ctx, g)
	if err != nil {
		return nil, err
	}
	for _, d := range x.entries {
		if name := nameOf(d); d.Digest == g.Root.Digest && name != "" && name != bundle.RootName {
			return nil, fault.Errorf(fault.Refused, "sign", x.path,
				"copy the bundle to a new archive with `vdo-bundle copy`, and sign that",
				"index.json names %s, which a signed archive would not have", name)
		}
	}
	for _, a := range atts {
		isSubject := func(b bundle.Referrer) bool { return b.Node.Descriptor.Digest.String() == a.Subject.String() }
		if !slices.Contains(g.Subjects(), a.Subject) && !slices.ContainsFunc(exists, isSubject) {
			return nil, fault.Errorf(fault.NotFound, "attach to", x.path, "sign the bundle that is there",
				"it holds no %s", a.Subject)
		}
	}
	for _, a := range exists {
		isReplaced := func(b bundle.Referrer) bool {
			return b.Tag != "" && b.Tag == a.Tag || compareAttached(entryOf(b), entryOf(a)) == 0
		}
		if !slices.ContainsFunc(slices.Concat(atts, all), isReplaced) {
			all = append(all, a)
		}
	}
	return append(all, atts...), ctx.Err()
}
