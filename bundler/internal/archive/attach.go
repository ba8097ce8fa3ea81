package archive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

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
