// Package atomicfile creates, changes and renames files in directories that may come from others,
// such as removable media, under predictable names. No prepared file can redirect a write: no name
// and no link leads out of the directory, and new files are created with O_EXCL. Errors are faults
// that name the file and the remedy.
//
//	dir, err := atomicfile.Open("certs.d")
//	err = dir.Replace("hosts.toml", data, 0o644) // there whole, or not at all
//	err = dir.New("release.key", data, 0o600)    // never over another file
//
// Replace writes a temporary file in the same directory, flushes it, renames it, and flushes the
// directory. Concurrent readers see the old file or the new one. A crash leaves only the temporary
// file, .vdo-RANDOM, which no program reads. [Folder.New] writes under the final name: a crash may
// leave a truncated file, which the next New refuses to touch.
package atomicfile

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Folder is an open directory. All names are below it.
type Folder struct {
	Path string
	Root *os.Root
}

// Open opens a directory that the user named; links in its path are the user's. It does not block on a pipe. It
// refuses a write-only directory (mode 0300), since it opens for reading. The error is not a fault yet.
func Open(path string) (*Folder, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &Folder{path, root}, nil
}

// Close closes the directory.
func (d *Folder) Close() error { return d.Root.Close() }

// At returns the path of a name, for messages.
func (d *Folder) At(name string) string { return filepath.Join(d.Path, name) }

// Make creates a new file for reading and writing.
func (d *Folder) Make(name string, mode fs.FileMode) (*os.File, error) {
	f, err := d.Root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	return f, Fault("write", d.At(name), err)
}

// Create creates a file, after removing what has its name.
func (d *Folder) Create(name string, mode fs.FileMode) (*os.File, error) {
	if err := d.Remove(name); err != nil {
		return nil, err
	}
	return d.Make(name, mode)
}

// Replace writes data under a name, and replaces an existing file or link without following it.
func (d *Folder) Replace(name string, data []byte, mode fs.FileMode) error {
	return d.Fill(name, mode, Writing(data))
}

// Fill is a [Folder.Replace] whose data fill writes. Mode 0 is that of the owner alone, or of a medium without modes.
func (d *Folder) Fill(name string, mode fs.FileMode, fill func(*os.File) error) error {
	tmp := filepath.Join(filepath.Dir(name), ".vdo-"+rand.Text())
	if err := d.write(name, tmp, mode, fill); err != nil {
		return err
	}
	if err := d.Rename(tmp, name); err != nil {
		return errors.Join(err, d.Remove(tmp))
	}
	return d.Sync(filepath.Dir(name))
}

// New writes data under an unused name; otherwise the error is fs.ErrExist.
func (d *Folder) New(name string, data []byte, mode fs.FileMode) error {
	if err := d.write(name, name, mode, Writing(data)); err != nil {
		return err
	}
	return d.Sync(filepath.Dir(name))
}

// Writing returns what fills a file with data.
func Writing(data []byte) func(*os.File) error {
	return func(f *os.File) error {
		_, err := f.Write(data)
		return err
	}
}

// write creates a complete file, or none, with a mode independent of the umask; name is its final name, for messages.
func (d *Folder) write(name, file string, mode fs.FileMode, fill func(*os.File) error) error {
	f, err := d.Root.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Fault("write", d.At(name), err)
	}
	if err = fill(f); err == nil && mode != 0 {
		err = chmod(f, mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, d.Root.Remove(file))
	}
	return Fault("write", d.At(name), err)
}

// chmod sets a mode. Media without owners, such as FAT, refuse it: a file has the mode of the medium there, unless the
// mode keeps others out.
func chmod(f interface{ Chmod(mode fs.FileMode) error }, mode fs.FileMode) error {
	if err := f.Chmod(mode); mode&0o077 == 0 || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// Rename renames a file, and replaces an existing file or link without following it.
func (d *Folder) Rename(from, to string) error {
	return Fault("write", d.At(to), d.Root.Rename(from, to))
}

// Remove deletes a file, if it exists.
func (d *Folder) Remove(name string) error {
	if err := d.Root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Fault("remove", d.At(name), err)
	}
	return nil
}

// Has reports whether a file or link has this name.
func (d *Folder) Has(name string) bool {
	_, err := d.Root.Lstat(name)
	return err == nil
}

// Mkdir creates the directories of a path.
func (d *Folder) Mkdir(below string) error {
	return Fault("write", d.At(below), d.Root.MkdirAll(below, 0o755))
}

// Sync flushes the names in a subdirectory; "." is the directory itself. It ignores file systems that cannot.
func (d *Folder) Sync(below string) error {
	f, err := d.Root.Open(below)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return Fault("flush", d.At(below), err)
}

// Fault turns a local file's error into a fault. It returns faults and interruptions unchanged.
func Fault(op, path string, err error) error {
	var f *fault.Error
	if err == nil || errors.As(err, &f) || errors.Is(err, context.Canceled) {
		return err
	}
	return fault.Errorf(fault.Storage, op, path, Hint(err), "%w", WithoutPath(err))
}

// Hint returns the remedy for a local file's error.
func Hint(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free space there and run the same command again, or choose a place with more"
	case errors.Is(err, syscall.EFBIG):
		return "that file system cannot hold a file of this size; use one that can, such as exFAT, ext4 or XFS"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "allow more open files (ulimit -n), or do less at a time (--concurrency), and run the same command again"
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return "give yourself the permission there (it may be mounted read-only), or use another folder, or a copy there"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "check the path; folders have to be there already"
	}
	return "check the disk and run the same command again"
}

// WithoutPath drops the path from an error of package os, for faults that name it themselves.
func WithoutPath(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return link.Err
	}
	return err
}
