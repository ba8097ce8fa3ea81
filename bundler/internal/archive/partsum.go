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
	"syscall"

	"github.com/klauspost/reedsolomon"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

const (
	codeMemory = 16 << 20 // bytes that coding holds of all parts together
	codeAlign  = 64       // what the coder likes its pieces to be multiples of
)

// A PartDamage is a part that is not what the parts file says.
type PartDamage struct {
	Part string `json:"part"` // path
	Why  string `json:"why"`
}

// sumParts holds every part that which wants against its sum, in parallel.
func sumParts(ctx context.Context, dir string, l *parts.List, which func(i int) bool) (damage []PartDamage, err error) {
	why := make([]string, l.All())
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range l.All() {
		if !which(i) {
			continue
		}
		group.Go(func() (err error) {
			why[i], err = checkPart(ctx, filepath.Join(dir, l.Name(i)), l.PartSize(i), l.Sums[i])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, w := range why {
		if w != "" {
			damage = append(damage, PartDamage{filepath.Join(dir, l.Name(i)), w})
		}
	}
	return damage, nil
}

// checkPart says what is wrong with a part; an error is what kept it from looking.
func checkPart(ctx context.Context, path string, size int64, want parts.Sum) (why string, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "it is missing", nil
	}
	if err != nil {
		return "", storageFault("open", path, err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	info, err := f.Stat()
	if err != nil {
		return "", storageFault("open", path, err)
	}
	if !info.Mode().IsRegular() {
		return "it is not a regular file", nil
	}
	if info.Size() != size {
		return fmt.Sprintf("it has %d bytes, not %d", info.Size(), size), nil
	}
	switch sum, err := sumOf(ctx, f); {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "it cannot be read: " + cause(err).Error(), nil
	case sum != want:
		return "its bytes are not what they were", nil
	}
	return "", nil
}

// sumOf hashes all that a reader gives.
func sumOf(ctx context.Context, r io.Reader) (parts.Sum, error) {
	sum := sha256.New()
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	_, err := io.CopyBuffer(struct{ io.Writer }{sum}, struct{ io.Reader }{&withContext{ctx, r}}, *buf)
	return parts.Sum(sum.Sum(nil)), err
}

// withContext stops reading when the context is done.
type withContext struct {
	ctx context.Context //nolint:containedctx // io.Copy has no context of its own
	r   io.Reader
}

func (w *withContext) Read(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.r.Read(p)
}

// A coder goes through all parts and recovery parts at once, a piece at a time, so
// that memory stays flat however large they are.
type coder struct {
	list   *parts.List
	in     []io.ReaderAt // nil where there is none
	out    []io.WriterAt // where what is computed goes; nil: nowhere
	sums   []hash.Hash
	shards [][]byte
	piece  int
}

func newCoder(l *parts.List) *coder {
	n := l.All()
	c := &coder{list: l, in: make([]io.ReaderAt, n), out: make([]io.WriterAt, n), sums: make([]hash.Hash, n), shards: make([][]byte, n)}
	c.piece = max(codeMemory/n/codeAlign*codeAlign, codeAlign)
	if longest := l.PartSize(0); int64(c.piece) > longest {
		c.piece = int((longest + codeAlign - 1) / codeAlign * codeAlign)
	}
	for i := range n {
		c.sums[i] = sha256.New()
	}
	return c
}

// run reads what is there, lets code fill in the rest, writes that, and sums up
// everything.
func (c *coder) run(ctx context.Context, code func(shards [][]byte) error) error {
	for i := range c.shards {
		c.shards[i] = make([]byte, c.piece)
	}
	for at := int64(0); at < c.list.PartSize(0); at += int64(c.piece) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.each(func(i int) error { return c.read(i, at) }); err != nil {
			return err
		}
		if err := code(c.shards); err != nil {
			return fmt.Errorf("compute recovery parts: %w", err)
		}
		if err := c.each(func(i int) error { return c.keep(i, at) }); err != nil {
			return err
		}
	}
	return nil
}

func (c *coder) each(do func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range c.shards {
		group.Go(func() error { return do(i) })
	}
	return group.Wait()
}

// length is how many bytes of a piece part i has.
func (c *coder) length(i int, at int64) int {
	return int(min(max(c.list.PartSize(i)-at, 0), int64(c.piece)))
}

// read fills a piece, with zeros behind the part's end. What is not there is left
// empty for the code to fill in.
func (c *coder) read(i int, at int64) error {
	if c.in[i] == nil {
		c.shards[i] = c.shards[i][:0]
		return nil
	}
	c.shards[i] = c.shards[i][:c.piece]
	n := c.length(i, at)
	clear(c.shards[i][n:])
	if n == 0 {
		return nil
	}
	_, err := c.in[i].ReadAt(c.shards[i][:n], at)
	return storageFault("read", c.list.Name(i), err)
}

func (c *coder) keep(i int, at int64) error {
	n := c.length(i, at)
	if n == 0 || len(c.shards[i]) == 0 {
		return nil
	}
	c.sums[i].Write(c.shards[i][:n])
	if c.out[i] == nil {
		return nil
	}
	_, err := c.out[i].WriteAt(c.shards[i][:n], at)
	return storageFault("write", c.list.Name(i), err)
}

func reedSolomon(l *parts.List) (reedsolomon.Encoder, error) {
	enc, err := reedsolomon.New(int(l.Count()), l.Recovery(), reedsolomon.WithInversionCache(false), reedsolomon.WithMaxGoroutines(runtime.GOMAXPROCS(0)))
	if err != nil {
		return nil, fmt.Errorf("compute recovery parts: %w", err)
	}
	return enc, nil
}

// seal computes the sums of parts and writes recovery parts under names of their own.
func seal(ctx context.Context, dir *folder, l *parts.List, files []*os.File, recoveryName func(j int) string) error {
	if l.Recovery() == 0 {
		return seal0(ctx, l, files)
	}
	enc, err := reedSolomon(l)
	if err != nil {
		return err
	}
	c := newCoder(l)
	n := int(l.Count())
	for i, f := range files {
		c.in[i] = f
	}
	recovery := make([]*os.File, 0, l.Recovery())
	defer func() {
		for _, f := range recovery {
			_ = f.Close() // flushed before, where all went well
		}
	}()
	for j := range l.Recovery() {
		f, err := dir.create(recoveryName(j), 0o644)
		if err != nil {
			return err
		}
		recovery = append(recovery, f)
		c.out[n+j] = f
	}
	err = c.run(ctx, func(shards [][]byte) error {
		for j := range l.Recovery() {
			shards[n+j] = shards[n+j][:c.piece]
		}
		return enc.Encode(shards)
	})
	if err != nil {
		return err
	}
	for i := range l.All() {
		l.Sums[i] = parts.Sum(c.sums[i].Sum(nil))
	}
	for _, f := range recovery {
		if err := f.Sync(); err != nil {
			return storageFault("write", f.Name(), err)
		}
	}
	return nil
}

// seal0 is seal without recovery parts.
func seal0(ctx context.Context, l *parts.List, files []*os.File) error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, f := range files {
		group.Go(func() (err error) {
			l.Sums[i], err = sumOf(ctx, io.NewSectionReader(f, 0, l.PartSize(i)))
			return storageFault("read", f.Name(), err)
		})
	}
	return group.Wait()
}

// Damage reads all parts and names those that are not what they were; recovery
// parts among them. Of an archive in one file it says nothing.
func (a *File) Damage(ctx context.Context) error {
	return a.steadily(ctx, func(f *scanFetcher) error {
		v, ok := f.r.(*volumes)
		if !ok || v.list.Changing {
			return nil
		}
		return damaged(ctx, v, func(int) bool { return true })
	})
}

func damaged(ctx context.Context, v *volumes, which func(i int) bool) error {
	damage, err := sumParts(ctx, filepath.Dir(v.partsPath), v.list, which)
	if err != nil {
		return err
	}
	errs := make([]error, 0, len(damage))
	for _, d := range damage {
		errs = append(errs, d.fault(v.list, v.partsPath, len(damage)))
	}
	return fault.Join(errs...)
}

func (d PartDamage) fault(l *parts.List, path string, of int) error {
	reason := fault.Corrupt
	if d.Why == "it is missing" {
		reason = fault.Incomplete
	}
	return &fault.Error{Reason: reason, Op: "check part", Subject: d.Part, Err: errors.New(d.Why), Hint: repairHint(l, path, of)}
}
