package matrixcmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// readFile reads a file that the user named, up to one byte more than limit, so
// that whoever parses it can say that it is too long.
func readFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name) //nolint:gosec // the user names the file
	if err != nil {
		return nil, unreadable(name, err)
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, unreadable(name, err)
	}
	return data, nil
}

func unreadable(name string, err error) error {
	reason, hint := fault.Storage, "check the file and its permissions"
	if errors.Is(err, fs.ErrNotExist) {
		reason, hint = fault.NotFound, "check the name of the file"
	}
	return &fault.Error{Reason: reason, Op: "read", Subject: name, Hint: hint, Err: withoutPath(err)}
}

// writeFile puts a file in its place whole or not at all.
func writeFile(name string, data []byte) error {
	err := replaceFile(name, data)
	if err == nil {
		return nil
	}
	return &fault.Error{
		Reason: fault.Storage, Op: "write", Subject: name, Err: withoutPath(err),
		Hint: "check that the folder is there, can be written to, and has space",
	}
}

func replaceFile(name string, data []byte) error {
	if done, err := writeInPlace(name, data); done {
		return err
	}
	to := behind(name)
	f, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // gone after the rename
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), to)
}

// writeInPlace writes into what is there under a name and is no regular file: a pipe,
// a device such as /dev/stdout. Its name is not given to another file. It tells
// whether there is such a thing.
func writeInPlace(name string, data []byte) (bool, error) {
	info, err := os.Stat(name)
	if err != nil || info.Mode().IsRegular() || info.IsDir() {
		return false, nil //nolint:nilerr // a file is made, or it is said why not
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0) //nolint:gosec // the user names the file
	if err != nil {
		return true, err
	}
	_, err = f.Write(data)
	return true, errors.Join(err, f.Close())
}

// behind returns what a link leads to, so that the link stays.
func behind(name string) string {
	if to, err := filepath.EvalSymlinks(name); err == nil {
		return to
	}
	return name
}

// withoutPath drops the path that the fault names already.
func withoutPath(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return link.Err
	}
	return fmt.Errorf("%w", err)
}
