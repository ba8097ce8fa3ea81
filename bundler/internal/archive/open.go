package archive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const (
	// openTries bounds how often a reader begins again while another process writes.
	openTries = 200
	openPause = 5 * time.Millisecond
)

// A tarFile is an archive in one file or in parts that is open for reading.
type tarFile struct {
	path string     // by which it was opened: of parts, that of the parts file
	open []*storage // the last one is read; others may still be
}

// OpenFile opens an archive and reads its headers and index.json. The archive may
// be in parts: path is then the parts file, or the archive's name where only the
// parts file of that name is there. What somebody signs at that moment is seen as it was
// before or as it is afterwards.
func OpenFile(path string) (*Archive, error) { return open(&tarFile{path: path}) }

// read opens the archive again, which may be another one by now.
func (a *tarFile) read() (*index, error) {
	x, err := openSteadily(a.path, scanStorage)
	if err != nil {
		return nil, fault.Join(err, damageOf(a.path))
	}
	a.path, a.open = x.tar.v.place, append(a.open, x.tar.v)
	return x, nil
}

func (a *tarFile) Close() error {
	var errs []error
	for _, v := range a.open {
		errs = append(errs, v.Close())
	}
	return errors.Join(errs...)
}

// openSteadily opens an archive, again where that fails while another process has its lock,
// and once more. Readers take no lock: they may have no right to, and would keep off who signs.
func openSteadily(path string, scan func(*storage) (*index, error)) (*index, error) {
	x, err := openOnce(path, scan)
	for try, writing := 0, true; err != nil && writing && try < openTries; try++ {
		if writing = beingWritten(path); writing {
			time.Sleep(openPause)
		}
		x, err = openOnce(path, scan)
	}
	return x, err
}

func openOnce(path string, scan func(*storage) (*index, error)) (*index, error) {
	v, err := openStorage(path)
	if err != nil {
		return nil, err
	}
	x, err := scan(v)
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return x, nil
}

// damageOf names the parts of an archive that are the reason why it cannot be read.
func damageOf(path string) error {
	v, err := openStorage(path)
	if err != nil {
		return nil //nolint:nilerr // that is known already
	}
	defer v.Close() //nolint:errcheck // nothing was written
	if v.list == nil {
		return nil
	}
	return damaged(context.Background(), v, func(i int) bool { return i < int(v.list.Count()) })
}

// scanStorage reads the headers of an archive, and its index.json before them and before its
// size: what an index.json names is there when it is written.
func scanStorage(v *storage) (*index, error) {
	x, err := scanAfter(v.path, v, v.size)
	if err == nil {
		x.tar.v = v
	}
	return x, err
}

func scanAfter(path string, r io.ReaderAt, size func() (int64, error)) (*index, error) {
	n, err := size()
	if err != nil {
		return nil, err
	}
	early, err := scanTar(path, r, n, func(t *tarball) bool { return t.last() == indexName })
	if err != nil {
		return nil, err
	}
	data, err := readIndex(path, early.small)
	if err != nil {
		return nil, err
	}
	if n, err = size(); err != nil {
		return nil, err
	}
	t, err := scanTar(path, r, n, nil)
	if err != nil {
		return nil, err
	}
	return t.parse(data)
}

// beingChanged is the fault of who finds no moment to read at.
func beingChanged(path string) error {
	return fault.Errorf(fault.Conflict, "read", path, "wait for it to end, and run the same command again",
		"another process is changing it")
}

// unlessChanged is what is wrong with an archive, or that another process has changed it, or
// does at this moment: a signing that is not done has not the form that is checked for.
func (t *tarball) unlessChanged(err error) error {
	if err != nil && (beingWritten(t.v.place) || t.changed()) { // in this order: it may end in between
		return beingChanged(t.path)
	}
	return err
}

// changed tells whether an archive is not as it was read. What another archive took the
// place of is still as it was.
func (t *tarball) changed() bool {
	if t.v.list != nil {
		now, err := readParts(t.v.place)
		return err == nil && !bytes.Equal(now.Text(), t.v.list.Text())
	}
	size, err := t.v.size()
	data, readErr := t.small(indexName, maxIndexSize)
	return err == nil && size != t.size || readErr == nil && !bytes.Equal(data, t.data)
}

// behindLinks is the file that a path leads to: who signs through a link signs there.
func behindLinks(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// beingWritten says whether somebody has the lock of an archive at this moment. It is
// asked only where something is wrong: for the time of the question it keeps others off.
func beingWritten(path string) bool {
	if name, err := lockedName(path); err == nil {
		path = name
	}
	lock, err := openQuietly(path + journalSuffix)
	if err != nil {
		return false
	}
	defer lock.Close() //nolint:errcheck // nothing was written
	return !lockFile(lock)
}
