package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// attach adds signatures to the archive under its lock; the package comment gives the order of
// the steps.
func (a *tarFile) attach(ctx context.Context, atts []bundle.Attachment, was *index) error {
	path := behindLinks(a.path)
	dir, lock, err := lockPlace(path)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // nothing is written through it any more
	f, err := dir.reopen(filepath.Base(path))
	if err == nil {
		v := oneFile(f)
		v.path = path
		err = errors.Join(attachTo(ctx, v, dir, atts, was), v.Close())
	}
	return errors.Join(storageFault("sign", a.path, err), lock.release())
}

// lockPlace takes the lock of the archive at a path; of parts, that of the archive that they are.
func lockPlace(path string) (*folder, *archiveLock, error) {
	dir, base, err := folderOf(path)
	if err != nil {
		return nil, nil, err
	}
	lock, err := dir.lockArchive(base)
	if err != nil {
		return nil, nil, errors.Join(err, dir.Close())
	}
	return dir, lock, nil
}

// attachTo adds signatures to an archive that is locked.
func attachTo(ctx context.Context, v *storage, dir *folder, atts []bundle.Attachment, was *index) error {
	x, err := scanStorage(v)
	if err != nil {
		return err
	}
	t := x.tar
	if err := t.ownCopy(dir); err != nil {
		return err
	}
	isCut, err := t.cutUnnamed(ctx, x)
	if err != nil {
		return err
	}
	add, text, err := x.adding(atts, was, t.has, func(d ocispec.Descriptor) (bool, error) {
		there, whole, err := t.whole(ctx, d.Digest.Encoded())
		if err == nil && there && !whole {
			err = brokenFile(v.path, "it has an entry %s%s whose bytes are others: the archive was changed",
				blobPrefix, d.Digest.Encoded())
		}
		return whole, err
	})
	if err != nil {
		return err
	}
	tail := &Layout{size: endSize}
	for _, d := range add {
		tail.add(d)
	}
	if !t.fits(text) {
		return fault.Errorf(fault.Refused, "sign", v.path, "copy it with `vdo-bundle copy`, and sign the copy",
			"its index.json has no room for the signature")
	}
	return t.inPlace(v, dir, isCut, tail, text)
}

// whole tells whether an entry is there, and has the bytes that its name says. What has a blob's
// name, and what an interrupted run left of it, proves nothing.
func (t *tarball) whole(ctx context.Context, hex string) (there, whole bool, err error) {
	i, ok := t.byName[blobPrefix+hex]
	if !ok {
		return false, false, nil
	}
	err = discardAll(ctx, t, t.entries[i].blob())
	if fault.ReasonOf(err) == fault.Corrupt {
		return true, false, nil
	}
	return true, err == nil, err
}

// cutUnnamed drops the entries behind the last one that anything names: what an interrupted
// signing left, of which not all need be whole. It tells whether there are any.
func (t *tarball) cutUnnamed(ctx context.Context, x *index) (bool, error) {
	g, err := x.graph(ctx)
	if err != nil {
		return false, fmt.Errorf("%s: %w", t.path, err)
	}
	named := map[string]bool{}
	name := func(ds ...ocispec.Descriptor) {
		for _, d := range ds {
			named[blobPrefix+d.Digest.Encoded()] = true
		}
	}
	name(g.Order()...)
	name(x.entries...)
	list, _ := x.attachedTo(ctx, g)
	for _, a := range list {
		if a.err != nil {
			return false, ctx.Err() // what it names is not known, and left to verify to tell
		}
		name(a.read.Blobs...)
		if a.Digest != "" {
			name(a.Descriptor)
		}
	}
	from := len(t.entries)
	for from > 2 && isBlobName(t.entries[from-1].name) && !named[t.entries[from-1].name] {
		from--
		delete(t.byName, t.entries[from].name)
		t.end = t.entries[from].offset
	}
	isCut := from < len(t.entries)
	t.entries = t.entries[:from]
	return isCut, ctx.Err()
}

