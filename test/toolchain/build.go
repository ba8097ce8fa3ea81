package toolchain

import (
	"bufio"
	"bytes"
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
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// Builder builds tools. The zero value says nothing and takes the whole machine.
type Builder struct {
	// Progress is told what is being built, how far it is, and what is left.
	Progress io.Writer
	// Every is how often it is told; default 20 s.
	Every time.Duration
	// Background leaves the processors to whoever else wants them.
	Background bool
	// Race builds the project's own programs with the race detector.
	Race bool

	cgo bool
}

// Ensure returns the paths of tools, in their order. What is missing is built: all
// tools of one module together, so that the processors are never idle.
func (o Builder) Ensure(ctx context.Context, tools ...Tool) ([]string, error) {
	o = o.withDefaults()
	paths := make([]string, len(tools))
	var missing []*group
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
		if _, err := os.Stat(paths[i]); err == nil {
			continue
		}
		missing = addTo(missing, b, paths[i])
	}
	if len(missing) == 0 {
		return paths, nil
	}
	return paths, o.build(ctx, missing)
}

// Project builds programs of the project itself, given as packages ./PATH, into a
// folder. What is there and up to date stays.
func (o Builder) Project(ctx context.Context, out string, packages ...string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("toolchain: %w", err)
	}
	names := make([]string, len(packages))
	for i, p := range packages {
		names[i] = filepath.Base(p)
	}
	o.cgo = o.Race // the race detector has parts in C
	return o.withDefaults().compile(ctx, strings.Join(names, ", "), "", Root(), o.projectArgs(out), packages)
}

func (o Builder) withDefaults() Builder {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Every == 0 {
		o.Every = 20 * time.Second
	}
	return o
}

// build makes what is missing, one build at a time on the whole machine: they need all
// of it, and two test binaries that want the same tool must not build it twice.
func (o Builder) build(ctx context.Context, missing []*group) error {
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
	for i, g := range missing {
		if g.drop(); len(g.builds) == 0 {
			continue // somebody else has built it meanwhile
		}
		then := ""
		if n := len(missing) - i - 1; n > 0 {
			then = fmt.Sprintf("; then %d more", n)
		}
		if err := o.run(ctx, g, cache, then); err != nil {
			return err
		}
	}
	return nil
}

// build is one tool's.
type build struct {
	tool   Tool
	source source
	dir    string
}

func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("toolchain: no cache folder: %w; set XDG_CACHE_HOME or HOME", err)
	}
	return filepath.Join(cache, "vdo", "bin"), nil
}

// path is where the tool is or will be.
func (b build) path() (string, error) {
	key, err := b.key()
	if err != nil {
		return "", fmt.Errorf("toolchain: %s: %w", b.tool.Name, err)
	}
	cache, err := cacheDir()
	return filepath.Join(cache, key, b.tool.Name), err
}

// key names everything that the result depends on.
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

// args of `go`, without the packages.
func (b build) args(out string) []string {
	ld := "-s -w"
	if b.source.module == "kubernetes" {
		version := b.tool.Version
		if version == "" {
			version = kubernetesVersion
		}
		parts := strings.SplitN(version, ".", 3)
		for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
			ld += fmt.Sprintf(" -X %s.gitVersion=v%s -X %s.gitMajor=%s -X %s.gitMinor=%s", pkg, version, pkg, parts[0], pkg, parts[1])
		}
	}
	return []string{"build", "-trimpath", "-ldflags", ld, "-o", out}
}

// group is what one call of `go build` makes: tools of one module and version.
type group struct {
	builds []build
	paths  []string
}

func addTo(groups []*group, b build, path string) []*group {
	for _, g := range groups {
		if first := g.builds[0]; first.dir == b.dir && first.tool.Version == b.tool.Version {
			g.builds, g.paths = append(g.builds, b), append(g.paths, path)
			return groups
		}
	}
	return append(groups, &group{[]build{b}, []string{path}})
}

// drop takes away what is there.
func (g *group) drop() {
	var left group
	for i, path := range g.paths {
		if _, err := os.Stat(path); err != nil {
			left.builds, left.paths = append(left.builds, g.builds[i]), append(left.paths, path)
		}
	}
	*g = left
}

func (g *group) packages() (out []string) {
	for _, b := range g.builds {
		out = append(out, b.source.pkg)
	}
	return out
}

func (g *group) String() string {
	var names []string
	for _, b := range g.builds {
		names = append(names, b.tool.Name)
	}
	return strings.TrimSpace(strings.Join(names, ", ") + " " + g.builds[0].tool.Version)
}

