package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// FileWriter writes an archive. Begin comes first; Put may be called concurrently.
type FileWriter struct {
	path string
	o    Options

	dir     *folder
	lock    *archiveLock
	layout  *Layout
	f       storage
	fresh   bool  // no earlier run left anything
	whole   bool  // the archive is there already; there is nothing to do
	first   stamp // when the writer was made
	ours    bool  // the journal that was there is about what is written
	extra   int   // recovery parts that an interrupted run was giving their names
	journal *journal
	blobs   map[string]*slot // by hex
}

// CreateFile begins an archive; nothing is written before Begin. What is there and is
// not replaced is refused: here where it can be none of ours, otherwise by Begin,
// unless it is the very archive that is to be written.
func CreateFile(path string, o Options) (*FileWriter, error) {
	if err := checkParent(path); err != nil {
		return nil, err
	}
	w := &FileWriter{path: path, o: o, first: stampOf(path)}
	if err := checkTargets(path, o); err != nil {
		if fault.ReasonOf(err) != fault.Conflict {
			return nil, err
		}
		there, openErr := w.openThere()
		if openErr != nil || there == nil {
			return nil, err
		}
		if err := there.Close(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func checkTarget(path string, o Options) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return storageFault("write", path, err)
	case info.IsDir():
		return &fault.Error{Reason: fault.Storage, Op: "write", Subject: path,
			Hint: "name a file, or write into the folder as " + fault.Quote("oci:"+path), Err: errors.New("it is a folder")}
	case !info.Mode().IsRegular():
		return &fault.Error{Reason: fault.Storage, Op: "write", Subject: path,
			Hint: "name a file", Err: errors.New("it is there and not a regular file")}
	case !o.Replace:
		return &fault.Error{Reason: fault.Conflict, Op: "write", Subject: path,
			Hint: "choose another name, or replace it with --replace", Err: errors.New("it is there already")}
	}
	return nil
}

// name is the archive's name in its folder.
func (w *FileWriter) name() string { return filepath.Base(w.path) }

func (w *FileWriter) partial() string     { return w.path + partialSuffix }
func (w *FileWriter) journalPath() string { return w.path + journalSuffix }

// partialSuffix of the name of a file, or of a part, that is not whole yet.
const partialSuffix = ".partial"

// Begin lays the archive out, writes all that the graph itself carries, takes up
// what an interrupted run left, and returns what is still to put, in the order of
// the archive.
func (w *FileWriter) Begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if w.lock != nil {
		return nil, &fault.Error{Reason: fault.Internal, Op: "write", Subject: w.path, Err: errors.New("it is begun twice")}
	}
	var err error
	if w.layout, err = NewLayout(g); err != nil {
		return nil, err
	}
	if w.dir, err = openFolder(filepath.Dir(w.path)); err != nil {
		return nil, err
	}
	if w.lock, err = w.dir.lockArchive(w.name()); err != nil {
		err = errors.Join(err, w.dir.close())
		w.dir = nil
		return nil, err
	}
	missing, err := w.begin(ctx, g)
	if err != nil {
		return nil, w.giveUp(storageFault("write", w.partial(), err))
	}
	return missing, nil
}

// begin does so under the lock.
func (w *FileWriter) begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	before := readJournal(io.NewSectionReader(w.lock.f, 0, math.MaxInt64))
	w.ours = before.about == identity(g, w.o)
	named := w.ours && before.named // else what has its names is another's
	w.extra = before.extra
	var err error
	if w.whole, err = w.isThere(ctx, g, named); err != nil || w.whole {
		return nil, err
	}
	if w.dir.has(w.name() + parts.Suffix) { // to be replaced
		if _, err := w.dir.ownParts(w.name() + parts.Suffix); err != nil {
			return nil, err
		}
	}
	if err := w.takeUp(g, before); err != nil {
		return nil, err
	}
	if err := w.open(named); err != nil {
		return nil, err
	}
	w.journal = startJournal(w.lock.f, w.f)
	if err := w.prepare(); err != nil {
		return nil, err
	}
	return w.missing(ctx, before.at)
}

// takeUp goes on with the journal that is there, or begins it: a file that is not
// whole and has no journal of this bundle is not ours.
func (w *FileWriter) takeUp(g *bundle.Graph, before noted) error {
	f := w.lock.f
	if w.ours {
		_, err := f.Seek(before.sound, io.SeekStart)
		return errors.Join(err, f.Truncate(before.sound))
	}
	if err := w.clearAway(g, before); err != nil {
		return err
	}
	w.fresh = true
	clear(before.at)
	err := f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(sealed(journalMagic+" "+identity(g, w.o))), 0)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekEnd)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(storageFault("write", w.journalPath(), err), w.dir.sync("."))
}

// giveUp leaves nothing behind of a run that could not begin; what an earlier one
// left stays.
func (w *FileWriter) giveUp(err error) error {
	if w.fresh {
		err = errors.Join(err, w.removePartial(), w.dir.remove(w.lock.name))
	}
	return errors.Join(err, w.Close())
}

// open opens the partial file, or the parts. In a run that an earlier one begun,
// named says that files may have got their names already.
func (w *FileWriter) open(named bool) error {
	if w.o.VolumeSize > 0 {
		return w.openParts(named)
	}
	f, err := w.dir.resume(w.name() + partialSuffix)
	if err != nil {
		return err
	}
	w.f = f
	return nil
}

func (w *FileWriter) closeFile() error {
	if w.f == nil {
		return nil
	}
	f := w.f
	w.f = nil
	return f.Close()
}

