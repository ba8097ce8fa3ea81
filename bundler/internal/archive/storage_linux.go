package archive

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// freeSpace is the number of bytes that we may still write in a folder.
func freeSpace(dir string) (free int64, known bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil || s.Blocks == 0 {
		return 0, false
	}
	return available(s), true
}

// available is what a file system says to have, in blocks of Frsize: Bsize is the best size
// of a transfer, on FUSE larger than a block.
func available(s unix.Statfs_t) int64 {
	return int64(min(s.Bavail*uint64(s.Frsize), math.MaxInt64)) //nolint:gosec // block sizes are positive
}

// mayWrite is an error where this process may make no files in a folder.
func mayWrite(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

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

// lockFile keeps a second process off, and tells whether it is this one that has the
// file; the lock ends with the file's closing. Some file systems have no locks: there
// it is always this one, and what is replaced is compared before.
func lockFile(f *os.File) bool {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			return !errors.Is(err, unix.EWOULDBLOCK)
		}
	}
}
