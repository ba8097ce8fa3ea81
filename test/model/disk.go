//go:build linux

package model

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

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
