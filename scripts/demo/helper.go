package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// helpers are the programs that run beside the demo. Those of the world end when their
// standard input does, so also when the demo is killed.
type helpers struct {
	mu  sync.Mutex
	all []*helper
}

type helper struct {
	cmd    *exec.Cmd
	ask    func() // to end
	exited chan struct{}
}

// program is what runs beside the demo.
type program struct {
	name, log string // log is a name too; "": the program's
	args, env []string
	// facts, where set, are read from the one line of JSON that it prints.
	facts any
}

// start runs a program. With facts it waits until the program has printed them. What else
// the program says goes to a log; its temporary files lie in the demo's folder.
func (d *demo) start(ctx context.Context, p program) error {
	log, err := os.OpenFile(d.path(cmp.Or(p.log, p.name)+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(filepath.Join(binDir(), p.name), p.args...)
	if cmd.Dir = d.path("site"); p.facts != nil {
		cmd.Dir = toolchain.Root() // those of the world find the tools by it
	}
	cmd.Env = append(append(os.Environ(), p.env...), "TMPDIR="+d.path("tmp"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is the demo's business
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	var stdout io.ReadCloser
	if p.facts != nil {
		cmd.Stdout = nil
		if stdout, err = cmd.StdoutPipe(); err != nil {
			return err
		}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	h := &helper{cmd: cmd, exited: make(chan struct{}), ask: func() { _ = stdin.Close() }}
	if p.facts == nil {
		h.ask = func() { _ = cmd.Process.Signal(syscall.SIGTERM) }
	}
	d.running.add(h)
	told := make(chan error, 1)
	go func() {
		defer close(h.exited)
		if p.facts != nil {
			told <- json.NewDecoder(stdout).Decode(p.facts)
			_, _ = io.Copy(io.Discard, stdout)
		}
		_ = cmd.Wait()
	}()
	if p.facts == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-told:
		if err != nil {
			out, _ := os.ReadFile(d.path(p.name + ".log")) //nolint:errcheck // only for the message
			return fmt.Errorf("%s does not start: %w\n%s", p.name, err, out)
		}
		return nil
	}
}

func (hs *helpers) add(h *helper) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.all = append(hs.all, h)
}

func (hs *helpers) list() []*helper {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.all
}

// end asks all programs to end, and ends those that do not.
func (hs *helpers) end() {
	for _, h := range hs.list() {
		h.ask()
	}
	late := time.After(patience)
	for _, h := range hs.list() {
		select {
		case <-h.exited:
		case <-late:
			hs.kill()
		}
	}
}

// kill ends all programs, and what they have started, without asking.
func (hs *helpers) kill() {
	for _, h := range hs.list() {
		select {
		case <-h.exited:
			continue
		default:
		}
		_ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL)
		<-h.exited
	}
}
