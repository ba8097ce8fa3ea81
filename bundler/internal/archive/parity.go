package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/klauspost/reedsolomon"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
)

const (
	codeMemory = 16 << 20 // bytes that coding holds of all parts together
	codeAlign  = 64       // what the coder likes its pieces to be multiples of
)

// A PartDamage is a part that is not what the parts file says.
type PartDamage struct {
	Part   string       `json:"part"` // path
	Why    string       `json:"why"`
	Reason fault.Reason `json:"-"`
}

func (d *PartDamage) Error() string { return d.Part + ": " + d.Why }

// sumParts holds every part against its sum, in parallel.
func sumParts(ctx context.Context, dir string, l *parts.List) ([]PartDamage, error) {
	found := make([]error, l.All())
	err := run.Each(ctx, runtime.GOMAXPROCS(0), l.All(), func(i int) error {
		found[i] = sumPart(ctx, filepath.Join(dir, l.Name(i)), l.PartSize(i), l.Sums[i])
		return nil
	})
	damage, others := damageIn(found)
	return damage, errors.Join(err, others)
}

// damageIn are the damages among errors, and the others.
func damageIn(errs []error) (damage []PartDamage, others error) {
	for _, err := range errs {
		var d *PartDamage
		if errors.As(err, &d) {
			damage = append(damage, *d)
		} else {
			others = errors.Join(others, err)
		}
	}
	return damage, others
}

// sumPart holds a part against its sum.
func sumPart(ctx context.Context, path string, size int64, want parts.Sum) error {
	f, err := openPart(path, size)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	switch sum, err := sumOf(ctx, f); {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return &PartDamage{path, "it cannot be read: " + userfile.WithoutPath(err).Error(), fault.Corrupt}
	case sum != want:
		return &PartDamage{path, "its bytes are not what they were", fault.Corrupt}
	}
	return nil
}

// openPart opens a part of a size. What is wrong with the part is a [PartDamage].
func openPart(path string, size int64) (*os.File, error) {
	f, err := openQuietly(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &PartDamage{path, "it is missing", fault.Incomplete}
	}
	if err != nil {
		return nil, storageFault("open", path, err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = storageFault("open", path, err)
	case !info.Mode().IsRegular():
		err = &PartDamage{path, "it is not a regular file", fault.InvalidInput}
	case info.Size() == size:
		return f, nil
	case info.Size() < size:
		err = &PartDamage{path, fmt.Sprintf("it has %d bytes, not %d", info.Size(), size), fault.Incomplete}
	default:
		err = &PartDamage{path, fmt.Sprintf("it has %d bytes, not %d", info.Size(), size), fault.Corrupt}
	}
	return nil, errors.Join(err, f.Close())
}

// sumOf hashes all that a reader gives.
func sumOf(ctx context.Context, r io.Reader) (parts.Sum, error) {
	sum := sha256.New()
	_, err := pour(ctx, sum, r, bufferSize)
	return parts.Sum(sum.Sum(nil)), err
}

// A coder reads and writes all parts and recovery parts at once, a piece at a time, so that
// memory stays flat however large they are, and sums them up.
type coder struct {
	reedsolomon.StreamEncoder
	list *parts.List
	in   []io.Reader // nil where there is none
	out  []io.Writer // where what is computed goes; nil: nowhere
	sums []hash.Hash
	made []*os.File // what is written
}

func newCoder(l *parts.List) (*coder, error) {
	n := l.All()
	piece := min(max(codeMemory/n/codeAlign, 1), int(l.PartSize(0)-1)/codeAlign+1) * codeAlign
	enc, err := reedsolomon.NewStream(int(l.Count()), l.Recovery,
		reedsolomon.WithInversionCache(false), reedsolomon.WithMaxGoroutines(runtime.GOMAXPROCS(0)),
		reedsolomon.WithConcurrentStreams(true), reedsolomon.WithStreamBlockSize(piece))
	if err != nil {
		return nil, fmt.Errorf("compute recovery parts: %w", err)
	}
	c := &coder{StreamEncoder: enc, list: l, sums: make([]hash.Hash, n)}
	c.in, c.out = make([]io.Reader, n), make([]io.Writer, n)
	for i := range n {
		c.sums[i] = sha256.New()
	}
	return c, nil
}

// read has a part taken from a file. The last one is shorter: zeros follow it.
func (c *coder) read(ctx context.Context, i int, f *os.File) {
	n := c.list.PartSize(i)
	data := io.TeeReader(readFault{c.list.Name(i), io.NewSectionReader(f, 0, n)}, c.sums[i])
	c.in[i] = &withContext{ctx, io.MultiReader(data, io.LimitReader(zeros{}, c.list.PartSize(0)-n))}
}

// write has a part written to a new file, without the zeros behind it.
func (c *coder) write(dir *folder, i int, name string) error {
	f, err := dir.create(name, 0o644)
	if err != nil {
		return err
	}
	c.made = append(c.made, f)
	c.out[i] = &cutWriter{io.MultiWriter(f, c.sums[i]), f.Name(), c.list.PartSize(i)}
	return nil
}

// sum is that of a part that was read or written.
func (c *coder) sum(i int) parts.Sum { return parts.Sum(c.sums[i].Sum(nil)) }

// end flushes what was written, in the words of who read or wrote where that went wrong.
func (c *coder) end(err error) error {
	var r reedsolomon.StreamReadError
	var w reedsolomon.StreamWriteError
	switch {
	case errors.As(err, &r):
		return r.Err
	case errors.As(err, &w):
		return w.Err
	case err != nil:
		return fmt.Errorf("compute recovery parts: %w", err)
	}
	for _, f := range c.made {
		if err := f.Sync(); err != nil {
			return storageFault("write", f.Name(), err)
		}
	}
	return nil
}

// close closes what was written.
func (c *coder) close() (err error) {
	for _, f := range c.made {
		err = errors.Join(err, f.Close())
	}
	return err
}

// cutWriter drops what follows so many bytes.
type cutWriter struct {
	io.Writer
	name string
	left int64
}

func (w *cutWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p[:min(int64(len(p)), w.left)])
	w.left -= int64(n)
	if err != nil {
		return n, storageFault("write", w.name, err)
	}
	return len(p), nil
}

