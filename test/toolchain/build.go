package toolchain

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
)

// Builder builds tools. The zero value prints nothing and uses the whole machine.
type Builder struct {
	// Progress receives what is being built, for how long, and how much remains.
	Progress io.Writer
	// Background runs builds at the lowest priority.
	Background bool
	// Race builds the project's own programs with the race detector.
	Race bool

	cgo bool
}

// Ensure returns the paths of tools, in their order. It builds missing ones, one at a time, since a build needs the
// whole machine.
func (o Builder) Ensure(ctx context.Context, tools ...Tool) ([]string, error) {
	paths := make([]string, len(tools))
	var missing []int
	for i, tool := range tools {
		if paths[i] = installed(ctx, tool); paths[i] != "" {
			continue
		}
		var err error
		if paths[i], err = tool.path(); err != nil {
			return nil, fmt.Errorf("toolchain: %s: %w", tool.Name, err)
		}
		if !exists(paths[i]) {
			missing = append(missing, i)
		}
	}
	for n, i := range missing {
		then := ""
		if left := len(missing) - n - 1; left > 0 {
			then = fmt.Sprintf("; then %d more", left)
		}
		if err := o.build(ctx, tools[i], paths[i], then); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// Project builds programs of the project, given as packages ./PATH, into a directory. Up-to-date ones stay.
func (o Builder) Project(ctx context.Context, out string, packages ...string) error {
	return o.project(ctx, Root(), out, packages)
}

func (o Builder) project(ctx context.Context, root, out string, packages []string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("toolchain: %w", err)
	}
	names := make([]string, len(packages))
	for i, p := range packages {
		names[i] = filepath.Base(p)
	}
	o.cgo = o.Race // the race detector has parts in C
	return o.compile(ctx, strings.Join(names, ", "), "", root, o.projectArgs(out), packages)
}

// build builds a tool, unless another process has built it meanwhile.
func (o Builder) build(ctx context.Context, tool Tool, to, then string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("toolchain: %w", err)
	}
	unlock, err := lockedfile.MutexAt(filepath.Join(filepath.Dir(to), "..", "lock")).Lock()
	if err != nil {
		return fmt.Errorf("toolchain: %w", err)
	}
	defer unlock()
	if exists(to) {
		return nil
	}
	out, what := to+".new", strings.TrimSpace(tool.Name+" "+tool.Version)
	o.cgo = withC[tool.Name]
	if err := o.compile(ctx, what, then, tool.dir(), tool.args(out), []string{sources[tool.Name].pkg}); err != nil {
		return err
	}
	return os.Rename(out, to)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// dir returns the directory of the tool's module.
func (t Tool) dir() string { return filepath.Join(Root(), "scripts", "tools", sources[t.Name].module) }

// path returns the path of the tool, existing or not: with a hash of everything that the result depends on.
func (t Tool) path() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder: %w; set XDG_CACHE_HOME or HOME", err)
	}
	src, ok := sources[t.Name]
	if !ok {
		return "", errors.New("there is no such tool")
	}
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(t.dir(), name))
		if err != nil {
			return "", err
		}
		h.Write(data)
	}
	fmt.Fprintln(h, append(t.args("x"), src.pkg), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if withC[t.Name] {
		fmt.Fprintln(h, "cgo")
	}
	name := t.Name
	if t.Version != "" {
		name += "-v" + t.Version
	}
	return filepath.Join(cache, "vdo", "bin", name+"-"+hex.EncodeToString(h.Sum(nil))[:12], t.Name), nil
}

// args returns the arguments of `go`, without the packages.
func (t Tool) args(out string) []string {
	ld := "-s -w"
	if sources[t.Name].module == "kubernetes" {
		version := cmp.Or(t.Version, kubernetesVersion)
		parts := strings.SplitN(version, ".", 3)
		for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
			ld += fmt.Sprintf(" -X %s.gitVersion=v%s -X %s.gitMajor=%s -X %s.gitMinor=%s", pkg, version, pkg, parts[0], pkg, parts[1])
		}
	}
	return []string{"build", "-trimpath", "-ldflags", ld, "-o", out}
}

// compile runs `go build` and reports for how long.
func (o Builder) compile(ctx context.Context, what, then, dir string, args, packages []string) error {
	say := func(format string, args ...any) {
		if o.Progress != nil {
			fmt.Fprintf(o.Progress, "toolchain: "+format+"\n", args...)
		}
	}
	say("%s: begun%s", what, then)
	began := time.Now()
	sh, program := o.shell(dir), []string{"go"}
	if nice, err := exec.LookPath("nice"); err == nil && o.Background {
		program = []string{nice, "-n", "19", "go"}
	}
	done := make(chan error, 1)
	go func() {
		_, err := sh.Run(ctx, program[0], slices.Concat(program[1:], args, packages)...)
		done <- err
	}()
	tick := time.NewTicker(20 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			say("%s: for %s%s", what, time.Since(began).Round(time.Second), then)
		case err := <-done:
			if err != nil {
				return errors.Join(fmt.Errorf("toolchain: build %s in %s: %w", what, dir, err), ctx.Err())
			}
			say("%s: built in %s", what, time.Since(began).Round(time.Second))
			return nil
		}
	}
}

// shell returns a shell for `go`.
func (o Builder) shell(dir string) shell.Shell {
	cgo := "CGO_ENABLED=0"
	if o.cgo {
		cgo = "CGO_ENABLED=1"
	}
	sh := shell.Shell{Dir: dir, Env: []string{cgo, "GOFLAGS=-mod=readonly " + modcacheFlag(), "GOWORK=off"}}
	if os.Getenv("GOGC") == "" {
		sh.Env = append(sh.Env, "GOGC=300") // garbage collection is a fifth of the compiler's work
	}
	return sh
}

// ModuleDir returns the directory in the module cache of a Go module that a tool's module requires. It fetches a
// missing module.
func ModuleDir(ctx context.Context, toolModule, path string) (string, error) {
	sh := shell.Shell{
		Dir: filepath.Join(Root(), "scripts", "tools", toolModule), Env: []string{"GOFLAGS=-mod=mod " + modcacheFlag(), "GOWORK=off"},
	}
	out, err := sh.Run(ctx, "go", "mod", "download", "-json", path)
	var module struct{ Dir, Error string }
	switch jsonErr := json.Unmarshal([]byte(out), &module); {
	case err != nil || jsonErr != nil || module.Error != "":
		return "", fmt.Errorf("toolchain: fetch module %s: %w", path, errors.Join(err, jsonErr, errors.New(module.Error)))
	case module.Dir == "":
		return "", fmt.Errorf("toolchain: module %s was fetched, but go names no folder of it", path)
	}
	return module.Dir, nil
}

// modcacheFlag returns the caller's flag for a removable module cache.
func modcacheFlag() string {
	if strings.Contains(os.Getenv("GOFLAGS"), "-modcacherw") {
		return "-modcacherw"
	}
	return ""
}

// ErrNoHistory is returned by [Earlier] if the checkout lacks the commit: it was cloned with --depth, or is no clone.
var ErrNoHistory = errors.New("the history of this checkout does not have it")

// Earlier creates a directory with the project's files at a commit, and builds programs of theirs into its bin/test.
// The programs are packages ./PATH.
func Earlier(ctx context.Context, commit, dir string, packages ...string) error {
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
