package archive

import (
	"context"
	"io"
	"maps"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// attach writes the archive again, with more signatures, and takes its place.
func (a *tarFile) attach(ctx context.Context, atts []bundle.Attachment, was *index) error {
	w := &FileWriter{path: behindLinks(a.path), o: Options{Replace: true}, again: true}
	if err := w.acquire(); err != nil {
		return err
	}
	if err := w.writeAgain(ctx, atts, was); err != nil {
		return w.giveUp(storageFault("sign", a.path, err))
	}
	return w.Close()
}

// writeAgain writes the archive that has the writer's name, with more signatures.
func (w *FileWriter) writeAgain(ctx context.Context, atts []bundle.Attachment, was *index) error {
	old := &tarFile{path: w.path}
	x, err := old.read()
	if err != nil {
		return err
	}
	defer old.Close() //nolint:errcheck // nothing was written
	g, err := x.graph(ctx)
	if err == nil {
		g.Attachments, err = x.withAttached(ctx, g, atts, was)
	}
	if err != nil {
		return err
	}
	if err := w.layOut(ctx, g); err != nil {
		return err
	}
	at, err := w.begin()
	if err != nil {
		return err
	}
	if err := w.keepMode(x.tar.v.files[0]); err != nil {
		return err
	}
	missing, err := w.missing(ctx, at)
	if err != nil {
		return err
	}
	for _, d := range missing {
		open := func(offset int64) (io.ReadCloser, error) { return x.tar.FetchFrom(ctx, d, offset) }
		if err := w.Put(ctx, d, open); err != nil {
			return err
		}
	}
	return w.Commit(ctx)
}

// withAttached returns what is attached to a graph, with more in the place of what had their tags.
// What is there and cannot be read, or has no place in an archive, is a fault: it would be lost.
func (x *index) withAttached(
	ctx context.Context, g *bundle.Graph, atts []bundle.Attachment, was *index,
) (all []bundle.Attachment, err error) {
	isHeld := func(d ocispec.Descriptor) (bool, error) { return d.Data == nil && x.tar.has(d.Digest.Encoded()), nil }
	if _, err := x.adding(atts, was, x.tar.has, isHeld); err != nil {
		return nil, err
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

// adding demands that attachments can be added: their tags name what they did in was, what they are
// about is there, and what is not there yet comes with its bytes. It returns the blobs to add.
func (x *index) adding(atts []bundle.Attachment, was *index, has func(hex string) bool,
	whole func(ocispec.Descriptor) (bool, error)) (add []ocispec.Descriptor, err error) {
	if err := sameTags(x.path, atts, was, x); err != nil {
		return nil, err
	}
	lacks := map[string]ocispec.Descriptor{}
	for _, a := range atts {
		bad := func(reason fault.Reason, format string, args ...any) ([]ocispec.Descriptor, error) {
			return nil, fault.Errorf(reason, "attach to", x.path, "sign the bundle that is there", format, args...)
		}
		if !has(a.Subject.Hex()) {
			return bad(fault.NotFound, "it holds no %s", a.Subject)
		}
		if of, _, ok := tagSubject(a.Tag); a.Tag != "" && (!ok || of != a.Subject.String()) {
			return bad(fault.InvalidInput, "%.100q is not a tag of an attachment of %s", a.Tag, a.Subject)
		}
		node := a.Node.Descriptor
		node.Data = a.Node.Data
		for _, d := range append(slices.Clone(a.Blobs), node) {
			if err := bundle.CheckDescriptor(d); err != nil {
				return nil, err
			}
			there, err := whole(d)
			if err != nil {
				return nil, err
			}
			if there {
				continue
			}
			if int64(len(d.Data)) != d.Size || image.DigestOf(d.Data).Hex() != d.Digest.Encoded() {
				return bad(fault.InvalidInput, "the bytes of its part %s are not at hand", d.Digest)
			}
			lacks[d.Digest.Encoded()] = d
		}
	}
	for _, hex := range slices.Sorted(maps.Keys(lacks)) {
		add = append(add, lacks[hex])
	}
	return add, nil
}
