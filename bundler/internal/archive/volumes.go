package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// storage is what an archive is kept in: one file, or parts.
type storage interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Sync() error
	Close() error
	Name() string
}

// filesOf returns the files of a storage.
func filesOf(s storage) []*os.File {
	switch s := s.(type) {
	case *os.File:
		return []*os.File{s}
	case *volumes:
		return s.files
	}
	return nil
}

func flushStorage(s storage) error {
	var errs []error
	for _, f := range filesOf(s) {
		errs = append(errs, flushData(f))
	}
	return errors.Join(errs...)
}

func allocatedStorage(s storage) (n int64) {
	for _, f := range filesOf(s) {
		n += allocated(f)
	}
	return n
}

// storageSize is the number of bytes of an archive.
func storageSize(path string, s storage) (int64, error) {
	var size int64
	for _, f := range filesOf(s) {
		if err := mustBeRegular(f); err != nil {
			return 0, err
		}
		info, err := f.Stat()
		if err != nil {
			return 0, openFault(path, err)
		}
		size += info.Size()
	}
	return size, nil
}

// volumes is an archive in parts. Reading and writing at once are safe, as of a
// file; growing is not.
type volumes struct {
	path      string // of the archive, if it were one file
	partsPath string // of the parts file
	list      *parts.List
	volume    int64
	dir       *folder            // to write into; nil: only read
	name      func(i int) string // of part i, in its folder
	files     []*os.File
}

// openStorage opens an archive for reading: a file, or its parts. It returns the path
// of the archive, for messages and for what lies beside it.
func openStorage(path string) (storage, string, error) {
	if filepath.Ext(path) == parts.Suffix {
		v, err := openVolumes(path, nil)
		if err != nil {
			return nil, path, err
		}
		return v, v.path, nil
	}
	f, err := openRegular(path)
	if err == nil {
		return f, path, nil
	}
	if _, statErr := os.Stat(path + parts.Suffix); errors.Is(err, fs.ErrNotExist) && statErr == nil {
		return openStorage(path + parts.Suffix)
	}
	return nil, path, openFault(path, err)
}

// readParts reads a parts file.
func readParts(path string) (*parts.List, error) {
	data, err := readRegular(path, parts.MaxSize)
	if err != nil {
		return nil, err
	}
	return parts.Parse(path, data)
}

// openVolumes opens the parts that a parts file lists. Every part has to be there
// with its size; recovery parts may be missing. With the folder that they are in they can
// be written to.
func openVolumes(path string, in *folder) (*volumes, error) {
	list, err := readParts(path)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	v := &volumes{
		path: filepath.Join(dir, list.File()), partsPath: path, list: list, volume: list.Volume(), dir: in,
		name: func(i int) string { return fmt.Sprintf("%s.%03d", list.File(), i+1) },
	}
	n := int(list.Count())
	if list.Changing { // how long the archive is by now, the disk knows
		for n < parts.MaxParts && isThere(filepath.Join(dir, v.name(n))) {
			n++
		}
	}
	lost := 0
	var errs []error
	for i := range n {
		f, err := v.openPart(i)
		if err != nil {
			lost++
			errs = append(errs, err)
			continue
		}
		v.files = append(v.files, f)
	}
	if lost == 0 {
		return v, nil
	}
	for _, err := range errs {
		var f *fault.Error
		if errors.As(err, &f) && f.Reason != fault.Storage {
			f.Hint = repairHint(list, path, lost)
		}
	}
	return nil, errors.Join(fault.Join(errs...), v.Close())
}

// repairHint says what to do where so many parts are lost.
func repairHint(l *parts.List, path string, lost int) string {
	if lost <= l.Recovery() && !l.Changing {
		return "rebuild it with `" + fault.Quote("vdo-bundle", "repair", path) + "`"
	}
	return "copy it again from where it was made"
}

// openPart opens one part, and checks its size.
func (v *volumes) openPart(i int) (*os.File, error) {
	name := filepath.Join(filepath.Dir(v.partsPath), v.name(i))
	open := func() (*os.File, error) { return os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) }
	if v.dir != nil {
		open = func() (*os.File, error) { return v.dir.reopen(v.name(i)) }
	}
	f, err := open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &fault.Error{Reason: fault.Incomplete, Op: "read", Subject: v.path, Err: fmt.Errorf("the part %s is missing", name)}
	}
	if err != nil {
		return nil, storageFault("open", name, err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = storageFault("open", name, err)
	case !info.Mode().IsRegular():
		err = &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: v.path, Err: fmt.Errorf("the part %s is not a regular file", name)}
	case !v.list.Changing && info.Size() != v.list.PartSize(i):
		reason := fault.Corrupt
		if info.Size() < v.list.PartSize(i) {
			reason = fault.Incomplete
		}
		err = &fault.Error{Reason: reason, Op: "read", Subject: v.path,
			Err: fmt.Errorf("the part %s has %d bytes, not %d", name, info.Size(), v.list.PartSize(i))}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Name is the path that the archive would have.
func (v *volumes) Name() string { return v.path }

// spread does something with each piece of p that lies in one part.
func (v *volumes) spread(p []byte, at int64, do func(f *os.File, p []byte, at int64) (int, error)) (int, error) {
	if at < 0 {
		return 0, errors.New("negative offset")
	}
	done := 0
	for done < len(p) {
		i := at / v.volume
		if i >= int64(len(v.files)) {
			return done, io.EOF
		}
		within := at % v.volume
		piece := p[done : done+int(min(int64(len(p)-done), v.volume-within))]
		n, err := do(v.files[i], piece, within)
		done, at = done+n, at+int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// ReadAt reads over the parts as if they were one file.
func (v *volumes) ReadAt(p []byte, at int64) (int, error) {
	return v.spread(p, at, func(f *os.File, p []byte, at int64) (int, error) { return f.ReadAt(p, at) })
}

// WriteAt writes over the parts, within their size.
func (v *volumes) WriteAt(p []byte, at int64) (int, error) {
	n, err := v.spread(p, at, func(f *os.File, p []byte, at int64) (int, error) { return f.WriteAt(p, at) })
	if errors.Is(err, io.EOF) {
		err = io.ErrShortWrite
	}
	return n, err
}

// Truncate makes as many parts as a size needs, and gives each its own.
func (v *volumes) Truncate(size int64) error {
	n := int((size-1)/v.volume + 1)
	if n > parts.MaxParts {
		return &fault.Error{Reason: fault.InvalidInput, Op: "write", Subject: v.path, Hint: "choose a larger --volume-size",
			Err: fmt.Errorf("it would have %d parts, more than %d", n, parts.MaxParts)}
	}
	for len(v.files) > n {
		last := v.files[len(v.files)-1]
		v.files = v.files[:len(v.files)-1]
		if err := errors.Join(last.Close(), v.dir.remove(v.name(len(v.files)))); err != nil {
			return err
		}
	}
	for i := range n {
		if i == len(v.files) {
			f, err := v.dir.make(v.name(i), 0o644)
			if err != nil {
				return err
			}
			v.files = append(v.files, f)
		}
		if err := v.files[i].Truncate(min(v.volume, size-int64(i)*v.volume)); err != nil {
			return err
		}
	}
	return nil
}

// Sync flushes all parts.
func (v *volumes) Sync() error {
	var errs []error
	for _, f := range v.files {
		errs = append(errs, f.Sync())
	}
	return errors.Join(errs...)
}

// Close closes all parts.
func (v *volumes) Close() error {
	var errs []error
	for _, f := range v.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
