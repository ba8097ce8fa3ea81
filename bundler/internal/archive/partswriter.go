package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

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
		given, err := parts.New(w.name(), w.layout.size, w.o.VolumeSize, w.extra)
		if err != nil {
			return err
		}
		if err := w.rollBack(given); err != nil {
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

// rollBack takes back the names that an interrupted Commit gave, those of recovery parts
// too that are not wanted any more. Where there is a parts file they are not ours: that
// goes before the first name is given.
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
	if err := w.journal.end(namedWith(w.o.Recovery)); err != nil {
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
