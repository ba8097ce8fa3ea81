package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// takenBy is how many bytes of the disk an interrupted run has taken, whose first
// file is open.
func (w *FileWriter) takenBy(first *os.File) int64 {
	taken := allocated(first)
	for i := 1; w.o.VolumeSize > 0; i++ {
		f, err := openRegular(w.partPath(i))
		if err != nil {
			break
		}
		taken += allocated(f)
		_ = f.Close() // nothing was written
	}
	return taken
}

func (w *FileWriter) partPath(i int) string { return fmt.Sprintf("%s.%03d.partial", w.path, i+1) }

// unnamed is what a part or recovery part is called before it has its name.
func unnamed(l *parts.List, i int) string { return l.Name(i) + partialSuffix }

// recoverySize is how many bytes the recovery parts will have.
func recoverySize(l *Layout, o Options) int64 {
	return int64(o.Recovery) * min(o.VolumeSize, l.size)
}

// checkTargets refuses to write an archive where one is, whole or in parts.
func checkTargets(path string, o Options) error {
	if err := checkTarget(path, o); err != nil {
		return err
	}
	return checkTarget(path+parts.Suffix, o)
}

// openParts is open for an archive in parts.
func (w *FileWriter) openParts(named bool) error {
	list, err := parts.New(w.name(), w.layout.size, w.o.VolumeSize, w.o.Recovery)
	if err != nil {
		return err
	}
	if named {
		if err := w.rollBack(list); err != nil {
			return err
		}
	}
	for i := range list.All() {
		if err := checkTarget(w.dir.at(list.Name(i)), w.o); err != nil {
			return err
		}
	}
	v := &volumes{
		path: w.path, partsPath: w.path + parts.Suffix, list: list, volume: w.o.VolumeSize, dir: w.dir,
		name: func(i int) string { return fmt.Sprintf("%s.%03d%s", w.name(), i+1, partialSuffix) },
	}
	w.f = v
	for i := range int(list.Count()) {
		f, err := w.dir.resume(v.name(i))
		if err != nil {
			return err
		}
		v.files = append(v.files, f)
	}
	return nil
}

// rollBack takes back the names that an interrupted Commit gave. Where there is a
// parts file they are not ours: that goes before the first name is given.
func (w *FileWriter) rollBack(l *parts.List) error {
	if w.dir.has(w.name() + parts.Suffix) {
		return nil
	}
	for i := range l.All() {
		info, err := w.dir.root.Lstat(l.Name(i))
		if err != nil || info.Size() != l.PartSize(i) || w.dir.has(unnamed(l, i)) {
			continue
		}
		if err := w.dir.rename(l.Name(i), unnamed(l, i)); err != nil {
			return err
		}
	}
	return nil
}

var partialName = regexp.MustCompile(`^(\.p?[0-9]{3})?\.partial$`)

// commitParts makes an archive in parts appear: sums and recovery parts first, then
// all names, then the parts file. What they replace goes once they are whole and
// before the first name is given, so that there is never a list of other parts.
func (w *FileWriter) commitParts(ctx context.Context, v *volumes) error {
	n := int(v.list.Count())
	if err := seal(ctx, w.dir, v.list, v.files, func(j int) string { return unnamed(v.list, n+j) }); err != nil {
		return err
	}
	if err := w.journal.end(namedLine); err != nil {
		return err
	}
	if err := w.dir.sync("."); err != nil {
		return err
	}
	if err := w.dir.removeParts(w.name()+parts.Suffix, v.list); err != nil {
		return err
	}
	if err := w.dir.remove(w.name()); err != nil {
		return err
	}
	return w.dir.nameParts(v.list, w.o, func(i int) string { return unnamed(v.list, i) })
}

// nameParts gives parts their names, and writes the parts file.
func (d *folder) nameParts(l *parts.List, o Options, from func(i int) string) error {
	for i := range l.All() {
		if err := checkTarget(d.at(l.Name(i)), o); err != nil {
			return err
		}
		if err := d.rename(from(i), l.Name(i)); err != nil {
			return err
		}
	}
	if err := d.sync("."); err != nil {
		return err
	}
	return d.write(l.File()+parts.Suffix, l.Text())
}

// removeParts removes a parts file, and the parts that it lists but keep does not.
func (d *folder) removeParts(name string, keep *parts.List) error {
	if !d.has(name) {
		return nil
	}
	l, err := d.ownParts(name)
	if err != nil {
		return err
	}
	if err := d.remove(name); err != nil {
		return err
	}
	return d.removeOthers(l, keep)
}

