package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// identity returns the first line of a journal: the bundle's root, the base of omitted layers, and the size of parts.
// It excludes attachments, since a pull with other signatures has the same payload.
func identity(g *bundle.Graph, o Options) string {
	id := g.Root.Digest.String()
	if g.Base != nil {
		id += " base=" + g.Base.Root.String()
	}
	if o.VolumeSize != 0 {
		id += fmt.Sprintf(" volume=%d", o.VolumeSize)
	}
	return id
}

// checkTarget refuses to write over an existing file that must stay.
func checkTarget(path string, o Options) error {
	info, err := os.Lstat(path)
	bad := func(reason fault.Reason, why, hint string) error {
		return &fault.Error{Reason: reason, Op: "write", Subject: path, Hint: hint, Err: errors.New(why)}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return atomicfile.Fault("write", path, err)
	case info.IsDir():
		return bad(fault.Storage, "it is a folder", "name a file, or write into the folder as "+fault.Quote("oci:"+path))
	case !info.Mode().IsRegular():
		return bad(fault.Storage, "it is there and not a regular file", "name a file")
	case !o.Replace:
		return bad(fault.Conflict, "it is there already", "choose another name, or replace it with --replace")
	}
	return nil
}

// checkTargets refuses to write over an existing archive, whole or in parts.
func (w *FileWriter) checkTargets() error {
	if !w.overSource() {
		if err := checkTarget(w.path, w.o); err != nil {
			return err
		}
	}
	return checkTarget(w.path+parts.Suffix, w.o)
}

// overSource reports whether a split writes to the name of its own source.
func (w *FileWriter) overSource() bool { return w.source != "" && sameFile(w.source, w.path) }

var partialName = regexp.MustCompile(`^(\.p?[0-9]{3}|\.parts)?\.partial$`)

// leftovers returns the names of the archive's partial files, whole or in parts. Those of another interrupted run are
// a fault, unless o.Restart is set.
func (w *FileWriter) leftovers(before noted) (left []string, err error) {
	dir := filepath.Dir(w.path)
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, atomicfile.Fault("read", dir, err)
	}
	for _, e := range list {
		if rest, ok := strings.CutPrefix(e.Name(), w.name()); ok && partialName.MatchString(rest) {
			left = append(left, e.Name())
		}
	}
	if len(left) == 0 || before.referrers == w.id || w.o.Restart {
		return left, nil
	}
	drop := ", or drop it with --restart"
	if w.again { // sign has no such flag
		drop = ""
	}
	return nil, fault.Errorf(fault.Conflict, "resume", filepath.Join(dir, left[0]),
		"finish that run (pull, copy, split or sign) as it was begun"+drop+"; "+
			"or remove its .partial files and "+fault.Quote(w.path+journalSuffix),
		"an interrupted run of something else left this file")
}

func (w *FileWriter) removePartial() error {
	left, err := w.leftovers(noted{referrers: w.id})
	for _, name := range left {
		err = errors.Join(err, w.dir.Remove(name))
	}
	return errors.Join(err, w.dir.Remove(w.lock.name))
}

// removeParts removes a parts file and its parts, except those in keep.
func (d *directory) removeParts(name string, keep []string) error {
	if !d.Has(name) {
		return nil
	}
	l, err := d.ownParts(name)
	if err != nil {
		return err
	}
	if err := d.Remove(name); err != nil {
		return err
	}
	var errs []error
	for _, part := range l.Names() {
		if !slices.Contains(keep, part) {
			errs = append(errs, d.Remove(part))
		}
	}
	return errors.Join(errs...)
}

// ownParts reads the parts file of an archive to replace. It refuses one that lists another archive's parts.
func (d *directory) ownParts(name string) (*parts.List, error) {
	l, err := readParts(d.At(name))
	if err == nil && l.File != strings.TrimSuffix(name, parts.Suffix) {
		err = fault.Errorf(fault.Conflict, "replace", d.At(name),
			"look at it, and remove it: the parts that it lists are not touched",
			"it lists the parts of another archive, %s", l.File)
	}
	return l, err
}

// exists reports whether a file or link has this name, even a dangling link.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
