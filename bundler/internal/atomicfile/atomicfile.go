// Package atomicfile writes small files so that they are there whole, or not at all,
// after a crash too: a temporary file in the same folder, its bytes flushed, a rename, the
// folder flushed. Who reads the name meanwhile sees the old file or the new one.
// What a crash leaves is the temporary file, .vdo-RANDOM, which nobody reads.
//
// [Create] never replaces a file, and so writes under the name itself: a crash may leave a
// cut file there, which the next Create refuses to touch.
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
	"syscall"
)

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
	tmp := filepath.Join(filepath.Dir(name), ".vdo-"+rand.Text())
	if err := write(root, tmp, data, mode); err != nil {
		return err
	}
	if err := root.Rename(tmp, name); err != nil {
		return errors.Join(err, root.Remove(tmp))
	}
	return SyncFolder(root, filepath.Dir(name))
}

// Create writes data under a name that nothing has yet; else the error is fs.ErrExist.
func Create(root *os.Root, name string, data []byte, mode fs.FileMode) error {
	if err := write(root, name, data, mode); err != nil {
		return err
	}
	return SyncFolder(root, filepath.Dir(name))
}

// write makes a file with data, whose mode does not depend on the umask, or none.
func write(root *os.Root, name string, data []byte, mode fs.FileMode) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, root.Remove(name))
	}
	return err
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
