package realnode

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Missing returns which requirements of a world this machine lacks, or nil.
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

// plugins returns the directory of the CNI's plug-ins.
func plugins() (string, error) {
	for _, dir := range []string{"/opt/cni/bin", "/usr/lib/cni"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("containernetworking-plugins is not installed")
}

// rights tries the needs of a world and its containers: namespaces, mounts, networks and devices.
func rights() error {
	const try = `mount -t tmpfs tmpfs /tmp && ip link add vdo0 type bridge && mknod /tmp/null c 1 3`
	out, err := exec.Command("unshare", "--pid", "--net", "--mount", "--fork", "sh", "-c", try).CombinedOutput()
	if err != nil {
		return fmt.Errorf("no right to mount, make networks and devices (CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_MKNOD): %w: %s", err, out)
	}
	return nil
}

// writable returns an error unless control groups can be made.
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
