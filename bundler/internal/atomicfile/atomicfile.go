// Package atomicfile makes, changes and names files in folders that may come from someone else,
// such as a medium, under names that are known to everybody. Nothing that lies under such a name
// leads a write elsewhere: no name and no link leads out of the folder, and a new file is made with
// O_EXCL. Errors are faults that name the file and what to look at.
//
//	dir, err := atomicfile.Open("certs.d")
//	err = dir.Replace("hosts.toml", data, 0o644) // there whole, or not at all
//	err = dir.New("release.key", data, 0o600)    // never over another file
//
// What is replaced is a temporary file in the same folder, whose bytes are flushed, then renamed; then
// the folder is flushed. Who reads the name meanwhile sees the old file or the new one. What a crash
// leaves is the temporary file, .vdo-RANDOM, which no one reads. [Folder.New] writes under the name
// itself: a crash may leave a cut file there, which the next New refuses to touch.
package atomicfile

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Folder is an open folder. All names are below it.
type Folder struct {
	Path string
	Root *os.Root
}

// Open opens a folder that the user named; links in its own path are the user's. It does not wait
// where a pipe has the name. A folder that may be written and not read (mode 0300) is refused: it is
// opened for reading. The error is no fault yet.
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

// Close closes the folder.
func (d *Folder) Close() error { return d.Root.Close() }

// At is the path of a name, for messages.
func (d *Folder) At(name string) string { return filepath.Join(d.Path, name) }

// Make makes a file that is not there yet, for reading and writing.
func (d *Folder) Make(name string, mode fs.FileMode) (*os.File, error) {
	f, err := d.Root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	return f, Fault("write", d.At(name), err)
}

// Create makes a file; what lies under its name goes first.
func (d *Folder) Create(name string, mode fs.FileMode) (*os.File, error) {
	if err := d.Remove(name); err != nil {
		return nil, err
	}
	return d.Make(name, mode)
}

// Replace writes data under a name. What had the name loses it; a link that has it is
// replaced, not followed.
func (d *Folder) Replace(name string, data []byte, mode fs.FileMode) error {
	tmp := filepath.Join(filepath.Dir(name), ".vdo-"+rand.Text())
	if err := d.write(name, tmp, data, mode); err != nil {
		return err
	}
	if err := d.Rename(tmp, name); err != nil {
		return errors.Join(err, d.Remove(tmp))
	}
	return d.Sync(filepath.Dir(name))
}

// New writes data under a name that nothing has yet; else the error is fs.ErrExist.
func (d *Folder) New(name string, data []byte, mode fs.FileMode) error {
	if err := d.write(name, name, data, mode); err != nil {
		return err
	}
	return d.Sync(filepath.Dir(name))
}

// write makes a file with data, whose mode does not depend on the umask, or none; name is what it will have.
func (d *Folder) write(name, file string, data []byte, mode fs.FileMode) error {
	f, err := d.Root.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Fault("write", d.At(name), err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, d.Root.Remove(file))
	}
	return Fault("write", d.At(name), err)
}

// Rename gives a file another name. What has that name loses it; a link there is
// replaced, not followed.
func (d *Folder) Rename(from, to string) error {
	return Fault("write", d.At(to), d.Root.Rename(from, to))
}

// Remove removes a name, where it is there.
func (d *Folder) Remove(name string) error {
	if err := d.Root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Fault("remove", d.At(name), err)
	}
	return nil
}

// Has tells whether something has a name.
func (d *Folder) Has(name string) bool {
	_, err := d.Root.Lstat(name)
	return err == nil
}

// Mkdir makes the folders of a path below.
func (d *Folder) Mkdir(below string) error {
	return Fault("write", d.At(below), d.Root.MkdirAll(below, 0o755))
}

// Sync makes the names in a folder below last; "." is the folder itself. File systems that cannot
// flush a folder are taken at their word.
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

// Fault tells what a local file's error means to a person. Faults pass as they are.
func Fault(op, path string, err error) error {
	var f *fault.Error
	if err == nil || errors.As(err, &f) {
		return err
	}
	return fault.Errorf(fault.Storage, op, path, Hint(err), "%w", WithoutPath(err))
}

// Hint says what to do about a local file's error.
func Hint(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free space there and run the same command again, or choose a place with more"
	case errors.Is(err, syscall.EFBIG):
		return "that file system cannot hold a file of this size; use one that can, such as exFAT, ext4 or XFS"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "allow more open files (ulimit -n), or do less at a time (--concurrency), and run the same command again"
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return "give yourself the right to write there (it may be mounted read-only), or choose another place"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "check the path; folders have to be there already"
	}
	return "check the disk and run the same command again"
}

// WithoutPath drops the path of an error of package os, where a fault names it.
func WithoutPath(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return link.Err
	}
	return err
}
