package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// identity tells what a partial file is of: a layout, cut in parts of a size.
func identity(l *Layout, o Options) string {
	if o.VolumeSize > 0 {
		return fmt.Sprintf("%s/%d", l.identity(), o.VolumeSize)
	}
	return l.identity()
}

// takenBy is how many bytes of the disk an interrupted run has taken, whose first
// file is open.
func (w *FileWriter) takenBy(first *os.File) int64 {
	taken := allocated(first)
	for i := 1; w.o.VolumeSize > 0; i++ {
		f, err := os.Open(w.partPath(i))
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
func (w *FileWriter) unnamed(l *parts.List, i int) string {
	return filepath.Join(filepath.Dir(w.path), l.Name(i)+".partial")
}

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
func (w *FileWriter) openParts() (map[string]progress, error) {
	list, err := parts.New(filepath.Base(w.path), w.layout.size, w.o.VolumeSize, w.o.Recovery)
	if err != nil {
		return nil, err
	}
	f, _, err := openJournal(w.journalPath(), identity(w.layout, w.o))
	ours := err == nil
	if ours {
		err = errors.Join(f.Close(), w.rollBack(list))
	} else if errors.Is(err, errOtherJournal) {
		err = w.clearAway()
	}
	if err != nil {
		return nil, storageFault("write", w.journalPath(), err)
	}
	for i := range list.All() {
		if err := checkTarget(filepath.Join(filepath.Dir(w.path), list.Name(i)), w.o); err != nil {
			return nil, err
		}
	}
	if w.fresh = !ours; w.fresh {
		if err := w.newJournal(); err != nil {
			return nil, err
		}
	}
	v := &volumes{path: w.path, partsPath: w.path + parts.Suffix, list: list, volume: w.o.VolumeSize, name: w.partPath, mode: os.O_RDWR}
	w.f = v
	for i := range int(list.Count()) {
		f, err := os.OpenFile(w.partPath(i), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, w.giveUp(storageFault("write", w.partPath(i), err))
		}
		v.files = append(v.files, f)
	}
	at, err := w.openJournal()
	if err != nil {
		return nil, errors.Join(err, w.closeFile())
	}
	return at, nil
}

// rollBack takes back the names that an interrupted Commit gave. Where there is a
// parts file they are not ours: that goes before the first name is given.
func (w *FileWriter) rollBack(l *parts.List) error {
	if isThere(w.path + parts.Suffix) {
		return nil
	}
	for i := range l.All() {
		name := filepath.Join(filepath.Dir(w.path), l.Name(i))
		if info, err := os.Lstat(name); err != nil || info.Size() != l.PartSize(i) || isThere(w.unnamed(l, i)) {
			continue
		}
		if err := os.Rename(name, w.unnamed(l, i)); err != nil {
			return storageFault("write", name, err)
		}
	}
	return nil
}

// clearAway makes room where an interrupted run of something else left files.
func (w *FileWriter) clearAway() error {
	left, err := w.leftovers()
	if err != nil || len(left) == 0 {
		return err
	}
	if !w.o.Restart {
		return &fault.Error{
			Reason: fault.Conflict, Op: "resume", Subject: left[0],
			Hint: fmt.Sprintf("finish that pull with its own lock and --volume-size, or remove %s and what is named like it, and %s", left[0], w.journalPath()),
			Err:  errors.New("an interrupted pull of another bundle left this file"),
		}
	}
	errs := make([]error, 0, len(left))
	for _, name := range left {
		errs = append(errs, removeIfThere(name))
	}
	return errors.Join(errs...)
}

var partialName = regexp.MustCompile(`^(\.p?[0-9]{3})?\.partial$`)

// leftovers are the partial files of the archive, whole or in parts.
func (w *FileWriter) leftovers() ([]string, error) {
	dir, base := filepath.Split(w.path)
	list, err := os.ReadDir(filepath.Clean("./" + dir))
	if filepath.IsAbs(w.path) {
		list, err = os.ReadDir(dir)
	}
	if err != nil {
		return nil, storageFault("read", dir, err)
	}
	var out []string
	for _, e := range list {
		if name := e.Name(); len(name) > len(base) && name[:len(base)] == base && partialName.MatchString(name[len(base):]) {
			out = append(out, filepath.Join(dir, name))
		}
	}
	return out, nil
}

func (w *FileWriter) removePartial() error {
	if w.o.VolumeSize == 0 {
		return removeIfThere(w.partial())
	}
	left, err := w.leftovers()
	for _, name := range left {
		err = errors.Join(err, removeIfThere(name))
	}
	return err
}

// commitParts makes an archive in parts appear: sums and recovery parts first, then
// all names, then the parts file.
func (w *FileWriter) commitParts(ctx context.Context, v *volumes) error {
	recovery := func(j int) string { return w.unnamed(v.list, int(v.list.Count())+j) }
	if err := seal(ctx, v.list, v.files, recovery); err != nil {
		return err
	}
	return nameParts(w.path, v.list, w.o, func(i int) string { return w.unnamed(v.list, i) })
}

// nameParts gives parts their names, and writes the parts file. What they replace
// goes first, so that there is never a list of other parts.
func nameParts(path string, l *parts.List, o Options, from func(i int) string) error {
	dir, partsPath := filepath.Dir(path), path+parts.Suffix
	if err := removeParts(partsPath, l); err != nil {
		return err
	}
	if err := removeIfThere(path); err != nil {
		return err
	}
	for i := range l.All() {
		to := filepath.Join(dir, l.Name(i))
		if err := checkTarget(to, o); err != nil {
			return err
		}
		if err := os.Rename(from(i), to); err != nil {
			return storageFault("write", to, err)
		}
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	return writeWhole(partsPath, l.Text())
}

// removeParts removes a parts file, and the parts that it lists but keep does not.
func removeParts(path string, keep *parts.List) error {
	if !isThere(path) {
		return nil
	}
	l, err := readParts(path)
	if err != nil {
		return err
	}
	kept := map[string]bool{}
	for i := 0; keep != nil && i < keep.All(); i++ {
		kept[keep.Name(i)] = true
	}
	if err := removeIfThere(path); err != nil {
		return err
	}
	var errs []error
	for i := range l.All() {
		if !kept[l.Name(i)] {
			errs = append(errs, removeIfThere(filepath.Join(filepath.Dir(path), l.Name(i))))
		}
	}
	return errors.Join(errs...)
}

// Split writes an archive again, in parts beside to (the name that `cat` of them
// would have). It returns the path of the parts file.
func Split(ctx context.Context, path, to string, o Options) (string, error) {
	a, err := OpenFile(path)
	if err != nil {
		return "", err
	}
	defer a.Close() //nolint:errcheck // nothing was written
	from := a.fetcher()
	l, err := parts.New(filepath.Base(to), from.size, o.VolumeSize, o.Recovery)
	if err != nil {
		return "", err
	}
	if err := checkParent(to); err != nil {
		return "", err
	}
	if err := checkTarget(to+parts.Suffix, o); err != nil {
		return "", err
	}
	if to != path {
		if err := checkTarget(to, o); err != nil {
			return "", err
		}
	}
	if err := checkSpace(to, from.size+int64(o.Recovery)*l.PartSize(0)); err != nil {
		return "", err
	}
	s := &splitter{list: l, to: to}
	err = s.split(ctx, from.r)
	if err == nil {
		err = removeParts(to+parts.Suffix, l)
	}
	if err == nil {
		err = s.name(o)
	}
	if err != nil {
		return "", errors.Join(err, s.forget())
	}
	return to + parts.Suffix, nil
}

// splitter copies byte ranges into files of their own.
type splitter struct {
	list  *parts.List
	to    string
	files []*os.File
}

func (s *splitter) path(i int) string {
	return filepath.Join(filepath.Dir(s.to), s.list.Name(i)) + ".split"
}

func (s *splitter) split(ctx context.Context, from io.ReaderAt) (err error) {
	n := int(s.list.Count())
	defer func() {
		for _, f := range s.files {
			err = errors.Join(err, f.Close())
		}
	}()
	for i := range n {
		f, err := os.OpenFile(s.path(i), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			return storageFault("write", s.path(i), err)
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
	return seal(ctx, s.list, s.files, func(j int) string { return s.path(n + j) })
}

// name gives the parts their names. The archive itself stays.
func (s *splitter) name(o Options) error {
	for i := range s.list.All() {
		to := filepath.Join(filepath.Dir(s.to), s.list.Name(i))
		if err := checkTarget(to, o); err != nil {
			return err
		}
	}
	for i := range s.list.All() {
		to := filepath.Join(filepath.Dir(s.to), s.list.Name(i))
		if err := os.Rename(s.path(i), to); err != nil {
			return storageFault("write", to, err)
		}
	}
	if err := syncDir(filepath.Dir(s.to)); err != nil {
		return err
	}
	return writeWhole(s.to+parts.Suffix, s.list.Text())
}

// forget removes what came to nothing.
func (s *splitter) forget() error {
	var errs []error
	for i := range s.list.All() {
		if err := os.Remove(s.path(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// attachToParts adds a signature to an archive in parts; the package comment gives
// the order of the steps.
func attachToParts(ctx context.Context, path string, att bundle.Attachment) error {
	v, err := openVolumes(path, os.O_RDWR)
	if err != nil {
		return err
	}
	err = v.attach(ctx, att)
	return errors.Join(err, storageFault("sign", path, v.Close()))
}

func (v *volumes) attach(ctx context.Context, att bundle.Attachment) error {
	if err := lockStorage(v); err != nil {
		return err
	}
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
	v.list.Changing = true
	if err := writeWhole(v.partsPath, v.list.Text()); err != nil {
		return err
	}
	if err := attachTo(v.path, v, att); err != nil {
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
	final := func(j int) string {
		return filepath.Join(filepath.Dir(v.partsPath), l.Name(int(l.Count())+j))
	}
	if err := seal(ctx, l, v.files, func(j int) string { return final(j) + ".new" }); err != nil {
		return err
	}
	for j := range l.Recovery() {
		if err := os.Rename(final(j)+".new", final(j)); err != nil {
			return storageFault("write", final(j), err)
		}
	}
	if err := syncDir(filepath.Dir(v.partsPath)); err != nil {
		return err
	}
	return writeWhole(v.partsPath, l.Text())
}
