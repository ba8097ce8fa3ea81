package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// Repaired is what Repair found and did.
type Repaired struct {
	Parts   int          `json:"parts"` // with the recovery parts
	Damaged []PartDamage `json:"damaged"`
	Rebuilt bool         `json:"rebuilt"` // they are as they were again
}

// Repair holds the parts of a parts file against their sums, and rebuilds those
// that are lost or damaged from the others. With dryRun it only looks, and what it
// finds is a fault. It writes nothing, and needs no right to, where nothing is damaged.
func Repair(ctx context.Context, path string, dryRun bool) (*Repaired, error) {
	path, l, err := findParts(path)
	if err != nil {
		return nil, err
	}
	r, found := look(ctx, path, l)
	switch {
	case found == nil:
		dropLeftLock(path, l, dryRun)
		return r, nil
	case dryRun || ctx.Err() != nil:
		return nil, found
	}
	dir, lock, err := lockParts(path)
	switch {
	case fault.ReasonOf(err) == fault.Conflict: // what was found is what somebody does to it
		return nil, err
	case err != nil:
		return nil, fault.Join(found, err)
	}
	defer dir.close() //nolint:errcheck // nothing is written through it any more
	now, err := readParts(path)
	if err == nil && !bytes.Equal(now.Text(), l.Text()) { // somebody has signed meanwhile
		r, found = look(ctx, path, now)
	}
	if err == nil {
		r, err = repair(ctx, dir, now, r, found)
	}
	return r, errors.Join(err, lock.release())
}

// dropLeftLock removes the lock that a repair has left which was killed after its last
// part was whole. Where that cannot be done, nothing is amiss.
func dropLeftLock(path string, l *parts.List, dryRun bool) {
	if dryRun || !isThere(filepath.Join(filepath.Dir(path), l.File()+journalSuffix)) {
		return
	}
	if dir, lock, err := lockParts(path); err == nil {
		_ = lock.release()
		_ = dir.close()
	}
}

// look holds parts against their sums; what it finds is a fault. Without a result it could
// not look.
func look(ctx context.Context, path string, l *parts.List) (*Repaired, error) {
	if l.Changing {
		return nil, &fault.Error{Reason: fault.Refused, Op: "repair", Subject: path,
			Hint: "run that `vdo-bundle sign` again, then repair", Err: errors.New("a signature was being added, and that was interrupted")}
	}
	damage, err := sumParts(ctx, filepath.Dir(path), l, func(int) bool { return true })
	if err != nil {
		return nil, err
	}
	r := &Repaired{Parts: l.All(), Damaged: damage}
	errs := make([]error, 0, len(damage))
	for _, d := range damage {
		errs = append(errs, d.fault(l, path, len(damage)))
	}
	if len(damage) > l.Recovery() {
		return r, &fault.Error{Reason: fault.Incomplete, Op: "repair", Subject: path, Err: fault.Join(errs...),
			Hint: fmt.Sprintf("of %d lost parts at most %d can be rebuilt: copy the others again from where they were made", len(damage), l.Recovery())}
	}
	return r, fault.Join(errs...)
}

// repair rebuilds what was found damaged, where that can be done.
func repair(ctx context.Context, dir *folder, l *parts.List, r *Repaired, found error) (*Repaired, error) {
	if found == nil {
		return r, nil
	}
	if r == nil || len(r.Damaged) > l.Recovery() {
		return nil, found
	}
	if err := rebuild(ctx, dir, l, r.Damaged); err != nil {
		return nil, err
	}
	r.Rebuilt = true
	return r, nil
}

// findParts reads a parts file that is named itself, or by its archive.
func findParts(path string) (string, *parts.List, error) {
	if !strings.HasSuffix(path, parts.Suffix) && isThere(path+parts.Suffix) {
		path += parts.Suffix
	}
	l, err := readParts(path)
	if err == nil {
		return path, l, nil
	}
	if of := strings.TrimSuffix(path, filepath.Ext(path)) + parts.Suffix; of != path && isThere(of) {
		err = &fault.Error{Reason: fault.InvalidInput, Op: "repair", Subject: path,
			Err:  errors.New("it is one part, and parts are rebuilt from each other"),
			Hint: "name the parts file: vdo-bundle repair " + of}
	} else if isTar(path) {
		err = &fault.Error{Reason: fault.InvalidInput, Op: "repair", Subject: path,
			Err:  errors.New("it is a whole archive, and only what is in parts can be rebuilt"),
			Hint: "name the parts file, FILE.tar" + parts.Suffix + "; `vdo-bundle verify` checks a whole archive"}
	}
	return path, l, err
}

// isTar tells whether a file begins as a tar does.
func isTar(path string) bool {
	f, err := openRegular(path)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // nothing was written
	head := make([]byte, len(tarMagic))
	_, err = f.ReadAt(head, tarMagicAt)
	return err == nil && string(head) == tarMagic
}

// What the header of a tar says of POSIX, and where.
const (
	tarMagic   = "ustar"
	tarMagicAt = 257
)

// rebuild computes damaged parts anew, beside what is there; each takes its name
// once its sum is right.
func rebuild(ctx context.Context, dir *folder, l *parts.List, damage []PartDamage) (err error) {
	if err := checkSpace(dir.at(l.File()), int64(len(damage))*l.PartSize(0)); err != nil {
		return err
	}
	enc, err := reedSolomon(l)
	if err != nil {
		return err
	}
	lost := map[string]bool{}
	for _, d := range damage {
		lost[d.Part] = true
	}
	c := newCoder(l)
	var files []*os.File
	made := map[int]*os.File{}
	rebuilt := func(i int) string { return l.Name(i) + ".rebuilt" }
	defer func() {
		for _, f := range files {
			_ = f.Close() // flushed before, where all went well
		}
		for i := range made {
			_ = dir.remove(rebuilt(i)) // renamed, where all went well
		}
	}()
	for i := range l.All() {
		name := dir.at(l.Name(i))
		if !lost[name] {
			f, err := openRegular(name)
			if err != nil {
				return storageFault("open", name, err)
			}
			files, c.in[i] = append(files, f), f
			continue
		}
		f, err := dir.create(rebuilt(i), 0o644)
		if err != nil {
			return err
		}
		files, c.out[i], made[i] = append(files, f), f, f
	}
	if err := c.run(ctx, enc.Reconstruct); err != nil {
		return err
	}
	for i, f := range made {
		if got := parts.Sum(c.sums[i].Sum(nil)); got != l.Sums[i] {
			return brokenFile(dir.at(l.Name(i)), "rebuilt it has the sha256 %s, the parts file says %s: the parts do not belong together", got, l.Sums[i])
		}
		if err := f.Sync(); err != nil {
			return storageFault("write", f.Name(), err)
		}
	}
	for i := range made {
		if err := dir.rename(rebuilt(i), l.Name(i)); err != nil {
			return err
		}
	}
	return dir.sync(".")
}
