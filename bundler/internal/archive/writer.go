package archive

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// FileWriter writes an archive. Begin comes first; Put may be called concurrently.
type FileWriter struct {
	path string
	o    Options

	layout  *Layout
	f       storage
	fresh   bool // no earlier run left anything
	journal *journal
	blobs   map[string]*slot // by hex
}

// CreateFile begins an archive; nothing is written before Begin. A target that is
// there is refused, unless it may be replaced.
func CreateFile(path string, o Options) (*FileWriter, error) {
	if err := checkParent(path); err != nil {
		return nil, err
	}
	if err := checkTargets(path, o); err != nil {
		return nil, err
	}
	return &FileWriter{path: path, o: o}, nil
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
			Hint: "name a file, or write into the folder as oci:" + path, Err: errors.New("it is a folder")}
	case !info.Mode().IsRegular():
		return &fault.Error{Reason: fault.Storage, Op: "write", Subject: path,
			Hint: "name a file", Err: errors.New("it is there and no regular file")}
	case !o.Replace:
		return &fault.Error{Reason: fault.Conflict, Op: "write", Subject: path,
			Hint: "remove it or choose another name", Err: errors.New("it is there already")}
	}
	return nil
}

func (w *FileWriter) partial() string     { return w.path + ".partial" }
func (w *FileWriter) journalPath() string { return w.path + ".journal" }

// Begin lays the archive out, writes all that the graph itself carries, takes up
// what an interrupted run left, and returns what is still to put, in the order of
// the archive.
func (w *FileWriter) Begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if w.f != nil {
		return nil, &fault.Error{Reason: fault.Internal, Op: "write", Subject: w.path, Err: errors.New("it is begun twice")}
	}
	var err error
	if w.layout, err = NewLayout(g); err != nil {
		return nil, err
	}
	at, err := w.open()
	if err != nil {
		return nil, err
	}
	if err := w.prepare(); err != nil {
		return nil, w.giveUp(storageFault("write", w.partial(), err))
	}
	return w.missing(at), nil
}

// giveUp leaves nothing behind of a run that could not begin; what an earlier one
// left stays.
func (w *FileWriter) giveUp(err error) error {
	fresh := w.fresh
	err = errors.Join(err, w.Close())
	if fresh {
		err = errors.Join(err, w.removePartial(), removeIfThere(w.journalPath()))
	}
	return err
}

// open opens the partial file, keeps others off it, and reads its journal. A new
// file gets its journal first: a partial file without one is not ours.
func (w *FileWriter) open() (map[string]progress, error) {
	if w.o.VolumeSize > 0 {
		return w.openParts()
	}
	_, err := os.Lstat(w.partial())
	w.fresh = errors.Is(err, fs.ErrNotExist)
	if w.fresh {
		if err := w.newJournal(); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(w.partial(), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		if w.fresh {
			err = errors.Join(err, removeIfThere(w.journalPath()))
		}
		return nil, storageFault("write", w.partial(), err)
	}
	w.f = f
	at, err := w.openJournal()
	if err != nil {
		return nil, errors.Join(err, w.closeFile())
	}
	return at, nil
}

func (w *FileWriter) openJournal() (map[string]progress, error) {
	if err := lockStorage(w.f); err != nil {
		return nil, err
	}
	f, at, err := openJournal(w.journalPath(), identity(w.layout, w.o))
	if errors.Is(err, errOtherJournal) && w.o.Restart {
		if err = errors.Join(w.f.Truncate(0), w.newJournal()); err == nil {
			f, at, err = openJournal(w.journalPath(), identity(w.layout, w.o))
		}
	}
	if errors.Is(err, errOtherJournal) {
		return nil, w.otherBundle()
	}
	if err != nil {
		return nil, storageFault("write", w.journalPath(), err)
	}
	w.journal = startJournal(f, w.f)
	return at, nil
}

func (w *FileWriter) newJournal() error {
	return writeWhole(w.journalPath(), []byte(sealed(journalMagic+" "+identity(w.layout, w.o))))
}

func (w *FileWriter) otherBundle() error {
	return &fault.Error{
		Reason: fault.Conflict, Op: "resume", Subject: w.partial(),
		Hint: fmt.Sprintf("finish that pull with its own lock, or remove %s and %s", w.partial(), w.journalPath()),
		Err:  errors.New("an interrupted pull of another bundle left this file"),
	}
}

func (w *FileWriter) closeFile() error {
	f := w.f
	w.f = nil
	return f.Close()
}

// prepare gives the file its size and writes all that is not fetched. The header of
// what is fetched comes with it, so that its block of the disk is written once.
func (w *FileWriter) prepare() error {
	if err := checkSpace(w.path, w.layout.size+recoverySize(w.layout, w.o)-allocatedStorage(w.f)); err != nil {
		return err
	}
	if err := w.f.Truncate(w.layout.size); err != nil {
		return err
	}
	for _, e := range w.layout.entries {
		if e.data == nil {
			continue
		}
		if _, err := w.f.WriteAt(e.header, e.offset); err != nil {
			return err
		}
		if _, err := w.f.WriteAt(e.data, e.dataOffset()); err != nil {
			return err
		}
	}
	return nil
}

// missing makes the slots, and returns what is to put.
func (w *FileWriter) missing(at map[string]progress) []ocispec.Descriptor {
	w.blobs = map[string]*slot{}
	var out []ocispec.Descriptor
	for _, e := range w.layout.entries[2:] {
		s := newSlot(w.f, e, w.note)
		s.done = e.data != nil
		w.blobs[e.d.Digest.Encoded()] = s
		if !s.done {
			s.resume(at[e.d.Digest.Encoded()])
		}
		if !s.done {
			out = append(out, e.d)
		}
	}
	return out
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
	hex := s.entry.d.Digest.Encoded()
	if s.offset == 0 && !s.done {
		return w.journal.note(hex, progress{})
	}
	p := progress{offset: s.offset}
	var err error
	if p.tail, err = tailSum(w.f, s.entry, s.offset); err != nil {
		return storageFault("read", w.partial(), err)
	}
	if !s.done {
		if p.state, err = s.sum.(encoding.BinaryMarshaler).MarshalBinary(); err != nil {
			return fmt.Errorf("keep the state of a hash: %w", err)
		}
	}
	return w.journal.note(hex, p)
}

// Commit makes the archive appear under its name: everything is there, flushed,
// then renamed.
func (w *FileWriter) Commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
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
	if v, ok := w.f.(*volumes); ok {
		if err := w.commitParts(ctx, v); err != nil {
			return err
		}
		return errors.Join(w.Close(), removeIfThere(w.journalPath()))
	}
	if err := os.Rename(w.partial(), w.path); err != nil {
		return storageFault("write", w.path, err)
	}
	err := errors.Join(w.Close(), removeParts(w.path+parts.Suffix, nil), syncDir(filepath.Dir(w.path)))
	return errors.Join(err, removeIfThere(w.journalPath()))
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
	if w.f == nil {
		return nil
	}
	var errs []error
	for _, s := range w.blobs {
		s.mu.Lock()
		if !s.done && s.offset > 0 {
			errs = append(errs, w.note(s))
		}
		s.mu.Unlock()
	}
	if w.journal != nil {
		errs = append(errs, w.journal.close())
		w.journal = nil
	}
	return errors.Join(append(errs, w.closeFile())...)
}
