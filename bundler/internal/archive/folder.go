package archive

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/atomicfile"
)

// A folder is where an archive is written, or is itself. A file that is taken up again has to be a regular one.
type directory struct{ *atomicfile.Folder }

// openDirectory opens a folder to write into.
func openDirectory(path string) (*directory, error) {
	dir, err := atomicfile.Open(path)
	if err != nil {
		return nil, atomicfile.Fault("write into", path, err)
	}
	return &directory{dir}, nil
}

// openToRead opens a file for reading; it does not wait where a pipe has the name.
func (d *directory) openToRead(name string) (*os.File, error) {
	return d.Root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// reopen opens a file that is there, for reading and writing.
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

// resume opens a file that an interrupted run may have left, or makes it.
func (d *directory) resume(name string) (*os.File, error) {
	f, err := d.reopen(name)
	if errors.Is(err, fs.ErrNotExist) {
		return d.Make(name, 0o644)
	}
	return f, err
}

// busy is the fault of who comes second.
func busy(path string) error {
	return fault.Errorf(fault.Conflict, "write", path, "wait for it to end, or stop it", "another process is writing it")
}

// lockArchive takes the lock of the archive of a name, and makes its file where it is not there. Who
// holds it may remove it, and then no one else has it: what is locked is the file that has the name
// at that moment.
func (d *directory) lockArchive(archive string) (*archiveLock, error) {
	f, err := d.resume(archive + journalSuffix)
	if errors.Is(err, fs.ErrExist) { // another one has made it meanwhile, or it is a link to nothing
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

// lockLocation opens the folder of an archive, and takes the lock of that; of parts, that of the archive that they are.
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

// lockSelf keeps other processes of this program off the folder as a whole. The lock
// ends with the closing of what is returned.
func (d *directory) lockSelf() (*os.File, error) {
	f, err := d.Root.Open(".")
	if err != nil {
		return nil, atomicfile.Fault("lock", d.Path, err)
	}
	if !lockFile(f) {
		return nil, errors.Join(busy(d.Path), f.Close())
	}
	return f, nil
}

// journalSuffix of the name of an archive's journal, which is its lock as well.
const journalSuffix = ".journal"

// An archiveLock is held by who changes an archive in one file or in parts. The lock
// is on its journal, whoever writes one; an empty journal goes with the lock.
type archiveLock struct {
	dir  *directory
	name string
	f    *os.File
}

// isNamed tells whether the file has its name still.
func (l *archiveLock) isNamed() bool {
	named, err := l.dir.Root.Lstat(l.name)
	mine, mineErr := l.f.Stat()
	return err == nil && mineErr == nil && os.SameFile(named, mine)
}

// release gives the lock back. Where its holder has removed the file, what has the name
// may be another's lock by now.
func (l *archiveLock) release() error {
	info, err := l.f.Stat()
	if err == nil && info.Size() == 0 && l.isNamed() {
		err = l.dir.Remove(l.name)
	}
	return errors.Join(err, l.f.Close())
}

// openQuietly opens a file for reading; it does not wait where a pipe has the name.
func openQuietly(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// openRegular opens a file for reading that has to be a regular one. A pipe would
// keep the program waiting for who writes into it.
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

// readAtMost reads all of a file, which has limit bytes at most.
func readAtMost(path string, f io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, atomicfile.Fault("read", path, err)
	}
	if int64(len(data)) > limit {
		return nil, brokenFile(path, "it has more than %d bytes", limit)
	}
	return data, nil
}
