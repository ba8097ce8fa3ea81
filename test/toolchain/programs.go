package toolchain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
)

// Programs puts programs of the project, given as packages ./PATH, into a directory. All tests of a checkout share
// one build in bin/test, compiled like the demo's: building takes longer than many tests. The test runner builds them
// first, and names their directory in [ProgramsVariable].
func Programs(ctx context.Context, dir string, packages ...string) error {
	built := filepath.Join(Root(), "bin", "test")
	prepared := os.Getenv(ProgramsVariable)
	if prepared != "" && !slices.ContainsFunc(packages, func(p string) bool { return !slices.Contains(Prepared, p) }) {
		return copyPrograms(ctx, prepared, dir, packages)
	}
	if err := os.MkdirAll(built, 0o755); err != nil {
		return fmt.Errorf("toolchain: %w", err)
	}
	unlock, err := lockedfile.MutexAt(filepath.Join(built, "lock")).Lock()
	if err != nil {
		return fmt.Errorf("toolchain: %w", err)
	}
	defer unlock()
	if err := (Builder{}).Project(ctx, built, packages...); err != nil {
		return err
	}
	return copyPrograms(ctx, built, dir, packages)
}

// Main runs a package's tests as [Run] does and ends the process.
func Main(m *testing.M, use func(dir string), packages ...string) { os.Exit(Run(m, use, packages...)) }

// Run runs a package's tests with programs of the project, see [Programs]; use receives their directory.
func Run(m *testing.M, use func(dir string), packages ...string) (code int) {
	debug.SetGCPercent(400) // of registries in this process: saves a tenth of its time under the race detector
	dir, err := os.MkdirTemp("", "vdo-programs-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = Programs(context.Background(), dir, packages...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	use(dir)
	return m.Run()
}

// Prepared are the programs that the test runner builds before the tests.
var Prepared = []string{"./bundler/cmd/vdo-bundle", "./operator/cmd/vdo-operator", "./operator/cmd/vdoctl"}

// ProgramsVariable is the environment variable with the directory of the project's programs, from the test runner.
const ProgramsVariable = "VDO_TEST_BINARIES"

// copyPrograms copies, since the next build may write into an existing file.
func copyPrograms(ctx context.Context, from, to string, packages []string) error {
	args := []string{"-D", "-t", to}
	for _, p := range packages {
		args = append(args, filepath.Join(from, path.Base(p)))
	}
	_, err := new(shell.Shell).Run(ctx, "install", args...)
	return errors.Join(err, ctx.Err())
}

// BuildTags are those of the Makefile: without gRPC's trace pages and their templates, the linker drops unused
// methods.
const BuildTags = "grpcnotrace"

// projectArgs returns the arguments of `go` that build programs of the project into a directory.
func (o Builder) projectArgs(out string) []string {
	args := []string{
		"build", "-trimpath", "-buildvcs=false", "-tags", BuildTags, "-ldflags", "-s -w",
		"-o", out + string(filepath.Separator),
	}
	if o.Race {
		args = append(args, "-race")
	}
	return args
}
