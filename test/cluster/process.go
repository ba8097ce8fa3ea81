package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// errExited reports that a process ended before it served.
var errExited = errors.New("the process ended")

// process is a program that runs until it is stopped.
type process struct {
	name, log string
	cmd       *exec.Cmd
	exited    chan struct{}
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

func startProcess(name, path string, args []string, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	// Garbage collection is a sixth of a small control plane's work, and waking its other threads an eighth. Many
	// control planes share the machine with the tests.
	cmd.Env = append(os.Environ(), "GOGC=400", "GOMAXPROCS=1")
	// A group of its own, so that Ctrl-C on the terminal leaves it to Stop.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error, 1)
	launcher() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, log: log, cmd: cmd, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// await probes until the process serves or ends, or the timeout.
func (p *process) await(ctx context.Context, ready probe, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		if last = ready(ctx); last == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s: %w; its log ends with:\n%s", p.name, errExited, tail(p.log))
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve: %w; its log ends with:\n%s", p.name, last, tail(p.log))
		case <-tick.C:
		}
	}
}

// stop sends SIGTERM, and kills the process after five seconds.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return
	case <-time.After(5 * time.Second):
	}
	p.kill()
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// tail returns the last 2 KiB of a file.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2<<10):])
}
