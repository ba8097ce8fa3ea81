package archive

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// attachToParts adds signatures to an archive in parts; the package comment gives
// the order of the steps. was is what its index.json said when it was read.
func attachToParts(ctx context.Context, path string, atts []bundle.Attachment, was *index) error {
	dir, lock, err := lockParts(path)
	if err != nil {
		return err
	}
	defer dir.close() //nolint:errcheck // nothing is written through it any more
	v, err := openVolumes(path, dir)
	if err == nil {
		err = errors.Join(v.attach(ctx, atts, was), v.Close())
	}
	return errors.Join(storageFault("sign", path, err), lock.release())
}

// lockParts takes the lock of the archive whose parts a parts file lists, whatever the
// parts file is called: whoever writes these parts has that one.
func lockParts(path string) (*folder, *archiveLock, error) {
	l, err := readParts(path)
	if err != nil {
		return nil, nil, err
	}
	dir, _, err := folderOf(path)
	if err != nil {
		return nil, nil, err
	}
	lock, err := dir.lockArchive(l.File())
	if err != nil {
		return nil, nil, errors.Join(err, dir.close())
	}
	now, err := readParts(path) // as it is under the lock
	if err == nil && now.File() != l.File() {
		err = busy(path)
	}
	if err != nil {
		return nil, nil, errors.Join(err, lock.release(), dir.close())
	}
	return dir, lock, nil
}

func (v *volumes) attach(ctx context.Context, atts []bundle.Attachment, was *index) error {
	last := int(v.list.Count()) - 1
	err := damaged(ctx, v, func(i int) bool { // what an interrupted run changed has no sum yet
		return i <= last && (!v.list.Changing || (i != 0 && i != last))
	})
	if err != nil {
		return err
	}
	if err := v.roomFor(atts); err != nil {
		return err
	}
	if is, err := scanStorage(v.path, v); err != nil {
		return err
	} else if err := sameTags(v.path, atts, was, is.index); err != nil {
		return err
	}
	v.list.Changing = true
	if err := v.dir.write(filepath.Base(v.partsPath), v.list.Text()); err != nil {
		return err
	}
	if err := attachTo(ctx, v.dir, v.path, v, atts, was); err != nil {
		return err
	}
	size, err := storageSize(v.path, v)
	if err != nil {
		return err
	}
	l, err := parts.New(v.list.File(), size, v.volume, v.list.Recovery())
	if err != nil {
		return err
	}
	return v.seal(ctx, l)
}

// roomFor refuses, before anything is changed, what would make too many parts, and files
// in the way of new ones: once the list says "changing", what has a part's name is a part.
func (v *volumes) roomFor(atts []bundle.Attachment) error {
	size, err := storageSize(v.path, v)
	if err != nil {
		return err
	}
	for _, a := range atts {
		for _, d := range append(slices.Clone(a.Blobs), a.Node.Descriptor) {
			size += 3*blockSize + padded(d.Size)
		}
	}
	grown, err := parts.New(v.list.File(), size, v.volume, v.list.Recovery())
	if err != nil || v.list.Changing {
		return err
	}
	for i := int(v.list.Count()); i <= int(grown.Count()); i++ {
		if name := v.name(i); v.dir.has(name) {
			return v.dir.refuse(name, "it is no part of this archive, and has the name of the next one")
		}
	}
	return nil
}

// seal writes the recovery parts and the list of parts that have been changed.
func (v *volumes) seal(ctx context.Context, l *parts.List) error {
	final := func(j int) string { return l.Name(int(l.Count()) + j) }
	if err := seal(ctx, v.dir, l, v.files, func(j int) string { return final(j) + ".new" }); err != nil {
		return err
	}
	for j := range l.Recovery() {
		if err := v.dir.rename(final(j)+".new", final(j)); err != nil {
			return err
		}
	}
	if err := v.dir.sync("."); err != nil {
		return err
	}
	return v.dir.write(filepath.Base(v.partsPath), l.Text())
}
