package archive

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// freeSpace is the number of bytes that we may still write in a folder.
func freeSpace(dir string) (free int64, known bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil || s.Blocks == 0 {
		return 0, false
	}
	total := s.Bavail * uint64(s.Bsize) //nolint:gosec // block sizes are positive
	return int64(min(total, math.MaxInt64)), true
}

// allocated is the number of bytes of a sparse file that have a place on the disk.
func allocated(f *os.File) int64 {
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return 0
	}
	return s.Blocks * 512
}

// flushData makes the bytes of a file last.
func flushData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// lockFile keeps a second process off; the lock ends with the file's closing.
func lockFile(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return &fault.Error{
			Reason: fault.Conflict, Op: "write", Subject: f.Name(), Hint: "wait for it to end, or stop it",
			Err: errors.New("another process is writing it"),
		}
	}
	return nil // some file systems have no locks: the risk is the user's own
}
