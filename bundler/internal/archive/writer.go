package archive

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// FileWriter writes an archive. Call Begin first; then Put is safe for concurrent use.
type FileWriter struct {
	path string
	o    Options

	id      string // identity in the journal
	source  string // of a split; stays, whatever its name
	again   bool   // rewrites the existing archive: parts beside it stay
	dir     *directory
	lock    *archiveLock
	layout  *Layout
	f       *storage
	fresh   bool // no earlier run left files
	journal *journal
	blobs   map[digest.Digest]*slot
}

// CreateFile prepares an archive; Begin writes first. It refuses an existing target unless o.Replace is set.
func CreateFile(path string, o Options) (*FileWriter, error) {
	if err := checkDirectory(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if strings.HasSuffix(path, parts.Suffix) {
		return nil, fault.Errorf(fault.InvalidInput, "write", path, "name the archive, FILE.tar",
			"it is the name of a parts file")
	}
	w := &FileWriter{path: path, o: o}
	return w, w.checkTargets()
}

// Can returns no capabilities.
func (w *FileWriter) Can() medium.Capabilities { return medium.Capabilities{} }

// Ready returns a fault if that many bytes do not fit the requested parts. It does so too if the disk lacks room for
// a new archive with its parity shards.
func (w *FileWriter) Ready(_ context.Context, bytes int64) error {
	if w.o.VolumeSize > 0 && bytes > 0 {
		if _, err := parts.New(w.name(), bytes, w.o.VolumeSize, w.o.Recovery); err != nil {
			return err
		}
	}
	if exists(w.path + journalSuffix) { // some of it may be on the disk
		return nil
	}
	return checkSpace(w.path, w.withRecovery(bytes))
}

func (w *FileWriter) name() string { return filepath.Base(w.path) }

// partialSuffix ends the name of an incomplete file or part.
const partialSuffix = ".partial"

// withRecovery returns how many bytes an archive of a size takes on disk.
func (w *FileWriter) withRecovery(size int64) int64 {
	return size + int64(w.o.Recovery)*min(w.o.VolumeSize, size)
}

// Begin lays out the archive, writes the data that the graph carries, and resumes an interrupted run. It returns the
// blobs still to put, in the order of the archive.
func (w *FileWriter) Begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	if err := w.acquire(); err != nil {
		return nil, err
	}
	missing, err := w.begin(ctx, g)
	if err != nil {
		return nil, w.giveUp(err)
	}
	return missing, nil
}

func (w *FileWriter) acquire() (err error) {
	if w.lock != nil {
		return fault.Errorf(fault.Internal, "write", w.path, "", "it is begun twice")
	}
	w.dir, w.lock, err = lockLocation(w.path)
	return err
}

// begin is Begin under the lock.
func (w *FileWriter) begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	layout, err := NewLayout(g)
	if err != nil {
		return nil, err
	}
	w.id, w.layout = identity(g, w.o), layout
	if err := w.checkTargets(); err != nil {
		return nil, err
	}
	before := readJournal(io.NewSectionReader(w.lock.f, 0, math.MaxInt64))
	if err := w.takeUp(before); err != nil {
		return nil, err
	}
	if err := w.open(); err != nil {
		return nil, err
	}
	if w.again {
		if err := w.keepRights(0o200); err != nil { // a resumed run opens it for writing
			return nil, err
		}
	}
	w.journal = startJournal(w.lock.f, w.f)
	if before.bundle != w.id {
		before.at = nil
	}
	if err := w.prepare(); err != nil {
		return nil, atomicfile.Fault("write", w.path+partialSuffix, err)
	}
	return w.missing(ctx, before.at)
}