// ownParts reads the parts file of an archive, before its parts are replaced. One that
// lists the parts of another archive would have those removed.
func (d *folder) ownParts(name string) (*parts.List, error) {
	l, err := readParts(d.at(name))
	if err == nil && l.File() != strings.TrimSuffix(name, parts.Suffix) {
		err = &fault.Error{
			Reason: fault.Conflict, Op: "replace", Subject: d.at(name), Err: fmt.Errorf("it lists the parts of another archive, %s", l.File()),
			Hint: "look at it, and remove it: the parts that it lists are not touched",
		}
	}
	return l, err
}

// removeOthers removes the parts of a list that keep does not list.
func (d *folder) removeOthers(l, keep *parts.List) error {
	kept := map[string]bool{}
	for i := 0; keep != nil && i < keep.All(); i++ {
		kept[keep.Name(i)] = true
	}
	var errs []error
	for i := range l.All() {
		if !kept[l.Name(i)] {
			errs = append(errs, d.remove(l.Name(i)))
		}
	}
	return errors.Join(errs...)
}

// splitSuffix of the name of a part that a split has written, and of its list.
const splitSuffix = ".split"

// Split writes an archive again, in parts beside to (the name that `cat` of them
// would have). It returns the path of the parts file. What it replaces, which may be
// the very parts that it reads, is there until the new parts are whole and listed in
// FILE.parts.split; from then on a Split that was interrupted is completed by the next.
func Split(ctx context.Context, path, to string, o Options) (string, error) {
	if err := checkParent(to); err != nil {
		return "", err
	}
	dir, name, err := folderOf(to)
	if err != nil {
		return "", err
	}
	defer dir.close() //nolint:errcheck // nothing is written through it any more
	lock, err := dir.lockArchive(name)
	if err != nil {
		return "", err
	}
	s := &splitter{dir: dir, to: to, o: o}
	if dir.has(name + parts.Suffix + splitSuffix) { // what it makes is this command's to replace
		err, s.o.Replace = s.complete(ctx, name), true
	}
	if err == nil {
		err = s.run(ctx, path)
	}
	if err := errors.Join(err, lock.release()); err != nil {
		return "", err
	}
	return to + parts.Suffix, nil
}

// splitter copies byte ranges into files of their own.
type splitter struct {
	dir   *folder
	to    string
	o     Options
	list  *parts.List
	files []*os.File
}

// run splits under the lock.
func (s *splitter) run(ctx context.Context, path string) error {
	a, err := OpenFile(path)
	if err != nil {
		return err
	}
	defer a.Close() //nolint:errcheck // nothing was written
	from := a.fetcher()
	if s.list, err = parts.New(filepath.Base(s.to), from.size, s.o.VolumeSize, s.o.Recovery); err != nil {
		return err
	}
	if err := checkTarget(s.to+parts.Suffix, s.o); err != nil {
		return err
	}
	if s.to != path {
		if err := checkTarget(s.to, s.o); err != nil {
			return err
		}
	}
	if s.dir.has(s.list.File() + parts.Suffix) {
		if _, err := s.dir.ownParts(s.list.File() + parts.Suffix); err != nil {
			return err
		}
	}
	if err := s.checkNames(); err != nil {
		return err
	}
	if err := checkSpace(s.to, from.size+int64(s.o.Recovery)*s.list.PartSize(0)); err != nil {
		return err
	}
	err = s.split(ctx, from.r)
	if err == nil {
		err = s.dir.write(s.listName(), s.list.Text())
	}
	if err != nil {
		return errors.Join(err, s.forget())
	}
	return s.complete(ctx, s.list.File())
}

func splitName(l *parts.List, i int) string { return l.Name(i) + splitSuffix }

// listName is what the list is called before the parts have their names.
func (s *splitter) listName() string { return filepath.Base(s.to) + parts.Suffix + splitSuffix }

// checkNames refuses, before anything is replaced, what cannot be.
func (s *splitter) checkNames() error {
	for i := range s.list.All() {
		if err := checkTarget(s.dir.at(s.list.Name(i)), s.o); err != nil {
			return err
		}
	}
	return nil
}