// seal computes the sums of parts and writes recovery parts, which get their names later.
func seal(ctx context.Context, dir *folder, l *parts.List, files []*os.File) (err error) {
	if l.Recovery == 0 {
		return run.Each(ctx, runtime.GOMAXPROCS(0), len(files), func(i int) (err error) {
			l.Sums[i], err = sumOf(ctx, io.NewSectionReader(files[i], 0, l.PartSize(i)))
			return storageFault("read", files[i].Name(), err)
		})
	}
	c, err := newCoder(l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	n := len(files)
	for i, f := range files {
		c.read(ctx, i, f)
	}
	for i := n; i < l.All(); i++ {
		if err := c.write(dir, i, l.Name(i)+partialSuffix); err != nil {
			return err
		}
	}
	err = c.end(c.Encode(c.in[:n], c.out[n:]))
	for i := range l.Sums {
		l.Sums[i] = c.sum(i)
	}
	return err
}

// Damage reads all parts and names those that are not what they were; recovery
// parts among them. Of what is in no parts it says nothing.
func (a *Archive) Damage(ctx context.Context) error {
	t := a.x.tar
	if t == nil || t.v.list == nil {
		return nil
	}
	return damaged(ctx, t.v)
}

func damaged(ctx context.Context, v *storage) error {
	damage, err := sumParts(ctx, filepath.Dir(v.place), v.list)
	return fault.Join(err, partFaults(v.list, v.place, damage))
}

// partFaults says what to do about damaged parts.
func partFaults(l *parts.List, path string, damage []PartDamage) error {
	hint := fmt.Sprintf("at most %d lost parts can be rebuilt: copy it again from where it was made", l.Recovery)
	if len(damage) <= l.Recovery {
		hint = "rebuild it with `" + fault.Quote("vdo-bundle", "repair", path) + "`"
	}
	errs := make([]error, 0, len(damage))
	for _, d := range damage {
		errs = append(errs, fault.Errorf(d.Reason, "check part", d.Part, hint, "%s", d.Why))
	}
	return fault.Join(errs...)
}

// Repaired is what Repair found and did.
type Repaired struct {
	Parts   int          `json:"parts"` // with the recovery parts
	Damaged []PartDamage `json:"damaged"`
	Rebuilt bool         `json:"rebuilt"` // they are as they were again
}

// Repair holds the parts of a parts file against their sums, and rebuilds those
// that are lost or damaged from the others. It writes nothing, and needs no right to,
// where nothing is damaged.
func Repair(ctx context.Context, path string) (*Repaired, error) {
	if filepath.Ext(path) != parts.Suffix { // it is named by its archive
		path += parts.Suffix
	}
	l, err := readParts(path)
	if err != nil {
		return nil, err
	}
	if l.Changing {
		return nil, interruptedSigning(fault.Refused, "repair", path)
	}
	damage, err := sumParts(ctx, filepath.Dir(path), l)
	if err != nil {
		return nil, err
	}
	r, found := &Repaired{Parts: l.All(), Damaged: damage}, partFaults(l, path, damage)
	switch {
	case found == nil:
		return r, nil
	case ctx.Err() != nil || len(damage) > l.Recovery:
		return nil, found
	}
	dir, lock, err := lockPlace(filepath.Join(filepath.Dir(path), l.File))
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // nothing is written through it any more
	if err := errors.Join(rebuild(ctx, dir, l, damage), lock.release()); err != nil {
		return nil, err
	}
	r.Rebuilt = true
	return r, nil
}

// rebuild computes damaged parts anew, beside what is there; each takes its name
// once its sum is right.
func rebuild(ctx context.Context, dir *folder, l *parts.List, damage []PartDamage) (err error) {
	if err := checkSpace(dir.at(l.File), int64(len(damage))*l.PartSize(0)); err != nil {
		return err
	}
	c, err := newCoder(l)
	if err != nil {
		return err
	}
	const suffix = ".rebuilt"
	var lost []int
	defer func() {
		_ = c.close() // flushed before, where all went well
		for _, i := range lost {
			_ = dir.remove(l.Name(i) + suffix) // renamed, where all went well
		}
	}()
	for i, name := range l.Names() {
		if slices.ContainsFunc(damage, func(d PartDamage) bool { return d.Part == dir.at(name) }) {
			lost = append(lost, i)
			if err := c.write(dir, i, name+suffix); err != nil {
				return err
			}
			continue
		}
		f, err := openRegular(dir.at(name))
		if err != nil {
			return storageFault("open", dir.at(name), err)
		}
		defer f.Close() //nolint:errcheck // nothing was written
		c.read(ctx, i, f)
	}
	if err := c.end(c.Reconstruct(c.in, c.out)); err != nil {
		return err
	}
	for _, i := range lost {
		if got := c.sum(i); got != l.Sums[i] {
			return brokenFile(dir.at(l.Name(i)),
				"rebuilt it has the sha256 %s, the parts file says %s: the parts do not belong together", got,
				l.Sums[i])
		}
	}
	for _, i := range lost {
		if err := dir.rename(l.Name(i)+suffix, l.Name(i)); err != nil {
			return err
		}
	}
	return dir.sync(".")
}