func (o Builder) run(ctx context.Context, g *group, cache, then string) error {
	tmp, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return fmt.Errorf("toolchain: %w", err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // what was built is moved out of it
	first := g.builds[0]
	out := tmp + string(filepath.Separator)
	if len(g.builds) == 1 { // the last part of its package's path need not be its name
		out = filepath.Join(tmp, first.tool.Name)
	}
	o.cgo = withC[first.tool.Name]
	if err := o.compile(ctx, g.String(), then, first.dir, first.args(out), g.packages()); err != nil {
		return err
	}
	return g.take(tmp)
}

// compile runs `go build` and tells how far it is.
func (o Builder) compile(ctx context.Context, what, then, dir string, args, packages []string) error {
	say := func(format string, args ...any) { fmt.Fprintf(o.Progress, "toolchain: "+format+"\n", args...) }
	say("%s: begun%s", what, then)
	began := time.Now()
	meter := &meter{total: o.count(ctx, dir, packages)}
	done := make(chan error, 1)
	go func() { done <- o.command(ctx, dir, meter, append(append(args, "-v"), packages...)).Run() }()
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			say("%s: %s%s", what, meter.say(time.Since(began)), then)
		case err := <-done:
			if err != nil {
				return errors.Join(fmt.Errorf("toolchain: build %s in %s: %w\n%s", what, dir, err, meter.tail()), ctx.Err())
			}
			say("%s: built in %s", what, time.Since(began).Round(time.Second))
			return nil
		}
	}
}

// take moves what was built to where it belongs.
func (g *group) take(tmp string) error {
	for i, path := range g.paths {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("toolchain: %w", err)
		}
		if err := os.Rename(filepath.Join(tmp, g.builds[i].tool.Name), path); err != nil {
			return fmt.Errorf("toolchain: %w", err)
		}
	}
	return nil
}

// count is how many packages there are to compile, if nothing is cached; 0 where
// that cannot be told.
func (o Builder) count(ctx context.Context, dir string, packages []string) int {
	var names bytes.Buffer
	cmd := o.command(ctx, dir, io.Discard, append([]string{"list", "-deps"}, packages...))
	cmd.Stdout = &names
	if cmd.Run() != nil {
		return 0
	}
	return bytes.Count(names.Bytes(), []byte("\n"))
}

// command is a call of `go` that ends, with all that it has started, when ctx does.
func (o Builder) command(ctx context.Context, dir string, stderr io.Writer, args []string) *exec.Cmd {
	program := []string{"go"}
	if nice, err := exec.LookPath("nice"); err == nil && o.Background {
		program = []string{nice, "-n", "19", "go"}
	}
	cmd := exec.CommandContext(ctx, program[0], append(program[1:], args...)...)
	cmd.Dir = dir
	cgo := "CGO_ENABLED=0"
	if o.cgo {
		cgo = "CGO_ENABLED=1"
	}
	cmd.Env = append(os.Environ(), cgo, "GOFLAGS=-mod=readonly", "GOWORK=off")
	if os.Getenv("GOGC") == "" {
		cmd.Env = append(cmd.Env, "GOGC=300") // collecting garbage is a fifth of what the compiler does
	}
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// meter reads what `go build -v` says: the packages that it compiles, a line each,
// the modules that it fetches, and errors.
type meter struct {
	total int

	mu       sync.Mutex
	compiled int
	text     []byte // without what is fetched; the last of it
}

func (m *meter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for lines := bufio.NewScanner(bytes.NewReader(p)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "go: downloading ") {
			continue
		}
		if m.compiled++; strings.Contains(line, " ") || strings.HasPrefix(line, "#") {
			m.compiled-- // an error's text
		}
		m.text = append(append(m.text, line...), '\n')
		m.text = m.text[max(0, len(m.text)-4<<10):]
	}
	return len(p), nil
}

func (m *meter) tail() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return string(m.text)
}

// say tells how far it is. Time is taken to go with the number of packages.
func (m *meter) say(elapsed time.Duration) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	text := fmt.Sprintf("%d of at most %d packages", m.compiled, m.total)
	if m.total > 0 && m.compiled*8 > m.total {
		left := elapsed * time.Duration(m.total-m.compiled) / time.Duration(m.compiled)
		text += fmt.Sprintf(", about %s left", max(left, time.Second).Round(time.Second))
	}
	return text
}

// ModuleDir returns the folder of a Go module that a tool's module requires, in
// the module cache; where it is not there yet it is fetched.
func ModuleDir(ctx context.Context, toolModule, path string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", path)
	cmd.Dir = filepath.Join(Root(), "scripts", "tools", toolModule)
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod "+modcacheFlag(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var module struct{ Dir, Error string }
	switch jsonErr := json.Unmarshal(out, &module); {
	case err != nil || jsonErr != nil || module.Error != "":
		return "", fmt.Errorf("toolchain: fetch module %s: %w", path, errors.Join(err, jsonErr, errors.New(module.Error+" "+stderr.String())))
	case module.Dir == "":
		return "", fmt.Errorf("toolchain: module %s was fetched, but go names no folder of it", path)
	}
	return module.Dir, nil
}

// modcacheFlag keeps the caller's wish for a module cache that can be removed.
func modcacheFlag() string {
	if strings.Contains(os.Getenv("GOFLAGS"), "-modcacherw") {
		return "-modcacherw"
	}
	return ""
}
