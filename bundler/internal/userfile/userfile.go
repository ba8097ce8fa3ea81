// Package userfile reads and writes the files that the user names, with errors that
// say which file and what to look at.
//
//	data, err := userfile.Read("--key", "release.pub", 64<<10)
//	err := userfile.Write("lock.yaml", data, 0o644)
package userfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Read reads a file of at most limit bytes. flag is what named it, for messages.
func Read(flag, name string, limit int64) ([]byte, error) {
	f, err := os.Open(name) //nolint:gosec // the user names the file
	if err != nil {
		return nil, Unreadable(flag, name, err)
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, Unreadable(flag, name, err)
	}
	if int64(len(data)) > limit {
		return nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "read", Subject: name, Err: fmt.Errorf("larger than %d bytes", limit),
			Hint: fmt.Sprintf("check that %s names the right file", flag),
		}
	}
	return data, nil
}

// Unreadable is the error of a file or folder that cannot be read.
func Unreadable(flag, name string, err error) error {
	reason := fault.Storage
	if errors.Is(err, fs.ErrNotExist) {
		reason = fault.NotFound
	}
	return &fault.Error{
		Reason: reason, Op: "read", Subject: name, Err: WithoutPath(err), Hint: fmt.Sprintf("check the path given with %s", flag),
	}
}

// Write writes a file so that it is there whole, or not at all. Links go on leading
// where they led; pipes and devices are written into.
func Write(name string, data []byte, mode os.FileMode) error {
	if err := replace(name, data, mode); err != nil {
		return &fault.Error{
			Reason: fault.Storage, Op: "write", Subject: name, Err: WithoutPath(err),
			Hint: "check that the folder is there, can be written to, and has space",
		}
	}
	return nil
}

func replace(name string, data []byte, mode os.FileMode) error {
	if done, err := inPlace(name, data); done {
		return err
	}
	to := behind(name)
	f, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // gone after the rename
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), to)
}

// inPlace writes into what is there under a name and is no regular file: a pipe, a
// device such as /dev/stdout. Its name is not given to another file. It tells whether
// there is such a thing.
func inPlace(name string, data []byte) (bool, error) {
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

// WithoutPath drops the path of an error of package os, where a fault names it.
func WithoutPath(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return link.Err
	}
	return err
}
