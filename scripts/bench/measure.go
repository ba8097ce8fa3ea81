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

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/link"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// sample is what one run cost.
type sample struct {
	wall, onDisk, cpu time.Duration
	memory, written   int64
	wire              int64
	requests          int
	failed            string // in the place of the figures, where there are none
}

// timeout is how long one run may take.
const timeout = 4 * time.Minute

var errTooLong = errors.New("not done after 4 minutes")

// failed is the sample of a run without figures.
func failed(err error) sample {
	if errors.Is(err, errTooLong) {
		return sample{failed: "> 240"}
	}
	return sample{failed: "failed"}
}

// process runs a program to its end. Where stopAt is not nil, the program is killed
// as soon as it says so.
func process(ctx context.Context, reg *registry.Registry, path string, args []string, stopAt func() bool) (sample, error) {
	unix.Sync() // what others left to be written is not this one's
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTooLong)
	defer cancel()
	if reg != nil {
		reg.ForgetRequests()
	}
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // the tools under test
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(), "DOCKER_CONFIG=/nonexistent", "REGISTRY_AUTH_FILE=")
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

// job is one line of a table for one tool.
type job struct {
	set  *set
	tool tool
	o    options
}

// best runs something several times and keeps the fastest.
func (j job) best(prepare func() error, run func() (sample, error)) sample {
	var best sample
	for n := range j.o.repeat {
		err := prepare()
		var s sample
		if err == nil {
			s, err = run()
		}
		if err != nil {
			say("  %s: %v", j.tool.name, err)
			return failed(err)
		}
		if n == 0 || s.onDisk < best.onDisk {
			best = s
		}
	}
	return best
}

// bundle is where the tool keeps what it pulled.
func (j job) bundle() string { return filepath.Join(j.set.dir, "of-"+j.tool.name+j.tool.ext) }

func (j job) remove() error { return remove(j.bundle()) }

func remove(name string) error {
	return errors.Join(os.RemoveAll(name), os.RemoveAll(name+".partial"), os.RemoveAll(name+".journal"))
}

func (j job) pull(ctx context.Context, host string) sample {
	return j.best(j.remove, func() (sample, error) {
		return process(ctx, j.set.upstream, j.tool.path, j.tool.pull(j.set, host, j.bundle()), nil)
	})
}

// resume kills a pull when half of the bytes have come, and measures the next run.
func (j job) resume(ctx context.Context, host string) sample {
	half := func() bool {
		wire, _ := traffic(j.set.upstream)
		return wire > j.set.bytes/2
	}
	return j.best(j.remove, func() (sample, error) {
		args := j.tool.pull(j.set, host, j.bundle())
		if _, err := process(ctx, j.set.upstream, j.tool.path, args, half); err != nil {
			return sample{}, err
		}
		return process(ctx, j.set.upstream, j.tool.path, args, nil)
	})
}

// push pushes into an empty registry, and then into the same again.
func (j job) push(ctx context.Context, speed link.Options) (empty, full sample) {
	for n := range j.o.repeat {
		e, f, err := j.pushOnce(ctx, speed)
		if err != nil {
			say("  %s: %v", j.tool.name, err)
			return failed(err), failed(err)
		}
		if n == 0 || e.wall < empty.wall {
			empty = e
		}
		if n == 0 || f.wall < full.wall {
			full = f
		}
	}
	return empty, full
}

func (j job) pushOnce(ctx context.Context, speed link.Options) (empty, full sample, err error) {
	err = j.withMirror(speed, func(m mirror) error {
		args := j.tool.push(j.set, m.host, j.bundle())
		if empty, err = process(ctx, m.reg, j.tool.path, args, nil); err != nil {
			return err
		}
		full, err = process(ctx, m.reg, j.tool.path, args, nil)
		return err
	})
	return empty, full, err
}

// mirror is a registry to push to, and the host that it is spoken to by.
type mirror struct {
	reg  *registry.Registry
	host string
}