// takeUp continues the journal or begins a new one, and removes partial files without a journal of this bundle.
func (w *FileWriter) takeUp(before noted) error {
	f := w.lock.f
	if !w.again && w.dir.Has(w.name()+parts.Suffix) { // to be replaced
		if _, err := w.dir.ownParts(w.name() + parts.Suffix); err != nil {
			return err
		}
	}
	left, err := w.leftovers(before)
	if err != nil {
		return err
	}
	keep := before.sound
	if before.bundle != w.id {
		for _, name := range left {
			err = errors.Join(err, w.dir.Remove(name))
		}
		w.fresh, keep = true, 0
	}
	err = errors.Join(err, f.Truncate(keep))
	if _, seekErr := f.Seek(keep, io.SeekStart); err == nil {
		err = seekErr
	}
	if err == nil && w.fresh {
		if _, err = f.Write(lines(journalHead{journalFormat, w.id})); err == nil {
			err = f.Sync()
		}
	}
	return errors.Join(atomicfile.Fault("write", w.dir.At(w.lock.name), err), w.dir.Sync("."))
}

func (w *FileWriter) open() error {
	if w.o.VolumeSize == 0 {
		f, err := w.dir.resume(w.name() + partialSuffix)
		if err == nil {
			w.f = oneFile(f)
		}
		return err
	}
	l, err := parts.New(w.name(), w.layout.size, w.o.VolumeSize, w.o.Recovery)
	if err != nil {
		return err
	}
	for _, name := range l.Names() {
		if err := cmp.Or(w.takeBack(name), checkTarget(w.dir.At(name), w.o)); err != nil {
			return err
		}
	}
	w.f = &storage{path: w.path, location: w.path + parts.Suffix, list: l, volume: w.o.VolumeSize}
	for _, name := range l.Names()[:l.Count()] {
		f, err := w.dir.resume(name + partialSuffix)
		if err != nil {
			return err
		}
		w.f.files = append(w.f.files, f)
	}
	return nil
}

// takeBack gives a part its partial name again, if an interrupted run of this bundle had begun to rename the parts.
func (w *FileWriter) takeBack(name string) error {
	began := !w.fresh && w.dir.Has(w.name()+parts.Suffix+partialSuffix)
	if !began || w.dir.Has(name+partialSuffix) || !w.dir.Has(name) {
		return nil
	}
	return w.dir.Rename(name, name+partialSuffix)
}

// giveUp removes what a run left that could not begin; files of an earlier run stay.
func (w *FileWriter) giveUp(err error) error {
	if w.fresh && w.lock != nil { // else it is closed already
		err = errors.Join(err, w.removePartial())
	}
	return errors.Join(err, w.Close())
}

// prepare sets the file's size and writes all data that is not fetched. It trusts nothing of an earlier run: it
// writes headers, padding and end again, and the slots hash recorded blobs.
func (w *FileWriter) prepare() error {
	if err := checkSpace(w.path, w.withRecovery(w.layout.size)-w.f.allocated()); err != nil {
		return err
	}
	if err := w.f.Truncate(w.layout.size); err != nil {
		return err
	}
	for _, e := range w.layout.entries {
		padding := make([]byte, padded(e.size)-e.size)
		_, err := w.f.WriteAt(slices.Concat(e.header, e.data), e.offset)
		if err == nil {
			_, err = w.f.WriteAt(padding, e.dataOffset()+e.size)
		}
		if err != nil {
			return err
		}
	}
	_, err := w.f.WriteAt(make([]byte, endSize), w.layout.size-endSize)
	return err
}

// missing creates the slots and returns the blobs to put.
func (w *FileWriter) missing(ctx context.Context, at map[string]progress) ([]ocispec.Descriptor, error) {
	all := make([]*slot, 0, len(w.layout.entries))
	for _, e := range w.layout.entries[2:] {
		all = append(all, &slot{of: w, entry: e, done: e.data != nil})
	}
	w.blobs = map[digest.Digest]*slot{}
	for _, s := range all {
		w.blobs[s.entry.d.Digest] = s
		s.reset()
	}
	err := run.Each(ctx, runtime.GOMAXPROCS(0), len(all), func(i int) error {
		if all[i].done {
			return nil
		}
		return all[i].resume(ctx, at[all[i].entry.d.Digest.Encoded()])
	})
	if err != nil {
		return nil, err
	}
	var out []ocispec.Descriptor
	for _, s := range all {
		if !s.done {
			out = append(out, s.entry.d)
		}
	}
	return out, nil
}

