//go:build linux

package model

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
)

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
