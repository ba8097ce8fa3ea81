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

// A folder is where the files of an archive are made, changed and named: the one way
// by which this package writes. A medium may come from somebody else, and the names
// that are written beside an archive are known to everybody; so nothing that lies
// under such a name leads a write elsewhere: no name leads out of the folder, a new file is
// made with O_EXCL, and one that is taken up again has to be a regular one.
type folder struct {
	path string
	root *os.Root
}

// openFolder opens a folder that the user named; links in its own path are the user's.
func openFolder(path string) (*folder, error) {
	root, err := atomicfile.OpenRoot(path)
	if err != nil {
		return nil, storageFault("write into", path, err)
	}
	return &folder{path: path, root: root}, nil
}

func (d *folder) Close() error { return d.root.Close() }

// at is the path of a name, for messages.
func (d *folder) at(name string) string { return filepath.Join(d.path, name) }

// openToRead opens a file for reading; it does not wait where a pipe has the name.
func (d *folder) openToRead(name string) (*os.File, error) {
	return d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// make makes a file that is not there yet, for reading and writing.
func (d *folder) make(name string, mode fs.FileMode) (*os.File, error) {
	f, err := d.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, storageFault("write", d.at(name), err)
	}
	return f, nil
}

// create makes a file; what lies under its name goes first.
func (d *folder) create(name string, mode fs.FileMode) (*os.File, error) {
	if err := d.remove(name); err != nil {
		return nil, err
	}
	return d.make(name, mode)
}

// reopen opens a file that is there, for reading and writing.
func (d *folder) reopen(name string) (*os.File, error) {
	f, err := d.root.OpenFile(name, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, storageFault("write", d.at(name), err)
	}
	if err := mustBeRegular(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// resume opens a file that an interrupted run may have left, or makes it.
func (d *folder) resume(name string) (*os.File, error) {
	f, err := d.reopen(name)
	if errors.Is(err, fs.ErrNotExist) {
		return d.make(name, 0o644)
	}
	return f, err
}

// write makes a file with data appear at once.
func (d *folder) write(name string, data []byte) error {
	return storageFault("write", d.at(name), atomicfile.Replace(d.root, name, data, 0o644))
}

// rename gives a file another name. What has that name loses it; a link there is
// replaced, not followed.
func (d *folder) rename(from, to string) error {
	return storageFault("write", d.at(to), d.root.Rename(from, to))
}

// remove removes a name, where it is there.
func (d *folder) remove(name string) error {
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return storageFault("remove", d.at(name), err)
	}
	return nil
}

// has tells whether something has a name.
func (d *folder) has(name string) bool {
	_, err := d.root.Lstat(name)
	return err == nil
}

// sync makes the names in a folder below, "." for the folder itself, last.
func (d *folder) sync(below string) error {
	return storageFault("flush", d.at(below), atomicfile.SyncFolder(d.root, below))
}

// mkdir makes the folders of a path below.
func (d *folder) mkdir(below string) error {
	return storageFault("write", d.at(below), d.root.MkdirAll(below, 0o755))
}

// busy is the fault of who comes second.
func busy(path string) error {
	return fault.Errorf(fault.Conflict, "write", path, "wait for it to end, or stop it", "another process is writing it")
}

// lockArchive takes the lock of the archive of a name, and makes its file where it is not there. Who
// holds it may remove it, and then nobody else has it: what is locked is the file that has the name
// at that moment.
func (d *folder) lockArchive(archive string) (*archiveLock, error) {
	f, err := d.resume(archive + journalSuffix)
	if errors.Is(err, fs.ErrExist) { // another one has made it meanwhile, or it is a link to nothing
		if info, statErr := d.root.Lstat(archive + journalSuffix); statErr != nil || info.Mode().IsRegular() {
			err = busy(d.at(archive))
		}
	}
	if err != nil {
		return nil, err
	}
	lock := &archiveLock{d, archive + journalSuffix, f}
	if !lockFile(f) || !lock.isNamed() {
		return nil, errors.Join(busy(d.at(archive)), f.Close())
	}
	return lock, nil
}

// lockPlace opens the folder of an archive, and takes the lock of that; of parts, that of the archive that they are.
func lockPlace(path string) (*folder, *archiveLock, error) {
	dir, err := openFolder(filepath.Dir(path))
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
func (d *folder) lockSelf() (*os.File, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, storageFault("lock", d.path, err)
	}
	if !lockFile(f) {
		return nil, errors.Join(busy(d.path), f.Close())
	}
	return f, nil
}

// journalSuffix of the name of an archive's journal, which is its lock as well.
const journalSuffix = ".journal"

// An archiveLock is held by who changes an archive in one file or in parts. The lock
// is on its journal, whoever writes one; an empty journal goes with the lock.
type archiveLock struct {
	dir  *folder
	name string
	f    *os.File
}

// isNamed tells whether the file has its name still.
func (l *archiveLock) isNamed() bool {
	named, err := l.dir.root.Lstat(l.name)
	mine, mineErr := l.f.Stat()
	return err == nil && mineErr == nil && os.SameFile(named, mine)
}

// release gives the lock back. Where its holder has removed the file, what has the name
// may be another's lock by now.
func (l *archiveLock) release() error {
	info, err := l.f.Stat()
	if err == nil && info.Size() == 0 && l.isNamed() {
		err = l.dir.remove(l.name)
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

// readRegular reads a regular file of at most limit bytes.
func readRegular(path string, limit int64) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, openFault(path, err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	return readAtMost(path, f, limit)
}

// readAtMost reads all of a file, which has limit bytes at most.
func readAtMost(path string, f io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, storageFault("read", path, err)
	}
	if int64(len(data)) > limit {
		return nil, brokenFile(path, "it has more than %d bytes", limit)
	}
	return data, nil
}
