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
	"strings"

	"github.com/klauspost/reedsolomon"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

const (
	codeMemory = 16 << 20 // bytes for coding, of all parts together
	codeAlign  = 64       // the coder prefers multiples of this
)

// PartDamage is a part that differs from the parts file.
type PartDamage struct {
	Part   string       `json:"part"` // path
	Why    string       `json:"why"`
	Reason fault.Reason `json:"-"`
}

func (d *PartDamage) Error() string { return d.Part + ": " + d.Why }

// sumParts checks the sum of every part, in parallel.
func sumParts(ctx context.Context, dir string, l *parts.List) ([]PartDamage, error) {
	found := make([]error, l.All())
	err := run.Each(ctx, runtime.GOMAXPROCS(0), l.All(), func(i int) error {
		found[i] = sumPart(ctx, filepath.Join(dir, l.Name(i)), l.PartSize(i), l.Sums[i])
		return nil
	})
	damage, others := damageIn(found)
	return damage, errors.Join(err, others)
}

// damageIn splits errors into damages and others.
func damageIn(errs []error) (damage []PartDamage, others error) {
	for _, err := range errs {
		if d, ok := errors.AsType[*PartDamage](err); ok {
			damage = append(damage, *d)
		} else {
			others = errors.Join(others, err)
		}
	}
	return damage, others
}

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
		return &PartDamage{path, "it cannot be read: " + atomicfile.WithoutPath(err).Error(), fault.Corrupt}
	case sum != want:
		return &PartDamage{path, "its bytes are not what they were", fault.Corrupt}
	}
	return nil
}

const missing = "it is missing"