// prepare gives the file its size and writes all that is not fetched. The header of
// what is fetched comes with it, so that its block of the disk is written once. Of a
// file that an earlier run has begun nothing is believed: headers, padding and the end
// are written again, and what was noted of blobs is hashed.
func (w *FileWriter) prepare() error {
	if err := checkSpace(w.path, w.layout.size+recoverySize(w.layout, w.o)-allocatedStorage(w.f)); err != nil {
		return err
	}
	if err := w.f.Truncate(w.layout.size); err != nil {
		return err
	}
	for _, e := range w.layout.entries {
		if e.data == nil && w.fresh {
			continue
		}
		if _, err := w.f.WriteAt(e.header, e.offset); err != nil {
			return err
		}
		if _, err := w.f.WriteAt(e.data, e.dataOffset()); err != nil {
			return err
		}
		if w.fresh {
			continue // it is a new file: what was not written is zero
		}
		if _, err := w.f.WriteAt(make([]byte, padded(e.size)-e.size), e.dataOffset()+e.size); err != nil {
			return err
		}
	}
	if w.fresh {
		return nil
	}
	_, err := w.f.WriteAt(make([]byte, endSize), w.layout.size-endSize)
	return err
}

// missing makes the slots, and returns what is to put.
func (w *FileWriter) missing(ctx context.Context, at map[string]progress) ([]ocispec.Descriptor, error) {
	w.blobs = map[string]*slot{}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, e := range w.layout.entries[2:] {
		s := newSlot(w.f, e, w.note)
		s.done = e.data != nil
		w.blobs[e.d.Digest.Encoded()] = s
		if !s.done {
			group.Go(func() error { return s.resume(ctx, at[e.d.Digest.Encoded()]) })
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var out []ocispec.Descriptor
	for _, e := range w.layout.entries[2:] {
		if !w.blobs[e.d.Digest.Encoded()].done {
			out = append(out, e.d)
		}
	}
	return out, nil
}

// Put writes one blob to its place, verified as it streams; open gives its bytes
// from an offset, and is asked again where they end early. A second Put of one
// blob waits for the first.
func (w *FileWriter) Put(ctx context.Context, d ocispec.Descriptor, open func(offset int64) (io.ReadCloser, error)) error {
	s, ok := w.blobs[d.Digest.Encoded()]
	if !ok || s.entry.size != d.Size {
		return &fault.Error{Reason: fault.Internal, Op: "write", Subject: w.path,
			Err: fmt.Errorf("%s of %d bytes is not in the layout", d.Digest, d.Size)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(ctx, open)
}

// note puts the progress of a slot into the journal.
func (w *FileWriter) note(s *slot) error {
	blob := s.entry.d.Digest.Encoded()
	if s.offset == 0 && !s.done {
		return w.journal.note(blob, progress{})
	}
	p := progress{place: s.entry.dataOffset(), offset: s.offset}
	copy(p.sum[:], s.sum.Sum(nil))
	return w.journal.note(blob, p)
}

// Commit makes the archive appear under its name: everything is there, flushed,
// then renamed.
func (w *FileWriter) Commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.whole {
		return errors.Join(w.forget(), w.Close())
	}
	if w.f == nil {
		return &fault.Error{Reason: fault.Internal, Op: "write", Subject: w.path, Err: errors.New("it was not begun")}
	}
	if err := w.checkComplete(); err != nil {
		return err
	}
	if err := w.f.Sync(); err != nil {
		return storageFault("write", w.partial(), err)
	}
	if err := checkTargets(w.path, w.o); err != nil {
		return err
	}
	commit := w.commitFile
	if v, ok := w.f.(*volumes); ok {
		commit = func(ctx context.Context) error { return w.commitParts(ctx, v) }
	}
	if err := commit(ctx); err != nil {
		return err
	}
	return errors.Join(w.removePartial(), w.dir.remove(w.lock.name), w.Close())
}

// forget removes what an interrupted run left of an archive that is there. What is
// left of another one may still be gone on with.
func (w *FileWriter) forget() error {
	if !w.ours {
		return nil
	}
	return errors.Join(w.removePartial(), w.dir.remove(w.lock.name))
}

// commitFile gives an archive in one file its name.
func (w *FileWriter) commitFile(context.Context) error {
	if err := w.journal.end(namedWith(0)); err != nil {
		return err
	}
	if err := w.dir.rename(w.name()+partialSuffix, w.name()); err != nil {
		return err
	}
	if err := w.dir.sync("."); err != nil {
		return err
	}
	return w.dir.removeParts(w.name()+parts.Suffix, nil)
}

func (w *FileWriter) checkComplete() error {
	var lack []string
	for hex, s := range w.blobs {
		s.mu.Lock()
		if !s.done {
			lack = append(lack, "sha256:"+hex)
		}
		s.mu.Unlock()
	}
	if len(lack) == 0 {
		return nil
	}
	slices.Sort(lack)
	return &fault.Error{Reason: fault.Incomplete, Op: "write", Subject: w.path, Hint: "run the same command again: it goes on from here",
		Err: fmt.Errorf("%d of %d blobs are missing, the first is %s", len(lack), len(w.blobs), lack[0])}
}

// Close without Commit leaves the partial file and its journal, down to the last
// byte that came, for a later run. It waits for those who still Put.
func (w *FileWriter) Close() error {
	if w.lock == nil {
		return nil
	}
	var errs []error
	for _, s := range w.blobs {
		s.mu.Lock()
		if !s.done && s.offset > 0 && !w.journal.ended {
			errs = append(errs, w.note(s))
		}
		s.mu.Unlock()
	}
	if w.journal != nil {
		errs = append(errs, w.journal.end())
	}
	errs = append(errs, w.closeFile(), w.lock.release(), w.dir.close())
	w.lock, w.journal = nil, nil
	return errors.Join(errs...)
}
