// Package jumphost is the entrypoint of the image of a tenant cluster's jump host: Debian's OpenSSH server. Package
// services renders its configuration.
//
// The server runs as any user, without privileges. The entrypoint writes a passwd entry for the user that the cluster
// assigned.
package jumphost

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// Constants of the image and the pod.
const (
	User = "ubuntu" // as the original's
	Port = 2222     // a pod without privileges may not use 22

	ConfigDir  = "/etc/vdo-jumphost/config" // ConfigMap
	ConfigFile = "sshd_config"              // in ConfigDir
	HostsFile  = "hosts"                    // in ConfigDir: output of `host list`
	HostKeyDir = "/etc/vdo-jumphost/host-keys"
	HostKey    = "ssh_host_ed25519_key" // in HostKeyDir
	RunDir     = "/run/vdo-jumphost"    // writable; the image's /etc/passwd is a symlink to passwd in it
)

// program is the entrypoint in the image, and the login shell.
const program = "/vdo-jumphost"

// Main is the entrypoint of the image. It writes a passwd entry for the assigned user, without which sshd lets no one
// in, and becomes sshd with further arguments. As the login shell, which sshd calls with -c and ForceCommand, it
// prints the hosts. It returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	var err error
	if len(args) > 0 && args[0] == "-c" {
		err = shell(os.Getenv("SSH_ORIGINAL_COMMAND"), stdout)
	} else {
		err = start(args)
	}
	if err != nil {
		fmt.Fprintln(stderr, "error:", err)
		return 1
	}
	return 0
}

func start(args []string) error {
	entry := fmt.Sprintf("%s:x:%d:%d::/:%s\n", User, os.Getuid(), os.Getgid(), program)
	if err := os.WriteFile(filepath.Join(RunDir, "passwd"), []byte(entry), 0o644); err != nil { //nolint:gosec // no secret: libraries read it
		return fmt.Errorf("write the passwd entry: %w", err)
	}
	const sshd = "/usr/sbin/sshd"
	args = append([]string{sshd, "-D", "-e", "-f", filepath.Join(ConfigDir, ConfigFile)}, args...)
	return fmt.Errorf("run %s: %w", sshd, syscall.Exec(sshd, args, nil)) //nolint:gosec // a constant
}

// shell runs the only command, `host list`.
func shell(command string, stdout io.Writer) error {
	if command != "host list" {
		return fmt.Errorf("no command but `host list`; to reach a host, use `ssh -J %s@…`", User)
	}
	data, err := os.ReadFile(filepath.Join(ConfigDir, HostsFile))
	if err != nil {
		return err
	}
	_, err = stdout.Write(data)
	return err
}
