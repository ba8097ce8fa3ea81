package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// Usage is the cost of one package's tests, with every program that they started.
type Usage struct {
	Package       string
	Seconds       float64 // user and system
	PeakMiB       int     // of the largest process
	ControlPlanes int
}

// meterVariable names the directory where the meter writes a file for each package.
const meterVariable = "VDO_TEST_METER"

// meter runs a test binary for `go test -exec` and records its [Usage]. As a child subreaper it also receives the
// programs that outlive their parents: it ends them and counts them.
func meter(args []string) (int, error) {
	if err := errors.Join(
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0),
		unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0), // `go test` passes no signal on
	); err != nil {
		return 0, fmt.Errorf("meter: %w", err)
	}
	planes, err := os.CreateTemp("", "vdo-control-planes-")
	if err != nil {
		return 0, fmt.Errorf("meter: %w", err)
	}
	defer os.Remove(planes.Name()) //nolint:errcheck // a temporary file
	defer planes.Close()           //nolint:errcheck // written by others only
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	child := exec.Command(args[0], args[1:]...) //nolint:gosec // the test binary that go test names
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.Env = append(os.Environ(), tier.ControlPlanes+"="+planes.Name())
	if err := child.Start(); err != nil {
		return 0, fmt.Errorf("meter: %w", err)
	}
	go func() {
		for s := range signals {
			_ = child.Process.Signal(s)
		}
	}()
	use := Usage{}
	status, err := reap(child.Process.Pid, &use)
	if err != nil {
		return 0, err
	}
	starts, err := os.ReadFile(planes.Name())
	if err != nil {
		return 0, fmt.Errorf("meter: %w", err)
	}
	use.ControlPlanes = len(starts)
	code := status.ExitStatus()
	if status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return code, use.write()
}

// reap waits for the child and then for its remaining descendants, and adds up their usage.
// The usage of a process includes that of the processes it waited for itself.
func reap(child int, use *Usage) (status syscall.WaitStatus, err error) {
	for ended := false; ; {
		var s syscall.WaitStatus
		var r syscall.Rusage
		switch pid, err := syscall.Wait4(-1, &s, 0, &r); {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.ECHILD) && ended:
			return status, nil
		case err != nil:
			return status, fmt.Errorf("meter: wait: %w", err)
		default:
			use.Seconds += time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
			use.PeakMiB = max(use.PeakMiB, int(r.Maxrss>>10))
			if pid == child {
				status, ended = s, true
			}
		}
		if ended {
			endChildren()
		}
	}
}

// endChildren kills the processes that have this one as their parent.
func endChildren() {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		pids, _ := os.ReadFile(task)
		for pid := range strings.FieldsSeq(string(pids)) {
			if n, err := strconv.Atoi(pid); err == nil {
				_ = syscall.Kill(n, syscall.SIGKILL)
			}
		}
	}
}

// write stores the usage in the meter's directory, under the package in whose directory `go test` runs the binary.
func (u Usage) write() error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("meter: %w", err)
	}
	if u.Package, err = filepath.Rel(toolchain.Root(), dir); err != nil {
		return fmt.Errorf("meter: %w", err)
	}
	data, err := json.Marshal(u)
	if err != nil {
		return fmt.Errorf("meter: %w", err)
	}
	name := strings.ReplaceAll(u.Package, string(filepath.Separator), "~") + ".json"
	return os.WriteFile(filepath.Join(os.Getenv(meterVariable), name), data, 0o600)
}

// readUsage returns what the meter wrote into a directory, by package.
func readUsage(dir string) (map[string]Usage, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	out := map[string]Usage{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var u Usage
		if err := json.Unmarshal(data, &u); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out[u.Package] = u
	}
	return out, nil
}
