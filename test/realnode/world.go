package realnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// world is what a world leaves outside: a folder, which is locked as long as its owner
// lives, and control groups of the same name.
type world struct {
	dir  string
	lock *os.File
}

const (
	prefix      = "vdo-realnode-"
	controllers = "/sys/fs/cgroup"
)

// newWorld makes a folder, after removing what killed runs have left. One at a time does
// so: a folder that is new is not locked at once.
func newWorld() (*world, error) {
	all, err := os.Open(os.TempDir())
	if err != nil {
		return nil, err
	}
	defer func() { _ = all.Close() }()
	if err := syscall.Flock(int(all.Fd()), syscall.LOCK_EX); err != nil { //nolint:gosec // a file's descriptor is small
		return nil, err
	}
	if err := removeLeftovers(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, err
	}
	w := &world{dir: dir}
	if w.lock, err = lock(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return w, os.Mkdir(filepath.Join(dir, "tmp"), 0o700)
}

// lock takes a world's folder, or says that somebody has it.
func lock(dir string) (*os.File, error) {
	f, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil { //nolint:gosec // a file's descriptor is small
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// close removes what is left once the world's processes have ended.
func (w *world) close() error {
	err := errors.Join(removeGroups(w.dir), os.RemoveAll(w.dir))
	return errors.Join(err, w.lock.Close())
}

// removeLeftovers removes worlds whose owner is not alive any more. Their processes ended
// with it.
func removeLeftovers() error {
	worlds, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range worlds {
		f, err := lock(dir)
		if err != nil {
			continue // it is somebody's
		}
		if err := (&world{dir: dir, lock: f}).close(); err != nil {
			return fmt.Errorf("remove what a killed run has left: %w", err)
		}
	}
	return nil
}

// groups are the control groups of a world, one for each hierarchy, those below first.
func groups(dir string) (all []string) {
	name := filepath.Base(dir)
	for _, pattern := range []string{"*/" + name, name} {
		roots, _ := filepath.Glob(filepath.Join(controllers, pattern)) //nolint:errcheck // the pattern is good
		for _, root := range roots {
			_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					all = append(all, path)
				}
				return nil
			})
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	return slices.Compact(all)
}

// removeGroups removes a world's control groups. Each can be removed once its last process
// is gone, which is soon after it was killed.
func removeGroups(dir string) error {
	return wait(context.Background(), "remove control groups", func() error {
		var errs []error
		for _, g := range groups(dir) {
			if err := syscall.Rmdir(g); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("%s: %w", g, err))
			}
		}
		return errors.Join(errs...)
	})
}

// makeGroup makes a control group in each hierarchy, below the world's own.
func makeGroup(name string) error {
	hierarchies, err := os.ReadDir(controllers)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(controllers, "cgroup.controllers")); err == nil {
		return os.MkdirAll(filepath.Join(controllers, name), 0o755)
	}
	var errs []error
	for _, h := range hierarchies {
		if h.IsDir() {
			errs = append(errs, os.MkdirAll(filepath.Join(controllers, h.Name(), name), 0o755))
		}
	}
	return errors.Join(errs...)
}
