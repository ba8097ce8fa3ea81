package archive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

const (
	// openTries bounds how often a reader begins again while others write: a signing
	// takes longer than a look at the headers.
	openTries = 200
	openPause = 5 * time.Millisecond
)

// OpenFile opens an archive and reads its headers and index.json. The archive may
// be in parts: path is then the parts file, or the archive's name where only the
// parts file of that name is there. What somebody signs at that moment is seen as it was
// before or as it is afterwards.
func OpenFile(path string) (*File, error) {
	a, err := openSteadily(path, scanStorage)
	if err != nil {
		return nil, fault.Join(err, damageOf(path))
	}
	return a, nil
}

// damageOf names the parts of an archive that are the reason why it cannot be read.
func damageOf(path string) error {
	f, _, err := openStorage(path)
	if err != nil {
		return nil //nolint:nilerr // that is known already
	}
	defer f.Close() //nolint:errcheck // nothing was written
	v, ok := f.(*volumes)
	if !ok || v.list.Changing {
		return nil
	}
	return damaged(context.Background(), v, func(i int) bool { return i < int(v.list.Count()) })
}

// openSteadily opens an archive, from the beginning again where it was changed meanwhile.
// Readers take no lock: they may have no right to, and would keep off who signs. An archive
// can be read at each step of a signing, so what cannot be read, and is the same twice, is
// broken.
func openSteadily(path string, scan func(string, storage) (*scan, error)) (a *File, err error) {
	var before error
	for range openTries {
		seen := stampOf(path)
		if a, err = openOnce(path, scan); err == nil {
			a.seen = seen
			return a, nil
		}
		still := seen.equal(stampOf(path))
		switch {
		case !mayBeTorn(err), still && before != nil && before.Error() == err.Error():
			return nil, err
		case !still:
			time.Sleep(openPause)
		}
		before = err
	}
	return nil, err
}

// mayBeTorn says whether an error can come of a change at that moment.
func mayBeTorn(err error) bool {
	switch fault.ReasonOf(err) {
	case fault.Corrupt, fault.Incomplete, fault.Storage, fault.Conflict:
		return true
	default:
		return false
	}
}

func openOnce(path string, scan func(string, storage) (*scan, error)) (*File, error) {
	f, path, err := openStorage(path)
	if err != nil {
		return nil, err
	}
	s, err := scan(path, f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &File{path: path, f: f, scan: s, was: s.index}, nil
}

// scanStorage scans an archive as long as it is now.
func scanStorage(path string, f storage) (*scan, error) {
	size, err := storageSize(path, f)
	if err != nil {
		return nil, err
	}
	return scanSized(path, f, size)
}

// scanSized reads the headers of an archive, and index.json before and after them. What
// an index.json names is there when it is written; so where it is the same before and
// after, the headers between have all that it names, whoever signs meanwhile.
func scanSized(path string, r io.ReaderAt, size int64) (*scan, error) {
	early := earlyIndex(path, r, size)
	s, err := scanTar(path, r, size, nil)
	if err != nil {
		return nil, err
	}
	late, err := s.readIndex(path, r)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(early, late) {
		return nil, beingChanged(path)
	}
	return s, nil
}

// earlyIndex reads index.json, and of the headers no more than it has to: nil where that
// cannot be, which the scan of all of them tells.
func earlyIndex(path string, r io.ReaderAt, size int64) []byte {
	s, err := scanTar(path, r, size, func(s *scan) bool { return len(s.entries) > 0 && s.last() == indexName })
	if err != nil {
		return nil
	}
	data, err := s.small(path, r, indexName, maxIndexSize)
	if err != nil {
		return nil
	}
	return data
}

// beingChanged is the fault of who finds no moment to read at.
func beingChanged(path string) error {
	return &fault.Error{
		Reason: fault.Conflict, Op: "read", Subject: path, Err: errors.New("another process is changing it"),
		Hint: "wait for it to end, and run the same command again",
	}
}

// A stamp is what the file system says of an archive: of its one file or its parts file,
// and of the parts. What is not there is nil.
type stamp []fs.FileInfo

func stampOf(path string) stamp {
	names := []string{path}
	if filepath.Ext(path) != parts.Suffix && !isThere(path) {
		path += parts.Suffix
		names = append(names, path)
	}
	if filepath.Ext(path) == parts.Suffix {
		if l, err := readParts(path); err == nil {
			for i := range l.All() {
				names = append(names, filepath.Join(filepath.Dir(path), l.Name(i)))
			}
		}
	}
	s := make(stamp, len(names))
	for i, name := range names {
		if info, err := os.Stat(name); err == nil {
			s[i] = info
		}
	}
	return s
}

// equal says whether nothing was changed between two stamps.
func (s stamp) equal(now stamp) bool {
	if len(s) != len(now) {
		return false
	}
	for i, was := range s {
		is := now[i]
		if (was == nil) != (is == nil) {
			return false
		}
		if was != nil && (!os.SameFile(was, is) || was.Size() != is.Size() || !was.ModTime().Equal(is.ModTime())) {
			return false
		}
	}
	return true
}

// steadily makes a check of the archive as it is on the disk. What a signing leaves until
// it is done can be read and has not the form that it is checked for: so where something
// is wrong, it is made again while somebody writes, and of what is there afterwards.
func (a *File) steadily(ctx context.Context, check func(*scanFetcher) error) error {
	f, seen := a.view()
	err := check(f)
	for range openTries {
		if err == nil || ctx.Err() != nil {
			return err
		}
		writing := f.beingWritten()
		now := signedSince(ctx, f, seen)
		switch {
		case now == nil && !writing:
			return err
		case now == nil:
			time.Sleep(openPause)
			continue
		}
		var fresh *scanFetcher
		fresh, seen = now.view()
		err = errors.Join(check(fresh), storageFault("read", f.path, now.Close()))
	}
	return beingChanged(f.path)
}

// beingWritten says whether somebody has the lock of the archive at this moment. It is
// asked only where something is wrong: for the time of the question it keeps others off.
func (f *scanFetcher) beingWritten() bool {
	path := f.path
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // who signs through a link signs there
	}
	lock, err := os.OpenFile(path+journalSuffix, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer lock.Close() //nolint:errcheck // nothing was written
	held, err := lockFile(lock)
	return err == nil && !held
}

// signedSince opens an archive again where it was changed in its place since it was seen;
// else it returns nil. What another archive took the place of is judged as it is.
func signedSince(ctx context.Context, f *scanFetcher, seen stamp) *File {
	now, err := OpenFile(f.place())
	if err != nil {
		return nil
	}
	fresh, stamp := now.view()
	was, wasErr := f.index.root(ctx)
	is, isErr := fresh.index.root(ctx)
	if seen.equal(stamp) || !sameFiles(f.r, fresh.r) || wasErr != nil || isErr != nil || was.Digest != is.Digest {
		_ = now.Close() // nothing was written
		return nil
	}
	return now
}

// sameFiles says whether two storages begin with the same file.
func sameFiles(a, b io.ReaderAt) bool {
	first := func(r io.ReaderAt) fs.FileInfo {
		in, ok := r.(storage)
		if !ok || len(filesOf(in)) == 0 {
			return nil
		}
		info, err := filesOf(in)[0].Stat()
		if err != nil {
			return nil
		}
		return info
	}
	was, is := first(a), first(b)
	return was != nil && is != nil && os.SameFile(was, is)
}

// place is the path by which the archive was opened: of parts, that of the parts file.
func (f *scanFetcher) place() string {
	if v, ok := f.r.(*volumes); ok {
		return v.partsPath
	}
	return f.path
}
