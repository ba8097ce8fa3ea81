package archive

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// freeSpace returns how many bytes this process may still write in a directory.
func freeSpace(dir string) (free int64, known bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil || s.Blocks == 0 {
		return 0, false
	}
	return available(s), true
}

// available returns a file system's free bytes, in blocks of Frsize. Bsize is the best transfer size, which is larger
// than a block on FUSE.
func available(s unix.Statfs_t) int64 {
	return int64(min(s.Bavail*uint64(s.Frsize), math.MaxInt64)) //nolint:gosec // block sizes are positive
}

// mayWrite returns an error if this process may not create files in a directory.
func mayWrite(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

// allocated returns how many bytes of a sparse file are on the disk.
func allocated(f *os.File) int64 {
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return 0
	}
	return s.Blocks * 512
}

// flushData flushes the bytes of a file to disk.
func flushData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// lockFile locks a file against other processes until f is closed, and reports whether it succeeded. It reports true
// on file systems without locks; there, signing compares index.json before replacing it.
func lockFile(f *os.File) bool {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			return !errors.Is(err, unix.EWOULDBLOCK)
		}
	}
}
