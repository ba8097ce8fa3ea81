package realnode

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Missing says what a world cannot be made without and is not here, or nil.
func Missing() error {
	var errs []error
	for _, program := range []string{"bash", "containerd", "ctr", "ip", "mount", "nsenter", "runc", "sleep"} {
		if _, err := exec.LookPath(program); err != nil {
			errs = append(errs, fmt.Errorf("%s is not installed", program))
		}
	}
	if _, err := plugins(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, rights(), writable())...)
}

// plugins is the folder of the CNI's plug-ins.
func plugins() (string, error) {
	for _, dir := range []string{"/opt/cni/bin", "/usr/lib/cni"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("containernetworking-plugins is not installed")
}

// The capabilities by their numbers, see capabilities(7).
var needed = map[string]uint{"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27}

func rights() error {
	if os.Geteuid() != 0 {
		return errors.New("not root")
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, after, _ := strings.Cut(string(status), "CapEff:")
	words := strings.Fields(after)
	if len(words) == 0 {
		return errors.New("/proc/self/status tells no capabilities")
	}
	set, err := strconv.ParseUint(words[0], 16, 64)
	if err != nil {
		return err
	}
	var errs []error
	for name, bit := range needed {
		if set&(1<<bit) == 0 {
			errs = append(errs, fmt.Errorf("no %s", name))
		}
	}
	return errors.Join(errs...)
}

// writable tells whether control groups can be made.
func writable() error {
	name := fmt.Sprintf("%stry-%d", prefix, os.Getpid())
	err := makeGroup(name)
	if err := removeGroups(name); err != nil {
		return err
	}
	if err != nil {
		return fmt.Errorf("control groups cannot be made: %w", err)
	}
	if all, err := os.ReadDir(controllers); err != nil || len(all) == 0 {
		return fmt.Errorf("no control groups in %s", controllers)
	}
	return nil
}
