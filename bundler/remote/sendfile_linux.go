package remote

import (
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

const canSendfile = true

// errNotSendable is a file that the kernel does not send: it has to be read.
var errNotSendable = errors.New("the kernel does not send from this file system")

// sendfile has the kernel send up to n bytes of a file, from an offset on, and tells how
// many it took. The file's own position is neither used nor moved, so that one open file
// serves many at a time.
func sendfile(to *net.TCPConn, f *os.File, at, n int64) (int64, error) {
	file, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	conn, err := to.SyscallConn()
	if err != nil {
		return 0, err
	}
	var sent int
	var sendErr error
	err = file.Control(func(from uintptr) { // holds the file open meanwhile
		sendErr = conn.Write(func(fd uintptr) (done bool) {
			sent, err = unix.Sendfile(int(fd), int(from), &at, int(n))
			return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
		})
		if sendErr == nil {
			sendErr = err
		}
	})
	if err == nil {
		err = sendErr
	}
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EIO), errors.Is(err, unix.ESTALE):
		return 0, errNotSendable // of a fault of the disk, reading tells more
	case err != nil:
		return 0, os.NewSyscallError("sendfile", err)
	case sent == 0:
		return 0, io.ErrUnexpectedEOF
	}
	return int64(sent), nil
}
