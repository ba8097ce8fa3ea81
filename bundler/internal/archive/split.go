package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// splitSuffix of the name of a part that a split has written, and of its list.
const splitSuffix = ".split"

// Split writes an archive again, in parts beside to (the name that `cat` of them
// would have). It returns the path of the parts file. What it replaces, which may be
// the very parts that it reads, is there until the new parts are whole and listed in
// FILE.parts.split; from then on a Split that was interrupted is completed by the next.
// An archive at to goes with what is replaced, unless it is the source.
func Split(ctx context.Context, path, to string, o Options) (string, error) {
	if err := checkParent(to); err != nil {
		return "", err
	}
	dir, name, err := folderOf(to)
	if err != nil {
		return "", err
	}
	defer dir.close() //nolint:errcheck // nothing is written through it any more
	lock, err := dir.lockArchive(name)
	if err != nil {
		return "", err
	}
	s := &splitter{dir: dir, to: to, o: o, isSource: sameFile(path, to)}
	if s.begun = dir.has(name + parts.Suffix + splitSuffix); s.begun {
		err = s.complete(ctx, name)
	}
	if err == nil {
		err = s.run(ctx, path)
	}
	if err := errors.Join(err, lock.release()); err != nil {
		return "", err
	}
	return to + parts.Suffix, nil
}

// splitter copies byte ranges into files of their own.
type splitter struct {
	dir   *folder
	to    string
	o     Options
	begun bool // an interrupted run has made what is there now
	list  *parts.List
	files []*os.File

	isSource bool // the archive at to is the one that is split: it stays
}

// sameFile reports whether two paths lead to one file.
func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	second, secondErr := os.Stat(b)
	return err == nil && secondErr == nil && os.SameFile(first, second)
}

// run splits under the lock.
func (s *splitter) run(ctx context.Context, path string) error {
	a, err := OpenFile(path)
	if err != nil {
		return err
	}
	defer a.Close() //nolint:errcheck // nothing was written
	from, seen := a.view()
	if s.list, err = parts.New(filepath.Base(s.to), from.size, s.o.VolumeSize, s.o.Recovery); err != nil {
		return err
	}
	if !s.isSource {
		if err := checkTarget(s.to, s.o); err != nil {
			return err
		}
	}
	if done, err := s.done(ctx, from.r); err != nil || done {
		return err
	}
	if err := checkTarget(s.to+parts.Suffix, s.o); err != nil {
		return err
	}
	if s.dir.has(s.list.File() + parts.Suffix) {
		if _, err := s.dir.ownParts(s.list.File() + parts.Suffix); err != nil {
			return err
		}
	}
	for i := range s.list.All() {
		if err := checkTarget(s.dir.at(s.list.Name(i)), s.o); err != nil {
			return err
		}
	}
	if err := checkSpace(s.to, from.size+int64(s.o.Recovery)*s.list.PartSize(0)); err != nil {
		return err
	}
	err = s.split(ctx, from.r)
	if err == nil && !seen.equal(stampOf(from.place())) {
		err = beingChanged(path) // by who has the lock of another name: bytes of before and of afterwards make no archive
	}
	if err == nil {
		err = s.dir.write(s.listName(), s.list.Text())
	}
	if err != nil {
		return errors.Join(err, s.forget())
	}
	return s.complete(ctx, s.list.File())
}

// done tells whether an interrupted run of this very command has left nothing to do. What
// it made is this command's to replace where a part of it is damaged; what another one
// made is not.
func (s *splitter) done(ctx context.Context, from io.ReaderAt) (bool, error) {
	if !s.begun {
		return false, nil
	}
	l, err := readParts(s.to + parts.Suffix)
	if err != nil || l.Size() != s.list.Size() || l.Volume() != s.list.Volume() || l.Recovery() != s.list.Recovery() {
		return false, err
	}
	for i := range int(l.Count()) {
		sum, err := sumOf(ctx, io.NewSectionReader(from, int64(i)*l.Volume(), l.PartSize(i)))
		if err != nil || sum != l.Sums[i] {
			return false, storageFault("read", s.list.File(), err)
		}
	}
	damage, err := sumParts(ctx, s.dir.path, l, func(int) bool { return true })
	s.o.Replace = s.o.Replace || len(damage) > 0
	return err == nil && len(damage) == 0, err
}