// Put writes one blob to its place, verified as it streams; open returns its bytes from an offset. A second Put of
// one blob waits for the first.
func (w *FileWriter) Put(ctx context.Context, d ocispec.Descriptor,
	open func(offset int64) (io.ReadCloser, error)) error {
	s, ok := w.blobs[d.Digest]
	if !ok || s.entry.size != d.Size {
		return fault.Errorf(fault.Internal, "write", w.path, "", "%s of %d bytes is not in the bundle", d.Digest, d.Size)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(ctx, open)
}

func (w *FileWriter) note(s *slot) error {
	return w.journal.note(progress{Blob: s.entry.d.Digest.Encoded(), Offset: s.offset, Sum: s.sum.Sum(nil)})
}

// Commit flushes the complete archive, then renames it to its name.
func (w *FileWriter) Commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.f == nil {
		return fault.Errorf(fault.Internal, "write", w.path, "", "it was not begun")
	}
	for lacking, s := range w.blobs {
		s.mu.Lock()
		isDone := s.done
		s.mu.Unlock()
		if !isDone {
			return lacksBlob(w.path, lacking)
		}
	}
	if err := w.f.Sync(); err != nil {
		return atomicfile.Fault("write", w.path+partialSuffix, err)
	}
	if err := w.publish(ctx); err != nil {
		return err
	}
	return w.Close()
}

// publish writes parity shards and the parts file, then renames the files, that one last. It removes what they replace
// just before the first rename, so that a list never names parts of another archive.
func (w *FileWriter) publish(ctx context.Context) error {
	if err := w.checkTargets(); err != nil {
		return err
	}
	l, names, list := w.f.list, []string{w.name()}, w.name()+parts.Suffix
	if l != nil {
		names = l.Names()
		if err := seal(ctx, w.dir, l, w.f.files); err != nil {
			return err
		}
		partial := list + partialSuffix // while nothing is replaced
		if err := cmp.Or(w.dir.Remove(partial), w.dir.New(partial, l.Text(), 0o644)); err != nil {
			return err
		}
	}
	if err := w.journal.end(); err != nil {
		return err
	}
	if err := w.dir.Sync("."); err != nil {
		return err
	}
	if w.again {
		if err := w.keepRights(0); err != nil {
			return err
		}
	} else if err := w.dir.removeParts(list, names); err != nil {
		return err
	}
	if l != nil && !w.overSource() {
		if err := w.dir.Remove(w.name()); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := checkTarget(w.dir.At(name), w.o); err != nil {
			return err
		}
		if err := w.dir.Rename(name+partialSuffix, name); err != nil {
			return err
		}
	}
	if err := w.dir.Sync("."); err != nil {
		return err
	}
	if l != nil {
		if err := errors.Join(w.dir.Rename(list+partialSuffix, list), w.dir.Sync(".")); err != nil {
			return err
		}
	}
	return w.removePartial()
}

// keepRights gives the new file the permissions of the archive that it replaces, plus more.
func (w *FileWriter) keepRights(more fs.FileMode) error {
	was, err := w.dir.Root.Stat(w.name())
	if err != nil {
		return atomicfile.Fault("write", w.path+partialSuffix, err)
	}
	f, rights := w.f.files[0], was.Mode().Perm()|more
	if is, err := f.Stat(); err == nil && is.Mode().Perm() == rights {
		return nil // media without permissions, such as FAT, may refuse any change
	}
	return atomicfile.Fault("write", w.path+partialSuffix, f.Chmod(rights))
}

// lacksBlob returns the fault for an incomplete archive.
func lacksBlob(path string, d digest.Digest) error {
	return fault.Errorf(fault.Incomplete, "write", path, "run the same command again: it goes on from here",
		"the blob %s is missing", d)
}

// Close without Commit leaves the partial file and its journal for a later run. It waits for running Puts.
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
	if w.f != nil {
		errs = append(errs, w.f.Close())
	}
	errs = append(errs, w.lock.release(), w.dir.Close())
	w.lock, w.journal, w.f = nil, nil, nil
	return errors.Join(errs...)
}
