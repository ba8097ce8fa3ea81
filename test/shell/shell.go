// Package shell runs programs as a person at a terminal would, for the demo and for tests.
package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Shell runs programs as a person at a terminal would: in a directory, with an environment and a path of programs.
type Shell struct {
	Dir string
	Env []string // in addition to the process's own
	// Path is searched first for programs.
	Path []string
	// Echo, if set, receives each command line before it runs. It returns the writer of the output, in the order of
	// both streams.
	Echo func(line string) io.Writer
}

// Log is text that several goroutines write, and that may be read meanwhile.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Exit is a command that ended with a code other than 0.
type Exit struct {
	Code   int
	Stderr string
	line   string
}

func (e *Exit) Error() string {
	return fmt.Sprintf("%s: exit code %d: %s", e.line, e.Code, strings.TrimSpace(e.Stderr))
}

// Run runs a command to its end and returns its standard output, with Echo that of both streams. A code other than 0
// is an *[Exit].
func (s *Shell) Run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := s.command(ctx, name, args)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if s.Echo != nil {
		both := io.MultiWriter(&stdout, &stderr, s.Echo(CommandLine(name, args)))
		cmd.Stdout, cmd.Stderr = both, both // one writer is one pipe: of two the later line may come first
	}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = &Exit{Code: exit.ExitCode(), Stderr: stderr.String(), line: CommandLine(name, args)}
	}
	return stdout.String(), err
}

// Process is a program in the background.
type Process struct {
	Ended chan struct{} // closed when it has ended
	Log   string        // file with its output
	cmd   *exec.Cmd
}

// launcher starts processes from one thread that never ends: the kernel sends the
// parent-death signal when the thread that forked ends, not the process.
var launcher = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// Start runs a command in the background; its output goes to a file. The kernel kills it if this process ends first.
func (s *Shell) Start(log, name string, args ...string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	cmd := s.command(context.Background(), name, args)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr.Pdeathsig = out, out, syscall.SIGKILL
	started := make(chan error, 1)
	launcher() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{Ended: make(chan struct{}), Log: log, cmd: cmd}
	go func() {
		_ = cmd.Wait()
		close(p.Ended)
	}()
	return p, nil
}

// Stop sends SIGTERM, and kills the process if it does not end.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.Ended:
	case <-time.After(patience):
		p.Kill()
	}
}

// Kill ends the process at once.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.Ended
}

// Pid is the process's number.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// patience is the time for a process to end.
const patience = 10 * time.Second

func (s *Shell) command(ctx context.Context, name string, args []string) *exec.Cmd {
	program := name
	for _, dir := range s.Path {
		if candidate := dir + "/" + name; isExecutable(candidate) {
			program = candidate
			break
		}
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.WaitDelay = patience
	// A group of its own, so that Ctrl-C on the terminal reaches only the parent.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&0o111 != 0
}

// CommandLine returns a command as a person would type it.
func CommandLine(name string, args []string) string {
	return strings.TrimSuffix(name+" "+fault.Quote(args...), " ")
}

// Memory returns a figure of a process's memory in KiB: VmRSS is what is resident, VmHWM what was at most. It is 0 for
// a process that has ended.
func Memory(pid int, figure string) (kib int) {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(data), figure+":")
	_, _ = fmt.Sscan(rest, &kib)
	return kib
}

// Peak returns the highest resident size of a process, in KiB, once it is gone. The kernel's figure only grows, so
// sampling it misses only the very end. (The figure of wait4 includes the size of this process.)
func Peak(pid int) (peak int) {
	for {
		now := Memory(pid, "VmHWM")
		if now == 0 {
			return peak
		}
		peak = max(peak, now)
		time.Sleep(5 * time.Millisecond) // between samples; nothing waits for it
	}
}
