// Package atomicfile writes small files so that they are there whole, or not at all,
// after a crash too: a temporary file in the same folder, its bytes flushed, a rename or a
// link, the folder flushed. Who reads the name meanwhile sees the old file or the new one.
// What a crash leaves is the temporary file, .NAME.RANDOM, which nobody reads.
//
// One case is weaker: on a file system without links, such as FAT, a rename would replace
// what somebody else wrote meanwhile. [Create] prefers to keep that, and writes under the
// name itself: a crash may leave a cut file there, which the next Create refuses to touch.
//
//	err := atomicfile.Replace(root, "hosts.toml", data, 0o644)
//	err := atomicfile.Create(root, "release.key", data, 0o600) // never over another file
//
// All names are below an [os.Root], and no link leads out of it. Every file is made with
// O_EXCL: what somebody put under the name before is not written through.
package atomicfile

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// longest is how much of a name is in that of a temporary file: names have 255 bytes at most.
const longest = 200

const newFile = os.O_WRONLY | os.O_CREATE | os.O_EXCL

// OpenRoot is [os.OpenRoot], which would wait for ever where a pipe has the name. A folder
// that may be written and not read (mode 0300) is refused: it is opened for reading.
func OpenRoot(dir string) (*os.Root, error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

// Replace writes data under a name. What had the name loses it; a link that has it is
// replaced, not followed.
func Replace(root *os.Root, name string, data []byte, mode fs.FileMode) error {
	tmp, err := temporary(root, name, mode)
	if err != nil {
		return err
	}
	return finish(root, tmp, name, data)
}

// Create writes data under a name that nothing has yet; else the error is fs.ErrExist.
func Create(root *os.Root, name string, data []byte, mode fs.FileMode) error {
	return create(root, name, data, mode, root.Link)
}

// create is Create with the call that gives a file its second name.
func create(root *os.Root, name string, data []byte, mode fs.FileMode, link func(from, to string) error) error {
	if _, err := root.Lstat(name); err == nil { // also where nothing can be written
		return &fs.PathError{Op: "create", Path: name, Err: syscall.EEXIST}
	}
	tmp, err := temporary(root, name, mode)
	if err != nil {
		return err
	}
	if err = write(tmp, data); err == nil {
		err = link(tmp.Name, name)
	}
	err = errors.Join(err, root.Remove(tmp.Name))
	if unlinkable(err) {
		return createInPlace(root, name, data, mode)
	}
	if err != nil {
		return err
	}
	return SyncFolder(root, filepath.Dir(name))
}

// unlinkable tells whether an error says that the file system has no links.
func unlinkable(err error) bool {
	var link *os.LinkError
	return errors.As(err, &link) && (errors.Is(link.Err, syscall.EPERM) || errors.Is(link.Err, syscall.ENOTSUP) || errors.Is(link.Err, syscall.ENOSYS))
}

// createInPlace is for file systems without links.
func createInPlace(root *os.Root, name string, data []byte, mode fs.FileMode) error {
	f, err := root.OpenFile(name, newFile, 0o600)
	if err != nil {
		return err
	}
	if err := write(temp{File: f, Mode: mode}, data); err != nil {
		return errors.Join(err, root.Remove(name))
	}
	return SyncFolder(root, filepath.Dir(name))
}

// temporary makes a temporary file beside a name, with as much of it as fits.
func temporary(root *os.Root, name string, mode fs.FileMode) (temp, error) {
	base := filepath.Base(name)
	tmp := filepath.Join(filepath.Dir(name), "."+strings.ToValidUTF8(base[:min(len(base), longest)], "")+"."+rand.Text())
	f, err := root.OpenFile(tmp, newFile, 0o600)
	return temp{File: f, Name: tmp, Mode: mode}, err
}

// temp is a new, empty file, made with O_EXCL, and its name below the root.
type temp struct {
	File *os.File // open for writing
	Name string
	Mode fs.FileMode // that it gets, whatever the umask is
}

// finish writes data into a temporary file, and renames it. On an error it is removed.
func finish(root *os.Root, tmp temp, name string, data []byte) error {
	err := write(tmp, data)
	if err == nil {
		err = root.Rename(tmp.Name, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(tmp.Name))
	}
	return SyncFolder(root, filepath.Dir(name))
}

func write(tmp temp, data []byte) error {
	_, err := tmp.File.Write(data)
	if err == nil {
		err = tmp.File.Chmod(tmp.Mode)
	}
	if err == nil {
		err = tmp.File.Sync()
	}
	return errors.Join(err, tmp.File.Close())
}

// SyncFolder makes the names in a folder below the root last; "." is the root itself.
// File systems that cannot flush a folder are taken at their word.
func SyncFolder(root *os.Root, below string) error {
	f, err := root.Open(below)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written through it
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}