// ownCopy refuses a file that has the name of the copy of index.json and is none.
func (t *tarball) ownCopy(dir *folder) error {
	name := indexCopy(filepath.Base(t.path))
	if !dir.has(name) {
		return nil
	}
	data, err := readRegular(dir.at(name), maxIndexSize)
	if err == nil && len(data) == len(t.data) && json.Valid(data) {
		return nil // of a signing that was interrupted
	}
	return fault.Errorf(fault.Conflict, "sign", t.path,
		"move "+fault.Quote(dir.at(name))+" away, and run the same command again",
		"%s is in the way: a copy of index.json is kept there meanwhile", dir.at(name))
}

// fits reports whether an index.json can be written where the old one is: ours
// comes second and is padded to whole blocks.
func (t *tarball) fits(text []byte) bool {
	e := t.entries[t.byName[indexName]]
	return t.byName[indexName] == 1 && e.size%blockSize == 0 && int64(len(text)) < e.size
}

// inPlace appends, then writes index.json again. The order of the steps is that of
// the package comment: each leaves an archive that can be read.
func (t *tarball) inPlace(v *storage, dir *folder, isCut bool, tail *Layout, text []byte) error {
	if err := checkSpace(v.path, tail.size); err != nil {
		return err
	}
	if isCut { // what becomes the second block of the end goes first
		if err := v.writeBlocks(make([]byte, endSize), t.end, [2]int{blockSize, endSize},
			[2]int{0, blockSize}); err != nil {
			return err
		}
	}
	added := tail.bytes()
	n := len(added)
	// What an earlier run left behind the end goes first, so that zeros follow it.
	err := errors.Join(v.Truncate(t.end+endSize), v.Truncate(t.end+int64(n)))
	if err == nil {
		err = v.writeBlocks(added, t.end, [2]int{endSize, n}, [2]int{0, blockSize}, [2]int{blockSize, endSize})
	}
	if err != nil {
		return errors.Join(err, v.Truncate(t.end+endSize))
	}
	e := t.entries[t.byName[indexName]]
	data, name := spaced(text, e.size), indexCopy(filepath.Base(v.path))
	if err := dir.write(name, data); err != nil {
		return err
	}
	if _, err := v.WriteAt(data, e.dataOffset()); err != nil {
		return err
	}
	if err := v.Sync(); err != nil {
		return err
	}
	return dir.remove(name)
}

// writeBlocks writes ranges of b to their places from an offset on, one after the other.
func (v *storage) writeBlocks(b []byte, at int64, ranges ...[2]int) error {
	for _, r := range ranges {
		if _, err := v.WriteAt(b[r[0]:r[1]], at+int64(r[0])); err != nil {
			return err
		}
		if err := v.flush(); err != nil {
			return err
		}
	}
	return nil
}

// adding demands that attachments can be added: their tags name what they did in was, what they are
// about is there, and what is not there yet comes with its bytes. It returns the blobs to add, and
// the index.json that names them.
func (x *index) adding(atts []bundle.Attachment, was *index, has func(hex string) bool,
	whole func(ocispec.Descriptor) (bool, error)) (add []ocispec.Descriptor, text []byte, err error) {
	if err := sameTags(x.path, atts, was, x); err != nil {
		return nil, nil, err
	}
	lacks := map[string]ocispec.Descriptor{}
	for _, a := range atts {
		bad := func(reason fault.Reason, format string, args ...any) ([]ocispec.Descriptor, []byte, error) {
			return nil, nil, fault.Errorf(reason, "attach to", x.path, "sign the bundle that is there", format, args...)
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
				return nil, nil, err
			}
			there, err := whole(d)
			if err != nil {
				return nil, nil, err
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
	text, err = indexJSON(with(x.entries, atts...), x.base)
	return add, text, err
}