func splitName(l *parts.List, i int) string { return l.Name(i) + splitSuffix }

// listName is what the list is called before the parts have their names.
func (s *splitter) listName() string { return filepath.Base(s.to) + parts.Suffix + splitSuffix }

func (s *splitter) split(ctx context.Context, from io.ReaderAt) (err error) {
	n := int(s.list.Count())
	defer func() {
		for _, f := range s.files {
			err = errors.Join(err, f.Close())
		}
	}()
	for i := range n {
		f, err := s.dir.create(splitName(s.list, i), 0o644)
		if err != nil {
			return err
		}
		s.files = append(s.files, f)
	}
	var group errgroup.Group
	group.SetLimit(2)
	for i, f := range s.files {
		group.Go(func() error {
			buf := buffers.Get().(*[]byte)
			defer buffers.Put(buf)
			piece := io.NewSectionReader(from, int64(i)*s.list.Volume(), s.list.PartSize(i))
			_, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{&withContext{ctx, piece}}, *buf)
			return storageFault("write", f.Name(), errors.Join(err, f.Sync()))
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return seal(ctx, s.dir, s.list, s.files, func(j int) string { return splitName(s.list, n+j) })
}

// complete gives the parts of a split their names once there is a list of them: all of
// them are whole then. What they replace goes at the end.
func (s *splitter) complete(ctx context.Context, name string) error {
	listed := name + parts.Suffix + splitSuffix
	l, err := readParts(s.dir.at(listed))
	if err != nil {
		return err
	}
	var old *parts.List
	if s.dir.has(name + parts.Suffix) {
		if old, err = s.dir.ownParts(name + parts.Suffix); err != nil {
			return err
		}
	}
	if l.File() != name {
		return brokenFile(s.dir.at(listed), "it lists parts of %s", l.File())
	}
	if err := s.written(ctx, l); err != nil {
		return err
	}
	for i := range l.All() {
		if !s.dir.has(splitName(l, i)) {
			continue // it has its name already
		}
		if err := s.dir.rename(splitName(l, i), l.Name(i)); err != nil {
			return err
		}
	}
	if s.o.Replace && !s.isSource { // before the list: a reader of the archive's name would take the old one
		if err := s.dir.remove(name); err != nil {
			return err
		}
	}
	if err := s.dir.sync("."); err != nil {
		return err
	}
	if err := s.dir.rename(listed, name+parts.Suffix); err != nil {
		return err
	}
	if err := s.dir.sync("."); err != nil || old == nil {
		return err
	}
	return s.dir.removeOthers(old, l)
}

// written demands every part of a split, before anything takes the place of another: under
// the name that it was written by, or under its own.
func (s *splitter) written(ctx context.Context, l *parts.List) error {
	for i := range l.All() {
		why := ""
		info, err := s.dir.root.Lstat(splitName(l, i))
		switch {
		case err != nil:
			if why, err = checkPart(ctx, s.dir.at(l.Name(i)), l.PartSize(i), l.Sums[i]); err != nil {
				return err
			}
		case !info.Mode().IsRegular() || info.Size() != l.PartSize(i):
			why = "it is not as it was written"
		}
		if why != "" {
			return &fault.Error{
				Reason: fault.Incomplete, Op: "complete the split of", Subject: s.dir.at(l.File()), Err: fmt.Errorf("%s: %s", splitName(l, i), why),
				Hint: "remove " + fault.Quote(s.dir.at(s.listName())) + " and what else ends in .split, and run the same command again",
			}
		}
	}
	return nil
}

// forget removes what came to nothing.
func (s *splitter) forget() error {
	errs := []error{s.dir.remove(s.listName())}
	for i := range s.list.All() {
		errs = append(errs, s.dir.remove(splitName(s.list, i)))
	}
	return errors.Join(errs...)
}
