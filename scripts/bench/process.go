package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
)

type sample struct {
	wall, onDisk, cpu time.Duration
	memory, wire      int64
	requests          int
}

const timeout = 4 * time.Minute

// process runs a program to its end. If stopAt is not nil, it kills the program as soon as stopAt returns true.
func process(ctx context.Context, a *access, reg *registry.Registry, path string, args []string, stopAt func() bool) (sample, error) {
	unix.Sync() // earlier writes do not count
	ctx, cancel := context.WithTimeout(ctx, timeout)
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
	peak, ended := make(chan int, 1), make(chan error, 1)
	go func() { peak <- shell.Peak(cmd.Process.Pid) }()
	go func() { ended <- cmd.Wait() }()
	err := wait(cmd.Process, ended, stopAt)
	s := sample{wall: time.Since(began)}
	unix.Sync()
	s.onDisk, s.memory = time.Since(began), int64(<-peak)<<10
	s.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if reg != nil {
		s.wire, s.requests = traffic(reg)
	}
	if err != nil {
		tail := out.Bytes()
		tail = tail[max(0, len(tail)-2000):]
		err = fmt.Errorf("%s %v: %w\n%s", filepath.Base(path), args, errors.Join(err, ctx.Err()), tail)
	}
	return s, err
}

// wait waits for the end of a process. With stopAt it kills the process as soon as stopAt returns true.
func wait(p *os.Process, ended <-chan error, stopAt func() bool) error {
	for stopAt != nil {
		select {
		case err := <-ended:
			return err
		case <-time.After(4 * time.Millisecond):
			if stopAt() && p.Kill() == nil {
				<-ended //nolint:errcheck // it was killed
				return nil
			}
		}
	}
	return <-ended
}

func traffic(reg *registry.Registry) (wire int64, requests int) {
	list := reg.Requests()
	for _, r := range list {
		wire += r.Sent + r.Received
	}
	return wire, len(list)
}
