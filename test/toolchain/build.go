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

// Ensure returns the paths of tools, in their order. It builds missing ones.
func (o Builder) Ensure(ctx context.Context, tools ...Tool) ([]string, error) {
	paths := make([]string, len(tools))
	var missing []build
	for i, tool := range tools {
		src, ok := sources[tool.Name]
		if !ok {
			return nil, fmt.Errorf("toolchain: no tool %q", tool.Name)
		}
		if paths[i] = installed(ctx, tool); paths[i] != "" {
			continue
		}
		b := build{tool: tool, source: src, dir: filepath.Join(Root(), "scripts", "tools", src.module)}
		var err error
		if paths[i], err = b.path(); err != nil {
			return nil, err
		}
		if b.to = paths[i]; !b.exists() {
			missing = append(missing, b)
		}
	}
	if len(missing) == 0 {
		return paths, nil
	}
	return paths, o.build(ctx, missing)
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

// build builds missing tools, one build at a time on the whole machine, since a build needs all of it. Two test
// binaries must not build the same tool twice.
func (o Builder) build(ctx context.Context, missing []build) error {
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return fmt.Errorf("toolchain: %w", err)
	}
	unlock, err := lockedfile.MutexAt(filepath.Join(cache, "lock")).Lock()
	if err != nil {
		return fmt.Errorf("toolchain: %w", err)
	}
	defer unlock()
	for i, b := range missing {
		if b.exists() {
			continue // another process built it meanwhile
		}
		then := ""
		if n := len(missing) - i - 1; n > 0 {
			then = fmt.Sprintf("; then %d more", n)
		}
		if err := o.run(ctx, b, cache, then); err != nil {
			return err
		}
	}
	return nil
}

func (o Builder) run(ctx context.Context, b build, cache, then string) error {
	tmp, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return fmt.Errorf("toolchain: %w", err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // the result was moved out of it
	out, what := filepath.Join(tmp, b.tool.Name), strings.TrimSpace(b.tool.Name+" "+b.tool.Version)
	o.cgo = withC[b.tool.Name]
	if err := o.compile(ctx, what, then, b.dir, b.args(out), []string{b.source.pkg}); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(b.to), 0o755), os.Rename(out, b.to)); err != nil {
		return fmt.Errorf("toolchain: %w", err)
	}
	return nil
}

type build struct {
	tool   Tool
	source source
	dir    string
	to     string // path of the tool
}

func (b build) exists() bool {
	_, err := os.Stat(b.to)
	return err == nil
}

func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("toolchain: no cache folder: %w; set XDG_CACHE_HOME or HOME", err)
	}
	return filepath.Join(cache, "vdo", "bin"), nil
}

// path returns the path of the tool, existing or not.
func (b build) path() (string, error) {
	key, err := b.key()
	if err != nil {
		return "", fmt.Errorf("toolchain: %s: %w", b.tool.Name, err)
	}
	cache, err := cacheDir()
	return filepath.Join(cache, key, b.tool.Name), err
}

// key returns a hash of everything that the result depends on.
func (b build) key() (string, error) {
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(b.dir, name))
		if err != nil {
			return "", err
		}
		h.Write(data)
	}
	fmt.Fprintln(h, append(b.args("x"), b.source.pkg), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if withC[b.tool.Name] {
		fmt.Fprintln(h, "cgo")
	}
	version := ""
	if b.tool.Version != "" {
		version = "-v" + b.tool.Version
	}
	return b.tool.Name + version + "-" + hex.EncodeToString(h.Sum(nil))[:12], nil
}

// args returns the arguments of `go`, without the packages.
func (b build) args(out string) []string {
	ld := "-s -w"
	if b.source.module == "kubernetes" {
		version := cmp.Or(b.tool.Version, kubernetesVersion)
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
