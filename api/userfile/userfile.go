// Package userfile reads and writes files that the user names, with errors that name the file and
// the remedy.
//
//	data, err := userfile.Read("--key", "release.pub", 64<<10)
//	err := userfile.Vacant("lock.yaml", replace)
//	err = userfile.Write("lock.yaml", data, 0o644)
//	err = userfile.WriteBelow("certs.d", "registry.site/hosts.toml", data, 0o644)
//
// It reads regular files, and files that the caller passes open, such as /dev/stdin or a shell's
// <(command). It refuses other pipes and devices, which could block forever.
package userfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Open opens a file for reading, without blocking.
func Open(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // the user names the file
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() && !handedOver(name) {
		err = errIrregular
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

var errIrregular = errors.New("it is not a regular file")

// handedOver reports whether a name is that of a file that the caller has opened, or empty.
func handedOver(name string) bool {
	return name == os.DevNull || name == "/dev/stdin" || strings.HasPrefix(name, "/dev/fd/") || strings.HasPrefix(name, "/proc/self/fd/")
}

// Read reads a file of at most limit bytes. flag is its source, for messages.
func Read(flag, name string, limit int64) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, Unreadable(flag, name, err)
	}
	defer f.Close() //nolint:errcheck // only read
	return ReadFrom(flag, name, f, limit)
}

// ReadFrom reads an open file as [Read] does.
func ReadFrom(flag, name string, f io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, Unreadable(flag, name, err)
	}
	if int64(len(data)) > limit {
		return nil, fault.Errorf(fault.InvalidInput, "read", name,
			"check that it is the right file"+with(", given", flag), "larger than %d bytes", limit)
	}
	return data, nil
}

// Parse reads a file as [Read] does, then parses it; parse gets the name for messages.
func Parse[T any](flag, name string, limit int64, parse func(name string, data []byte) (T, error)) (T, error) {
	data, err := Read(flag, name, limit)
	if err != nil {
		var none T
		return none, err
	}
	return parse(name, data)
}

// Unreadable returns the fault for a file or directory that cannot be read.
func Unreadable(flag, name string, err error) error {
	err = atomicfile.WithoutPath(err)
	f := fault.Errorf(fault.Storage, "read", name, "check the path"+with(" given", flag), "%w", err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Reason = fault.NotFound
	case errors.Is(err, fs.ErrPermission):
		f.Hint = atomicfile.Hint(err)
	case errors.Is(err, errIrregular):
		f.Reason, f.Hint = fault.InvalidInput, "give a file that is on a disk"+with("", flag)
	}
	return f
}

// with returns text that names the flag of a file; messages show arguments themselves.
func with(given, flag string) string {
	if !strings.HasPrefix(flag, "-") {
		return ""
	}
	return given + " with " + flag
}

// Vacant returns a fault if writing would lose a file that must not be replaced, or overwrite an input, also through
// a link. Empty files, pipes and devices lose nothing.
func Vacant(name string, replace bool, inputs ...string) error {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil //nolint:nilerr // it is made, or writing says why not
	case info.IsDir():
		return fault.Errorf(fault.InvalidInput, "write", name, "name a file in it", "it is a folder")
	case slices.ContainsFunc(inputs, func(input string) bool {
		in, err := os.Stat(input)
		return err == nil && os.SameFile(in, info)
	}):
		return fault.Errorf(fault.Conflict, "write", name, "choose another name", "this command reads it")
	case replace, !info.Mode().IsRegular(), info.Size() == 0:
		return nil
	}
	return fault.Errorf(fault.Conflict, "write", name, "choose another name, or replace it with --replace",
		"it is there already")
}

// Write writes a file completely or not at all. It keeps links and, unless only the owner may read, the mode of a file
// that is there. It writes into pipes and devices (/dev/stdout).
func Write(name string, data []byte, mode os.FileMode) error {
	return Fill(name, mode, atomicfile.Writing(data))
}

// Fill is a [Write] whose data fill writes. For mode 0 see [atomicfile.Folder.Fill].
func Fill(name string, mode os.FileMode, fill func(*os.File) error) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0) //nolint:gosec // the user names the file
		if err == nil {
			err = errors.Join(fill(f), f.Close())
		}
		return atomicfile.Fault("write", name, err)
	}
	to, err := Behind(name)
	if err != nil {
		return atomicfile.Fault("write", name, err)
	}
	if info, err := os.Stat(to); err == nil && mode != 0o600 && mode != 0 {
		mode = info.Mode().Perm() // its owner may have kept others out
	}
	return in(filepath.Dir(to), name, func(d *atomicfile.Folder) error {
		return d.Fill(filepath.Base(to), mode, fill)
	})
}

// WriteNew creates a file, and never replaces one.
func WriteNew(name string, data []byte, mode os.FileMode) error {
	err := in(filepath.Dir(name), name, func(d *atomicfile.Folder) error {
		return d.New(filepath.Base(name), data, mode)
	})
	if errors.Is(err, fs.ErrExist) {
		return fault.Errorf(fault.Conflict, "write", name, "choose another name, or move the file away",
			"it is there already")
	}
	return err
}

// WriteBelow writes a file below dir, as [Write] does, and creates its directories. The name is not the user's, so it
// must not lead out of dir, directly or through links. It refuses to replace other than regular files.
func WriteBelow(dir, name string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return atomicfile.Fault("write", dir, err)
	}
	return in(dir, dir, func(d *atomicfile.Folder) error {
		if err := d.Mkdir(filepath.Dir(name)); err != nil {
			return err
		}
		if info, err := d.Root.Lstat(name); err == nil && !info.Mode().IsRegular() {
			return atomicfile.Fault("write", d.At(name), errors.New("it is there and not a regular file"))
		}
		return d.Replace(name, data, mode)
	})
}

// in calls do with an open directory; name is the file to write.
func in(dir, name string, do func(*atomicfile.Folder) error) error {
	d, err := atomicfile.Open(dir)
	if err != nil {
		return atomicfile.Fault("write", name, err)
	}
	defer d.Close() //nolint:errcheck // nothing is written through it any more
	return do(d)
}

// Behind returns the target of a link, so that replacing the target keeps the link. A dangling link is an error.
func Behind(name string) (string, error) {
	if info, err := os.Lstat(name); err != nil || info.Mode()&os.ModeSymlink == 0 {
		return name, nil //nolint:nilerr // whoever uses the name learns what is wrong
	}
	return filepath.EvalSymlinks(name)
}
