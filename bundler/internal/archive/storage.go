package archive

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
)

// storageFault tells what a local file's error means to a person. Faults pass as
// they are.
func storageFault(op, path string, err error) error {
	var f *fault.Error
	if err == nil || errors.As(err, &f) {
		return err
	}
	return fault.Errorf(fault.Storage, op, path, storageHint(err), "%w", userfile.WithoutPath(err))
}

func storageHint(err error) string {
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

// openFault is for what is read: a file that is not there is NotFound.
func openFault(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Errorf(fault.NotFound, "open", path, "check the path", "%w", userfile.WithoutPath(err))
	}
	return storageFault("open", path, err)
}

// checkSpace refuses to begin what cannot end: need bytes beside what is there.
func checkSpace(path string, need int64) error {
	free, isKnown := freeSpace(filepath.Dir(path))
	if !isKnown || need <= free {
		return nil
	}
	return fault.Errorf(fault.Storage, "write", path, storageHint(syscall.ENOSPC),
		"it needs %d bytes more, and %d are free: %w", need, free, syscall.ENOSPC)
}

// checkFolder demands that a folder is there, and that files can be made in it.
func checkFolder(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		err = mayWrite(dir)
	}
	return storageFault("write into", dir, err)
}
