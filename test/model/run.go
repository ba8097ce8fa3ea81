//go:build linux

package model

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
)

// How long a command may take before it counts as one that does not end, and how long
// after it was asked to. Nothing in a program takes a tenth of it where the machine is free;
// where a dozen others have it, 20 seconds were not enough for a blob that comes in pieces.
const (
	mustEnd     = 2 * time.Minute
	mustEndSoon = time.Minute
)

// A process is a run of vdo-bundle.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	peak           chan int
	done           chan struct{}
}

// An outcome is what a run came to.
type outcome struct {
	code           int // -1: killed
	stdout, stderr string
	peak           int  // KiB
	stuck          bool // it did not end by itself
	deaf           bool // nor when it was asked to
}

// start runs vdo-bundle; stdout and stdin are optional.
func (w *world) start(args []string, stdin io.Reader, stdout io.Writer) (*process, error) {
	p := &process{cmd: exec.Command(w.site.binary, args...), peak: make(chan int, 1), done: make(chan struct{})}
	p.cmd.Dir = w.dir
	p.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "PWD=" + w.dir, "HOME=" + w.path("home"), "TMPDIR=" + w.path("tmp"),
		"DOCKER_CONFIG=" + w.path("login"), "XDG_RUNTIME_DIR=" + w.path("home"),
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, &p.stdout, &p.stderr
	if stdout != nil {
		p.cmd.Stdout = stdout
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.peak <- shell.Peak(p.cmd.Process.Pid) }()
	go func() {
		_ = p.cmd.Wait() // its state says it
		close(p.done)
	}()
	return p, nil
}

// wait waits for the end of it, and ends it where it does not.
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

// A disk is a folder that can be full: a small file system in memory where the machine
// lets us mount one, in a mount namespace of its own, so that nothing is left of it
// however the test ends. Elsewhere it is a plain folder that is never full.
type disk struct {
	dir   string // as every process of the machine names it
	small bool
	end   func()
}

const diskSize = "48m"

// newDisk opens a disk over an empty folder.
func newDisk(empty string) (disk, error) {
	script := `mount -t tmpfs -o size=` + diskSize + ` none "$0" && echo mounted && exec cat`
	holder := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script, empty)
	in, err := holder.StdinPipe() // it ends when we do
	if err != nil {
		return disk{}, err
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		return disk{}, err
	}
	if err := holder.Start(); err != nil {
		return disk{dir: empty, end: func() {}}, nil //nolint:nilerr // the machine has no such program
	}
	end := func() { _, _ = in.Close(), holder.Wait() }
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "mounted\n" {
		end()
		return disk{dir: empty, end: func() {}}, nil //nolint:nilerr // it does not let us
	}
	return disk{dir: fmt.Sprintf("/proc/%d/root%s", holder.Process.Pid, empty), small: true, end: end}, nil
}

// fill writes a file that leaves so many bytes free, and returns what removes it.
func (d disk) fill(name string, left int64) (empty func(), err error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var free syscall.Statfs_t
	if err = syscall.Statfs(name, &free); err == nil {
		err = syscall.Fallocate(int(f.Fd()), 0, 0, max(1, int64(free.Bavail)*free.Bsize-left))
	}
	return func() { _ = os.Remove(name) }, err
}