// openPart opens a part of that size. It reports a defective part as [PartDamage].
func openPart(path string, size int64) (*os.File, error) {
	f, err := openQuietly(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &PartDamage{path, missing, fault.Incomplete}
	}
	if err != nil {
		return nil, atomicfile.Fault("open", path, err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = atomicfile.Fault("open", path, err)
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

func sumOf(ctx context.Context, r io.Reader) (parts.Sum, error) {
	sum := sha256.New()
	_, err := pour(ctx, sum, r, bufferSize)
	return parts.Sum(sum.Sum(nil)), err
}

// code computes the parts that have lacks from all others, writes them to the files of lacking, flushes them, and
// returns the sums of all. It codes one piece of all parts at a time, to bound memory.
func code(ctx context.Context, l *parts.List, have, lacking []*os.File) (sums []parts.Sum, err error) {
	n := l.All()
	enc, err := reedsolomon.New(int(l.Count()), l.Recovery)
	if err != nil {
		return nil, fmt.Errorf("compute parity shards: %w", err)
	}
	piece := min(int64(max(codeMemory/n/codeAlign, 1)*codeAlign), l.PartSize(0))
	hashes, buffers, shards := make([]hash.Hash, n), make([][]byte, n), make([][]byte, n)
	for i := range n {
		hashes[i], buffers[i] = sha256.New(), make([]byte, piece)
	}
	for at := int64(0); at < l.PartSize(0); at += piece {
		length := min(piece, l.PartSize(0)-at)
		each := func(do func(i int, own int64) error) error { // the last part is shorter and is padded with zeros
			return run.Each(ctx, runtime.GOMAXPROCS(0), n, func(i int) error {
				return do(i, max(0, min(length, l.PartSize(i)-at)))
			})
		}
		err := each(func(i int, own int64) error {
			if shards[i] = buffers[i][:0]; have[i] == nil {
				return nil
			}
			shards[i] = buffers[i][:length]
			clear(shards[i][own:])
			_, err := have[i].ReadAt(shards[i][:own], at)
			hashes[i].Write(shards[i][:own])
			return atomicfile.Fault("read", have[i].Name(), err)
		})
		if err == nil {
			err = enc.Reconstruct(shards)
		}
		if err != nil {
			return nil, err
		}
		err = each(func(i int, own int64) error {
			if have[i] != nil {
				return nil
			}
			hashes[i].Write(shards[i][:own])
			_, err := lacking[i].WriteAt(shards[i][:own], at)
			return atomicfile.Fault("write", lacking[i].Name(), err)
		})
		if err != nil {
			return nil, err
		}
	}
	for i := range n {
		sums = append(sums, parts.Sum(hashes[i].Sum(nil)))
		if have[i] == nil {
			err = errors.Join(err, atomicfile.Fault("write", lacking[i].Name(), lacking[i].Sync()))
		}
	}
	return sums, err
}

// closeAll closes files that were only read or are flushed; it skips nil.
func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// seal computes the sums of parts and writes parity shards under partial names.
func seal(ctx context.Context, dir *directory, l *parts.List, files []*os.File) (err error) {
	if l.Recovery == 0 {
		return run.Each(ctx, runtime.GOMAXPROCS(0), len(files), func(i int) (err error) {
			l.Sums[i], err = sumOf(ctx, io.NewSectionReader(files[i], 0, l.PartSize(i)))
			return atomicfile.Fault("read", files[i].Name(), err)
		})
	}
	have, lacking := make([]*os.File, l.All()), make([]*os.File, l.All())
	defer closeAll(lacking)
	for i := copy(have, files); i < l.All(); i++ {
		if lacking[i], err = dir.Create(l.Name(i)+partialSuffix, 0o644); err != nil {
			return err
		}
	}
	l.Sums, err = code(ctx, l, have, lacking)
	return err
}

// Damage reads all parts, with parity shards, and reports the damaged ones; nil for an archive not in parts.
func (a *Archive) Damage(ctx context.Context) error {
	t := a.x.tar
	if t == nil || t.v.list == nil {
		return nil
	}
	return damaged(ctx, t.v)
}

func damaged(ctx context.Context, v *storage) error {
	damage, err := sumParts(ctx, filepath.Dir(v.location), v.list)
	return fault.Join(err, partFaults(v.list, v.location, damage))
}

// partFaults returns faults for damaged parts, with the remedy.
func partFaults(l *parts.List, path string, damage []PartDamage) error {
	exists := func(d PartDamage) bool { return d.Why != missing }
	if len(damage) > l.Recovery && len(damage) >= int(l.Count()) && !slices.ContainsFunc(damage, exists) {
		hint := fmt.Sprintf("put all parts beside it under their own names, %s to %s", l.Name(0), l.Name(l.All()-1))
		return fault.Errorf(fault.Incomplete, "read parts", path, hint, "none of its parts is there")
	}
	hint := "copy it again from where it was made, with the names of the parts"
	if l.Recovery > 0 {
		hint = fmt.Sprintf("at most %d of the parts can be rebuilt: ", l.Recovery) + hint
	}
	if len(damage) <= l.Recovery {
		hint = "rebuild it with `" + fault.Quote("vdo-bundle", "repair", path) + "`"
	}
	errs := make([]error, 0, len(damage))
	for _, d := range damage {
		errs = append(errs, fault.Errorf(d.Reason, "check part", d.Part, hint, "%s", d.Why))
	}
	return fault.Join(errs...)
}

// Repaired is the result of Repair.
type Repaired struct {
	Parts   int          `json:"parts"` // with the parity shards
	Damaged []PartDamage `json:"damaged"`
	Rebuilt bool         `json:"rebuilt"` // the damaged parts are restored
}

// Repair checks the sums of all parts and rebuilds bad ones. Without damage it needs no right to write.
func Repair(ctx context.Context, path string) (*Repaired, error) {
	if filepath.Ext(path) != parts.Suffix { // named by its archive
		if err := notOnePart("repair", path); err != nil {
			return nil, err
		}
		path += parts.Suffix
	}
	l, err := readParts(path)
	if err != nil {
		if whole := strings.TrimSuffix(path, parts.Suffix); fault.ReasonOf(err) == fault.NotFound && exists(whole) {
			return nil, fault.Errorf(fault.NotFound, "repair", whole,
				"make parts with `vdo-bundle split`: only they can be repaired", "it has no parts")
		}
		return nil, err
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
	dir, lock, err := lockLocation(filepath.Join(filepath.Dir(path), l.File))
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // no more writes through it
	if err := errors.Join(rebuild(ctx, dir, l, damage), lock.release()); err != nil {
		return nil, err
	}
	r.Rebuilt = true
	return r, nil
}

// rebuild computes damaged parts in new files. It renames them once every sum is right.
func rebuild(ctx context.Context, dir *directory, l *parts.List, damage []PartDamage) (err error) {
	if err := checkSpace(dir.At(l.File), int64(len(damage))*l.PartSize(0)); err != nil {
		return err
	}
	const suffix = ".rebuilt"
	have, lacking := make([]*os.File, l.All()), make([]*os.File, l.All())
	defer func() {
		closeAll(have)
		closeAll(lacking)
		for i, f := range lacking {
			if f != nil {
				_ = dir.Remove(l.Name(i) + suffix) // already renamed on success
			}
		}
	}()
	for i, name := range l.Names() {
		if slices.ContainsFunc(damage, func(d PartDamage) bool { return d.Part == dir.At(name) }) {
			lacking[i], err = dir.Create(name+suffix, 0o644)
		} else if have[i], err = openRegular(dir.At(name)); err != nil {
			err = atomicfile.Fault("open", dir.At(name), err)
		}
		if err != nil {
			return err
		}
	}
	sums, err := code(ctx, l, have, lacking)
	if err != nil {
		return err
	}
	for i, f := range lacking {
		if f != nil && sums[i] != l.Sums[i] {
			return brokenFile(dir.At(l.Name(i)),
				"rebuilt it has the sha256 %s, the parts file says %s: the parts do not belong together", sums[i], l.Sums[i])
		}
	}
	for i, f := range lacking {
		if f == nil {
			continue
		}
		if err := dir.Rename(l.Name(i)+suffix, l.Name(i)); err != nil {
			return err
		}
	}
	return dir.Sync(".")
}