func (s *splitter) split(ctx context.Context, from io.ReaderAt) (err error) {
	n := int(s.list.Count())
	defer func() {
		for _, f := range s.files {
			err = errors.Join(err, f.Close())
		}
	}()
	for i := range n {
		f, err := s.dir.create(splitName(s.list, i), 0o644)
		if err != nil {
			return err
		}
		s.files = append(s.files, f)
	}
	var group errgroup.Group
	group.SetLimit(2)
	for i, f := range s.files {
		group.Go(func() error {
			buf := buffers.Get().(*[]byte)
			defer buffers.Put(buf)
			piece := io.NewSectionReader(from, int64(i)*s.list.Volume(), s.list.PartSize(i))
			_, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{&withContext{ctx, piece}}, *buf)
			return storageFault("write", f.Name(), errors.Join(err, f.Sync()))
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return seal(ctx, s.dir, s.list, s.files, func(j int) string { return splitName(s.list, n+j) })
}

// complete gives the parts of a split their names once there is a list of them: all of
// them are whole then. What they replace goes at the end.
func (s *splitter) complete(ctx context.Context, name string) error {
	listed := name + parts.Suffix + splitSuffix
	l, err := readParts(s.dir.at(listed))
	if err != nil {
		return err
	}
	var old *parts.List
	if s.dir.has(name + parts.Suffix) {
		if old, err = s.dir.ownParts(name + parts.Suffix); err != nil {
			return err
		}
	}
	if l.File() != name {
		return brokenFile(s.dir.at(listed), "it lists parts of %s", l.File())
	}
	if err := s.written(ctx, l); err != nil {
		return err
	}
	for i := range l.All() {
		if !s.dir.has(splitName(l, i)) {
			continue // it has its name already
		}
		if err := s.dir.rename(splitName(l, i), l.Name(i)); err != nil {
			return err
		}
	}
	if err := s.dir.sync("."); err != nil {
		return err
	}
	if err := s.dir.rename(listed, name+parts.Suffix); err != nil {
		return err
	}
	if err := s.dir.sync("."); err != nil || old == nil {
		return err
	}
	return s.dir.removeOthers(old, l)
}

// written demands every part of a split, before anything takes the place of another: under
// the name that it was written by, or under its own.
func (s *splitter) written(ctx context.Context, l *parts.List) error {
	for i := range l.All() {
		why := ""
		info, err := s.dir.root.Lstat(splitName(l, i))
		switch {
		case err != nil:
			if why, err = checkPart(ctx, s.dir.at(l.Name(i)), l.PartSize(i), l.Sums[i]); err != nil {
				return err
			}
		case !info.Mode().IsRegular() || info.Size() != l.PartSize(i):
			why = "it is not as it was written"
		}
		if why != "" {
			return &fault.Error{
				Reason: fault.Incomplete, Op: "complete the split of", Subject: s.dir.at(l.File()), Err: fmt.Errorf("%s: %s", splitName(l, i), why),
				Hint: "remove " + fault.Quote(s.dir.at(s.listName())) + " and what else ends in .split, and run the same command again",
			}
		}
	}
	return nil
}

// forget removes what came to nothing.
func (s *splitter) forget() error {
	errs := []error{s.dir.remove(s.listName())}
	for i := range s.list.All() {
		errs = append(errs, s.dir.remove(splitName(s.list, i)))
	}
	return errors.Join(errs...)
}

// attachToParts adds a signature to an archive in parts; the package comment gives
// the order of the steps. was is what its index.json said when it was read.
func attachToParts(ctx context.Context, path string, att bundle.Attachment, was *index) error {
	dir, name, err := folderOf(path)
	if err != nil {
		return err
	}
	defer dir.close() //nolint:errcheck // nothing is written through it any more
	lock, err := dir.lockArchive(strings.TrimSuffix(name, parts.Suffix))
	if err != nil {
		return err
	}
	v, err := openVolumes(path, dir)
	if err == nil {
		err = errors.Join(v.attach(ctx, att, was), v.Close())
	}
	return errors.Join(storageFault("sign", path, err), lock.release())
}

func (v *volumes) attach(ctx context.Context, att bundle.Attachment, was *index) error {
	last := int(v.list.Count()) - 1
	err := damaged(ctx, v, func(i int) bool { // what an interrupted run changed has no sum yet
		return i <= last && (!v.list.Changing || (i != 0 && i != last))
	})
	if err != nil {
		return err
	}
	if err := v.roomFor(att); err != nil {
		return err
	}
	if is, err := scanStorage(v.path, v); err != nil {
		return err
	} else if err := sameTag(v.path, att.Tag, was, is.index); err != nil {
		return err
	}
	v.list.Changing = true
	if err := v.dir.write(filepath.Base(v.partsPath), v.list.Text()); err != nil {
		return err
	}
	if err := attachTo(ctx, v.dir, v.path, v, att, was); err != nil {
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

// roomFor refuses, before anything is changed, what would make too many parts.
func (v *volumes) roomFor(att bundle.Attachment) error {
	size, err := storageSize(v.path, v)
	if err != nil {
		return err
	}
	for _, d := range append(slices.Clone(att.Blobs), att.Node.Descriptor) {
		size += 3*blockSize + padded(d.Size)
	}
	_, err = parts.New(v.list.File(), size, v.volume, v.list.Recovery())
	return err
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
