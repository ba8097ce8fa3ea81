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

const (
	prefix      = "vdo-realnode-" // of a world's folder, and of its control groups
	controllers = "/sys/fs/cgroup"
)

// groups returns the control groups of a world in all hierarchies, children first.
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

// removeGroups removes a world's control groups. A group can be removed once its last process is gone, soon after its
// kill.
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
