package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// sample is what one run cost.
type sample struct {
	wall, onDisk, cpu time.Duration
	memory, written   int64
	wire              int64
	requests          int
}

// timeout is how long one run may take.
const timeout = 4 * time.Minute

var errTooLong = errors.New("not done after 4 minutes")

// process runs a program to its end. Where stopAt is not nil, the program is killed
// as soon as it says so.
func process(ctx context.Context, a *access, reg *registry.Registry, path string, args []string, stopAt func() bool) (sample, error) {
	unix.Sync() // what others left to be written is not this one's
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTooLong)
	defer cancel()
	if reg != nil {
		reg.ForgetRequests()
	}
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // the tools under test
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = a.environment()
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return sample{}, err
	}
	w := watcher{process: cmd.Process, stopAt: stopAt, ended: make(chan struct{}), done: make(chan struct{})}
	go w.run()
	err := cmd.Wait()
	s := sample{wall: time.Since(began)}
	close(w.ended)
	<-w.done
	if w.killed {
		err = nil
	}
	unix.Sync()
	s.onDisk, s.memory = time.Since(began), w.peak
	s.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		s.written = usage.Oublock * 512
	}
	if reg != nil {
		s.wire, s.requests = traffic(reg)
	}
	if err != nil && errors.Is(context.Cause(ctx), errTooLong) {
		return s, errTooLong
	}
	if err != nil {
		tail := out.Bytes()
		err = fmt.Errorf("%s %v: %w\n%s", filepath.Base(path), args, err, tail[max(0, len(tail)-2000):])
	}
	return s, err
}

// A watcher looks at a running process now and then: at its memory, because the
// maximum that wait4 tells includes what the parent had when it forked, and at
// whether it is to be killed.
type watcher struct {
	process *os.Process
	stopAt  func() bool
	ended   chan struct{}
	done    chan struct{}

	killed bool
	peak   int64 // bytes; the kernel's own high water, so that only the very end is lost
}

func (w *watcher) run() {
	defer close(w.done)
	tick := time.NewTicker(4 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-w.ended:
			return
		case <-tick.C:
			w.peak = max(w.peak, highWater(w.process.Pid))
			if w.stopAt != nil && !w.killed && w.stopAt() {
				w.killed = w.process.Kill() == nil
			}
		}
	}
}

// highWater is the highest resident size that a process has had.
func highWater(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, found := bytes.Cut(data, []byte("VmHWM:"))
	var kib int64
	if _, err := fmt.Sscan(string(rest), &kib); !found || err != nil {
		return 0
	}
	return kib << 10
}

func traffic(reg *registry.Registry) (wire int64, requests int) {
	list := reg.Requests()
	for _, r := range list {
		wire += r.Sent + r.Received
	}
	return wire, len(list)
}
