package archive

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// directory is the directory of an archive, or an archive itself. It reopens only regular files.
type directory struct{ *atomicfile.Folder }

func openDirectory(path string) (*directory, error) {
	dir, err := atomicfile.Open(path)
	if err != nil {
		return nil, atomicfile.Fault("write into", path, err)
	}
	return &directory{dir}, nil
}

// openToRead opens a file for reading, without blocking on a pipe.
func (d *directory) openToRead(name string) (*os.File, error) {
	return d.Root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// reopen opens an existing file for reading and writing.
func (d *directory) reopen(name string) (*os.File, error) {
	f, err := d.Root.OpenFile(name, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, atomicfile.Fault("write", d.At(name), err)
	}
	if err := mustBeRegular(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// resume opens a file that an interrupted run may have left, or creates it.
func (d *directory) resume(name string) (*os.File, error) {
	f, err := d.reopen(name)
	if errors.Is(err, fs.ErrNotExist) {
		return d.Make(name, 0o644)
	}
	return f, err
}

// busy returns the fault for a second process.
func busy(path string) error {
	return fault.Errorf(fault.Conflict, "write", path, "wait for it to end, or stop it", "another process is writing it")
}

// lockArchive locks the archive of a name, and creates the lock file if it is missing. The holder may delete the
// file, so the lock counts only if the locked file still has its name.
func (d *directory) lockArchive(archive string) (*archiveLock, error) {
	f, err := d.resume(archive + journalSuffix)
	if errors.Is(err, fs.ErrExist) { // another process has created it meanwhile, or it is a dangling link
		if info, statErr := d.Root.Lstat(archive + journalSuffix); statErr != nil || info.Mode().IsRegular() {
			err = busy(d.At(archive))
		}
	}
	if err != nil {
		return nil, err
	}
	lock := &archiveLock{d, archive + journalSuffix, f}
	if !lockFile(f) || !lock.isNamed() {
		return nil, errors.Join(busy(d.At(archive)), f.Close())
	}
	return lock, nil
}

// lockLocation opens the directory of an archive, whole or in parts, and locks the archive.
func lockLocation(path string) (*directory, *archiveLock, error) {
	dir, err := openDirectory(filepath.Dir(path))
	if err != nil {
		return nil, nil, err
	}
	lock, err := dir.lockArchive(filepath.Base(path))
	if err != nil {
		return nil, nil, errors.Join(err, dir.Close())
	}
	return dir, lock, nil
}

// journalSuffix ends the name of an archive's journal, which is also its lock.
const journalSuffix = ".journal"

// archiveLock locks an archive, whole or in parts, through its journal. Function release deletes an empty journal.
type archiveLock struct {
	dir  *directory
	name string
	f    *os.File
}

// isNamed reports whether the file still has its name.
func (l *archiveLock) isNamed() bool {
	named, err := l.dir.Root.Lstat(l.name)
	mine, mineErr := l.f.Stat()
	return err == nil && mineErr == nil && os.SameFile(named, mine)
}

// release unlocks the archive. If the holder has deleted the file, another process may own that name now.
func (l *archiveLock) release() error {
	info, err := l.f.Stat()
	if err == nil && info.Size() == 0 && l.isNamed() {
		err = l.dir.Remove(l.name)
	}
	return errors.Join(err, l.f.Close())
}

// openQuietly opens a file for reading, without blocking on a pipe.
func openQuietly(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// openRegular opens a regular file for reading. A pipe would block until another process writes into it.
func openRegular(path string) (*os.File, error) {
	f, err := openQuietly(path)
	if err != nil {
		return nil, err
	}
	if err := mustBeRegular(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func mustBeRegular(f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return openFault(f.Name(), err)
	case info.IsDir():
		return fault.Errorf(fault.InvalidInput, "open", filepath.Clean(f.Name()),
			"name a folder as "+fault.Quote("oci:"+filepath.Clean(f.Name())), "it is a folder")
	case !info.Mode().IsRegular():
		return fault.Errorf(fault.InvalidInput, "open", filepath.Clean(f.Name()), "give a file that is on a disk",
			"it is not a regular file")
	}
	return nil
}
