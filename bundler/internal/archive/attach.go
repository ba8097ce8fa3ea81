package archive

import (
	"bytes"
	"context"
	"io"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
)

// attach writes the archive again, with more signatures, and takes its place.
func (a tarFile) attach(ctx context.Context, atts []bundle.Attachment, was []byte) error {
	path, err := userfile.Behind(a.place)
	if err != nil {
		return storageFault("sign", a.place, err)
	}
	w := &FileWriter{path: path, o: Options{Replace: true}, again: true}
	if err := w.acquire(); err != nil {
		return err
	}
	if err := w.writeAgain(ctx, atts, was); err != nil {
		return w.giveUp(storageFault("sign", a.place, err))
	}
	return w.Close()
}

// writeAgain writes the archive that has the writer's name, with more signatures.
func (w *FileWriter) writeAgain(ctx context.Context, atts []bundle.Attachment, was []byte) error {
	old, err := OpenFile(w.path)
	if err != nil {
		return err
	}
	defer old.Close() //nolint:errcheck // nothing was written
	if err := old.x.unchanged(was); err != nil {
		return err
	}
	return w.copyOf(ctx, old.x, atts...)
}

// unchanged demands that index.json is what it was: who signs joins what he has read, and would
// take away what he has not.
func (x *index) unchanged(was []byte) error {
	if bytes.Equal(x.data, was) {
		return nil
	}
	return fault.Errorf(fault.Conflict, "sign", x.path, "run the same command again: it adds to what is there now",
		"another process has changed it in the meantime")
}

// copyOf writes the bundle of another archive, under the lock, verified as a pull verifies it. What is
// attached to it stays, but for what has the tags of atts.
func (w *FileWriter) copyOf(ctx context.Context, x *index, atts ...bundle.Attachment) error {
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
	err = run.Each(ctx, 2, len(missing), func(i int) error { // the disk is what is slow
		return w.Put(ctx, missing[i], func(offset int64) (io.ReadCloser, error) {
			return x.tar.Fetch(ctx, missing[i], offset)
		})
	})
	if err != nil {
		return err
	}
	return w.Commit(ctx)
}

// withAttached returns what is attached to a graph, with more in the place of what had their tags.
// What is there and cannot be read, or has no place in an archive, is a fault: it would be lost.
func (x *index) withAttached(
	ctx context.Context, g *bundle.Graph, atts []bundle.Attachment,
) (all []bundle.Attachment, err error) {
	for _, a := range atts {
		if !x.tar.has(a.Subject.Hex()) {
			return nil, noSubject(x.path, a)
		}
	}
	there, err := x.checkEntries(ctx, g)
	if err != nil {
		return nil, err
	}
	for _, d := range x.entries {
		if name := nameOf(d); name == bundle.NoteTag(g.Root.Digest.Encoded()) {
			return nil, fault.Errorf(fault.Refused, "sign", x.path,
				"copy the bundle to a new archive with `vdo-bundle copy`, and sign that",
				"index.json names %s, which a signed archive would not have", name)
		}
	}
	for _, a := range there {
		isReplaced := func(b bundle.Attachment) bool {
			return b.Tag != "" && b.Tag == a.Tag || compareAttached(entryOf(b), entryOf(a)) == 0
		}
		if !slices.ContainsFunc(slices.Concat(atts, all), isReplaced) {
			all = append(all, a)
		}
	}
	return append(all, atts...), ctx.Err()
}

// noSubject is of what is attached to nothing.
func noSubject(path string, a bundle.Attachment) error {
	return fault.Errorf(fault.NotFound, "attach to", path, "sign the bundle that is there", "it holds no %s", a.Subject)
}