// withMirror gives an empty one.
func (j job) withMirror(speed link.Options, use func(mirror) error) (err error) {
	dir := filepath.Join(j.o.registryDir, j.set.name, "mirror")
	reg, err := registry.New(registry.Options{Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reg.Close(), os.RemoveAll(dir)) }()
	host, end, err := through(reg.Host, speed)
	if err != nil {
		return err
	}
	defer end()
	return use(mirror{reg, host})
}

// through leads over a link, where there is one.
func through(host string, speed link.Options) (string, func(), error) {
	if speed == (link.Options{}) {
		return host, func() {}, nil
	}
	l, err := link.New(host, speed)
	if err != nil {
		return "", nil, err
	}
	return l.Host, func() { _ = l.Close() }, nil
}

// runSet measures one set over all links.
func runSet(ctx context.Context, o options, name string, tools []tool) error {
	say("making the set %s", name)
	s, err := makeSet(ctx, o, name)
	if err != nil {
		return err
	}
	defer s.close() //nolint:errcheck // scratch
	if err := errors.Join(s.lock(ctx, tools), s.newer.lock(ctx, tools)); err != nil {
		return err
	}
	if err := touch(filepath.Join(o.registryDir, "touch"), 2*s.bytes); err != nil {
		return err
	}
	for _, over := range o.links {
		if err := s.over(ctx, o, over, tools); err != nil {
			return err
		}
	}
	return nil
}

// touch writes a file of a size and removes it: a virtual machine is given its memory
// when that is written for the first time, which is slow, and would be counted against
// the first tool.
func touch(name string, size int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	b := make([]byte, 1<<20)
	for left := size; left > 0 && err == nil; left -= int64(len(b)) {
		_, err = f.Write(b)
	}
	return errors.Join(err, f.Close(), os.Remove(name))
}

// lock makes the lock that vdo-bundle pulls.
func (s *set) lock(ctx context.Context, tools []tool) error {
	for _, t := range tools {
		if t.name != "vdo-bundle" {
			continue
		}
		host := s.upstream.Host
		_, err := process(ctx, nil, t.path, []string{"lock", "--matrix", filepath.Join(s.dir, "matrix.yaml"), "--manifest-dir", filepath.Join(s.dir, "manifests"),
			"--release", "cpi@" + s.release(), "--plain-http", host, "--source-map", "registry.test=" + host + "/x", "-q", "-o", filepath.Join(s.dir, "lock.yaml")}, nil)
		return err
	}
	return nil
}

func (s *set) over(ctx context.Context, o options, over string, tools []tool) error {
	speed := speeds[over]
	host, end, err := through(s.upstream.Host, speed)
	if err != nil {
		return err
	}
	defer end()
	t := newTable(s, over)
	for _, tool := range tools {
		j := job{set: s, tool: tool, o: o}
		say("%s over %s: %s", s.name, over, tool.name)
		t.add("resume a pull", tool.name, j.resume(ctx, host))
		pulled := j.pull(ctx, host)
		t.add("pull", tool.name, pulled)
		if pulled.failed == "" {
			empty, full := j.push(ctx, speed)
			t.add("push, empty registry", tool.name, empty)
			t.add("push, full registry", tool.name, full)
			delta, pushed := j.newer(ctx, host, speed)
			t.add("delta, pull", tool.name, delta)
			t.add("delta, push", tool.name, pushed)
		}
		if speed == (link.Options{}) {
			t.add("verify", tool.name, j.verify(ctx))
		}
		if err := errors.Join(ctx.Err(), j.remove()); err != nil {
			return err
		}
	}
	t.print()
	return nil
}

// verify signs what was pulled, and measures its verification.
func (j job) verify(ctx context.Context) sample {
	if j.tool.verify == nil {
		return sample{failed: "–"}
	}
	sign := func() error {
		_, err := process(ctx, nil, j.tool.path, []string{"sign", j.bundle(), "--key", filepath.Join(j.set.dir, "bench.key"), "--identity", "bench.test/all"}, nil)
		return err
	}
	return j.best(sign, func() (sample, error) {
		return process(ctx, nil, j.tool.path, j.tool.verify(j.set, j.bundle()), nil)
	})
}
