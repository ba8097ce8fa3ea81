package archive

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// storage is the file or the parts of an archive. Concurrent reads and writes are safe; growing is not.
type storage struct {
	path     string // of the archive, if it were one file
	location string // the opened path: of the parts file if in parts
	list     *parts.List
	volume   int64 // size of every file but the last, in bytes
	files    []*os.File
}

func oneFile(f *os.File) *storage {
	return &storage{path: f.Name(), location: f.Name(), volume: math.MaxInt64, files: []*os.File{f}}
}

// flush flushes the bytes; Sync also flushes the metadata of the files.
func (v *storage) flush() error { return v.each(flushData) }

func (v *storage) Sync() error { return v.each((*os.File).Sync) }

func (v *storage) Close() error { return v.each((*os.File).Close) }

func (v *storage) each(do func(*os.File) error) error {
	var errs []error
	for _, f := range v.files {
		errs = append(errs, do(f))
	}
	return errors.Join(errs...)
}

// allocated returns how many bytes are on the disk.
func (v *storage) allocated() (n int64) {
	for _, f := range v.files {
		n += allocated(f)
	}
	return n
}

func (v *storage) size() (size int64, err error) {
	for _, f := range v.files {
		info, err := f.Stat()
		if err != nil {
			return 0, openFault(v.path, err)
		}
		size += info.Size()
	}
	return size, nil
}

// openStorage opens an archive for reading: a file, or its parts.
func openStorage(path string) (*storage, error) {
	if filepath.Ext(path) == parts.Suffix {
		return openVolumes(path)
	}
	if err := notOnePart("open", path); err != nil {
		return nil, err
	}
	f, err := openRegular(path)
	if err == nil {
		return oneFile(f), nil
	}
	if errors.Is(err, fs.ErrNotExist) && exists(path+parts.Suffix) {
		return openVolumes(path + parts.Suffix)
	}
	return nil, openFault(path, err)
}

// notOnePart returns a fault if the path is one part of an archive.
func notOnePart(op, path string) error {
	list := strings.TrimSuffix(path, filepath.Ext(path)) + parts.Suffix
	if l, err := readParts(list); err == nil && slices.Contains(l.Names(), filepath.Base(path)) {
		hint := "name the list of all parts: " + fault.Quote(list)
		return fault.Errorf(fault.InvalidInput, op, path, hint, "it is one part of a bundle")
	}
	return nil
}

func readParts(path string) (*parts.List, error) {
	return userfile.Parse("", path, parts.MaxSize, parts.Parse)
}

// openVolumes opens the parts that a parts file lists. Each must exist with its size; parity shards may be missing.
func openVolumes(path string) (*storage, error) {
	list, err := readParts(path)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	v := &storage{path: filepath.Join(dir, list.File), location: path, list: list, volume: list.Volume}
	var errs []error
	for i := range int(list.Count()) {
		f, err := openPart(filepath.Join(dir, list.Name(i)), list.PartSize(i))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		v.files = append(v.files, f)
	}
	damage, others := damageIn(errs)
	if err := fault.Join(others, partFaults(list, path, damage)); err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

// spread calls do for each piece of p that lies in one part.
func (v *storage) spread(p []byte, at int64, do func(f *os.File, p []byte, at int64) (int, error)) (int, error) {
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

func (v *storage) ReadAt(p []byte, at int64) (int, error) {
	return v.spread(p, at, func(f *os.File, p []byte, at int64) (int, error) { return f.ReadAt(p, at) })
}

// WriteAt writes across parts, within their size.
func (v *storage) WriteAt(p []byte, at int64) (int, error) {
	n, err := v.spread(p, at, func(f *os.File, p []byte, at int64) (int, error) { return f.WriteAt(p, at) })
	if errors.Is(err, io.EOF) {
		err = io.ErrShortWrite
	}
	return n, err
}

// Truncate sets each file to its share of size.
func (v *storage) Truncate(size int64) error {
	for i, f := range v.files {
		if err := f.Truncate(min(v.volume, size-int64(i)*v.volume)); err != nil {
			return err
		}
	}
	return nil
}

// Split writes an archive again as parts beside to, the name of the joined file, and returns the path of the parts
// file. It replaces old parts, and an archive at to other than the source, once the new parts are complete. It cannot
// replace the parts that it reads.
func Split(ctx context.Context, path, to string, o Options) (string, error) {
	if err := checkDirectory(filepath.Dir(to)); err != nil {
		return "", err
	}
	a, err := OpenFile(path)
	if err != nil {
		return "", err
	}
	defer a.Close() //nolint:errcheck // nothing was written
	from := a.x.tar.v
	if from.list != nil && sameFile(from.location, to+parts.Suffix) {
		return "", fault.Errorf(fault.InvalidInput, "split", path,
			"choose another name with -o, and remove these parts afterwards",
			"its parts have the names that would be written")
	}
	w := &FileWriter{path: to, o: o, source: path}
	if err := w.acquire(); err != nil {
		return "", err
	}
	if err := copyOf(ctx, w, a.x); err != nil {
		return "", w.giveUp(atomicfile.Fault("split", to, err))
	}
	return to + parts.Suffix, w.Close()
}

func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	second, secondErr := os.Stat(b)
	return err == nil && secondErr == nil && os.SameFile(first, second)
}

// openFault returns the fault for opening a file to read; a missing file is NotFound.
func openFault(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		hint := "check the path"
		if exists(path + partialSuffix) {
			hint = "an interrupted run left " + fault.Quote(path+partialSuffix) + ": run its command again"
		}
		return fault.Errorf(fault.NotFound, "open", path, hint, "%w", atomicfile.WithoutPath(err))
	}
	return atomicfile.Fault("open", path, err)
}

// checkSpace returns a fault if the disk lacks need more bytes.
func checkSpace(path string, need int64) error {
	free, isKnown := freeSpace(filepath.Dir(path))
	if !isKnown || need <= free {
		return nil
	}
	return fault.Errorf(fault.Storage, "write", path, atomicfile.Hint(syscall.ENOSPC),
		"it needs %d bytes more, and %d are free: %w", need, free, syscall.ENOSPC)
}

// checkDirectory returns a fault unless the directory exists and is writable.
func checkDirectory(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		err = mayWrite(dir)
	}
	return atomicfile.Fault("write into", dir, err)
}
