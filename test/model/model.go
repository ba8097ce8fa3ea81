//go:build linux

// Package model runs random programs of vdo-bundle's commands over random locations, with random faults during and
// between them. After each step it checks the invariants of the world.
//
// A [Program] is data with a text. A failure prints the shortest program that still fails, which can run again from
// that text; package random makes programs from seeds. A world executes them with the real program, real registries
// and real files. A model judges each step by its own reading of locations and registries, past the faults and
// without the program's code:
//
//	ends      every command ends; the first signal ends it
//	memory    it never holds more than 100 MiB
//	code      its exit code is documented, and not that of a defect
//	says      a failure gives its reason
//	secret    no key and no password is in its output or its files
//	stays     only files and tags that the command line names change
//	keeps     no bundle, blob, part or signature disappears, unless requested
//	complete  whatever looks like a bundle is one: a tag, an index.json, a file without
//	          .partial
//	proven    if a signer is required, nothing else is pushed or verified
//	result    exit 0 means that it is done: the right root, every blob below it and all
//	          referrers, the bytes of a run without faults, every signature, and
//	          verify accepts it
//	must      an unhindered command succeeds: after a fault the same command completes
//	          the work
//
// It needs Linux: points in time are changes of files.
package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/random"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
)

// run runs a program in its own world. Its error is a [*random.Broken], or that of creating a world.
func (s *site) run(p Program) error {
	w, err := newWorld(s, mirrorOf(p))
	if err != nil {
		return err
	}
	defer w.close()
	for _, step := range p {
		for _, at := range []place{step.From, step.To} {
			if at != "" && !slices.Contains(w.model.places, at) {
				w.model.places = append(w.model.places, at)
			}
		}
	}
	for _, step := range p {
		if err := w.step(step); err != nil {
			return err
		}
	}
	return w.leak()
}

// mirrorOf returns the registry's options from a program's first step.
func mirrorOf(p Program) registry.Options {
	for _, s := range p {
		if s.Do == "mirror" {
			return registry.Options{Kind: registry.Kind(s.N), TLS: s.has("tls")}
		}
	}
	return registry.Options{}
}

func (w *world) step(s Step) error {
	if s.Do == "mirror" {
		return nil
	}
	w.clock.Add(1)
	if damage, ok := damages[s.Do]; ok {
		return w.damage(s, damage)
	}
	if w.model.files == nil {
		w.observe()
	}
	t := &trial{world: w, step: s, before: w.model.now, files: w.model.files}
	var err error
	if t.outcomes, err = w.do(s); err != nil {
		return fmt.Errorf("run %s: %w", s, err)
	}
	w.observe()
	t.after = w.model.now
	if err := t.judge(); err != nil {
		return err
	}
	t.learn()
	return w.model.failed
}

// damage damages a location, and records it.
func (w *world) damage(s Step, damage func(*world, Step) error) error {
	w.model.files = nil // observe again
	if err := damage(w, s); err != nil {
		return fmt.Errorf("run %s: %w", s, err)
	}
	if s.Do == "lose" {
		w.model.lost[s.To.repo()] = true
	} else {
		w.model.damaged[s.To] = true
	}
	return nil
}

// A Program is a list of steps.
type Program = random.Program[Step]

// A Step is a command, or damage to a location between two commands. Its text is JSON:
// {"do":"push","from":"x.tar","to":"reg:r:1","trust":"k1","with":["check-all"],
// "fault":{"kind":"kill","on":"mirror","at":7}}.
type Step struct {
	// Do is the verb: pull, sign, split, repair, push, prune or verify; or flip, shorten, remove or lose, see
	// fault.go.
	Do string `json:"do"`
	// Bundle is the selection that pull takes: a, b or c.
	Bundle string `json:"bundle,omitempty"`
	// From and To are locations. A command in place has only To.
	From place `json:"from,omitempty"`
	To   place `json:"to,omitempty"`
	// Key signs, Trust is the required signer: k1, k2; both, for a policy that requires k1 and k2.
	Key   string `json:"key,omitempty"`
	Trust string `json:"trust,omitempty"`
	// With are further options.
	With []string `json:"with,omitempty"`
	// File is the damaged file of the location, by the end of its name; N is the position.
	File  string `json:"file,omitempty"`
	N     int    `json:"n,omitempty"`
	Fault Fault  `json:"fault,omitzero"`
}

// A Fault is a fault while a command runs.
type Fault struct {
	Kind string `json:"kind"`
	On   string `json:"on,omitempty"` // mirror, up (the upstream registry) or files
	At   int    `json:"at,omitempty"` // number of the request or of the file change, or a size
}

// String returns the step's text.
func (s Step) String() string {
	data, _ := json.Marshal(s) //nolint:errchkjson // strings and numbers
	return string(data)
}

func (s Step) has(option string) bool { return slices.Contains(s.With, option) }

func (s Step) quiet() Step {
	s.Fault = Fault{}
	return s
}

// Time limits of a command, and of its end after a signal. On a free machine no command needs a tenth of it. With a
// dozen other jobs, 20 seconds were too short for a blob in chunks.
const (
	mustEnd     = 2 * time.Minute
	mustEndSoon = time.Minute
)

type process struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	peak           chan int
	done           chan struct{}
}

type outcome struct {
	code           int // -1: killed
	stdout, stderr string
	peak           int  // KiB
	stuck          bool // it did not end by itself
	deaf           bool // nor after a signal
}

// start runs vdo-bundle.
func (w *world) start(args []string) (*process, error) {
	p := &process{cmd: exec.Command(w.site.binary, args...), peak: make(chan int, 1), done: make(chan struct{})}
	p.cmd.Dir = w.dir
	p.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "PWD=" + w.dir, "HOME=" + w.path("home"), "TMPDIR=" + w.path("tmp"),
		"DOCKER_CONFIG=" + w.path("login"), "XDG_RUNTIME_DIR=" + w.path("home"),
		"SSL_CERT_FILE=/none", "SSL_CERT_DIR=/none", // to read the machine's own takes as long as all else at the start
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.peak <- shell.Peak(p.cmd.Process.Pid) }()
	go func() {
		_ = p.cmd.Wait() // the exit code is in its state
		close(p.done)
	}()
	return p, nil
}

// wait waits for the end of the process, and kills it at the limit.
func (p *process) wait() outcome {
	var o outcome
	select {
	case <-p.done:
	case <-time.After(mustEnd):
		o.stuck = true
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(mustEndSoon):
			o.deaf = true
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	}
	o.code = p.cmd.ProcessState.ExitCode()
	o.stdout, o.stderr, o.peak = p.stdout.String(), p.stderr.String(), <-p.peak
	return o
}

// watchFiles reports every file that is created, renamed, removed or written below a directory, until end is called.
func watchFiles(root string) (changes <-chan struct{}, end func(), err error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, nil, err
	}
	add := func(root string) {
		_ = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				_ = w.Add(name)
			}
			return nil // it may be gone again
		})
	}
	add(root)
	out := make(chan struct{}, 4096)
	go func() {
		for {
			select {
			case <-w.Errors: // some events were dropped, or the watcher is closed
			case e, open := <-w.Events:
				if !open {
					return
				}
				if e.Has(fsnotify.Create) {
					add(e.Name)
				}
				if e.Op != fsnotify.Chmod && len(out) < cap(out) {
					out <- struct{}{}
				}
			}
		}
	}()
	return out, func() { _ = w.Close() }, nil
}
