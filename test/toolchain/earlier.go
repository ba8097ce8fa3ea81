package toolchain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
)

// ErrNoHistory is returned by [Earlier] if the checkout lacks the commit: it was cloned with --depth, or is no clone.
var ErrNoHistory = errors.New("the history of this checkout does not have it")

// Earlier creates a directory with the project's files at a commit, and builds programs of theirs into its bin/test.
// The programs are packages ./PATH.
func Earlier(ctx context.Context, commit, dir string, packages ...string) error {
	if _, err := exec.LookPath("git"); err != nil {
		return fmt.Errorf("toolchain: commit %s: %w: %w", commit, ErrNoHistory, err)
	}
	root, copied := shell.Shell{Dir: Root()}, shell.Shell{Dir: dir}
	if _, err := root.Run(ctx, "git", "cat-file", "-e", commit+"^{commit}"); err != nil {
		return fmt.Errorf("toolchain: commit %s: %w: %w", commit, ErrNoHistory, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		return fmt.Errorf("toolchain: %w", err)
	}
	archive := filepath.Join(dir, "bin", "files.tar")
	if _, err := root.Run(ctx, "git", "archive", "--format=tar", "-o", archive, commit); err != nil {
		return fmt.Errorf("toolchain: commit %s: %w", commit, err)
	}
	if _, err := copied.Run(ctx, "tar", "-xf", archive); err != nil {
		return fmt.Errorf("toolchain: commit %s: %w", commit, err)
	}
	if err := (Builder{}).project(ctx, dir, filepath.Join(dir, "bin", "test"), packages); err != nil {
		return fmt.Errorf("commit %s: %w", commit, err)
	}
	return nil
}
