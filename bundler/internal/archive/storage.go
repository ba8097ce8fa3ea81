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

// openFault returns the fault for opening a file to read; a missing file is NotFound.
func openFault(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Errorf(fault.NotFound, "open", path, "check the path", "%w", atomicfile.WithoutPath(err))
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
