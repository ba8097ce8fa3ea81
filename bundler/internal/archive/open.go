package archive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// A tarFile is an archive in one file or in parts that is open for reading.
type tarFile struct {
	path string     // by which it was opened: of parts, that of the parts file
	open []*storage // the last one is read; others may still be
}

// OpenFile opens an archive and reads its headers and index.json. The archive may
// be in parts: path is then the parts file, or the archive's name where only the
// parts file of that name is there.
func OpenFile(path string) (*Archive, error) { return open(&tarFile{path: path}) }

// read opens the archive again, which may be another one by now.
func (a *tarFile) read() (*index, error) {
	v, err := openStorage(a.path)
	if err != nil {
		return nil, err
	}
	x, err := scanStorage(v)
	if err != nil {
		if v.list != nil { // parts of it may be the reason
			err = fault.Join(err, damaged(context.Background(), v))
		}
		return nil, errors.Join(unlessWritten(v, err), v.Close())
	}
	a.path, a.open = v.place, append(a.open, v)
	return x, nil
}

func (a *tarFile) Close() error {
	var errs []error
	for _, v := range a.open {
		errs = append(errs, v.Close())
	}
	return errors.Join(errs...)
}

// scanStorage reads the headers of an archive, and its index.json.
func scanStorage(v *storage) (*index, error) {
	size, err := v.size()
	if err != nil {
		return nil, err
	}
	x, err := scan(v.path, v, size)
	if err == nil {
		x.tar.v = v
	}
	return x, err
}

func scan(path string, r io.ReaderAt, size int64) (*index, error) {
	t, err := scanTar(path, r, size)
	if err != nil {
		return nil, err
	}
	data, err := readIndex(path, t.small)
	if err != nil {
		return nil, err
	}
	return t.parse(data)
}

// unlessWritten is what is wrong with an archive, or that another process changes it at this
// moment. Readers take no lock: they may have no right to, and would keep off who signs.
func unlessWritten(v *storage, err error) error {
	if err != nil && beingWritten(v.path) {
		return beingChanged(v.place)
	}
	return err
}

func beingChanged(path string) error {
	return fault.Errorf(fault.Conflict, "read", path, "wait for it to end, and run the same command again",
		"another process is changing it")
}

// beingWritten says whether somebody has the lock of an archive at this moment. It is
// asked only where something is wrong: for the time of the question it keeps others off.
func beingWritten(path string) bool {
	lock, err := openQuietly(behindLinks(path) + journalSuffix)
	if err != nil {
		return false
	}
	defer lock.Close() //nolint:errcheck // nothing was written
	return !lockFile(lock)
}

// behindLinks is the file that a path leads to: who signs through a link signs there.
func behindLinks(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// changed tells whether a file was signed since it was read. What another archive took the
// place of is still as it was, and parts never change.
func (t *tarball) changed() bool {
	size, err := t.v.size()
	data, readErr := t.small(indexName, maxIndexSize)
	return err == nil && size != t.size || readErr == nil && !bytes.Equal(data, t.data)
}
