package jumphost

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// program is the entrypoint in the image, which is also the login shell.
const program = "/vdo-jumphost"

// Main is the entrypoint of the image. It gives the user that the cluster chose a passwd entry, which sshd
// needs to let anybody in, and becomes sshd with further arguments. As the login shell, which sshd calls
// with -c and ForceCommand, it prints the hosts. It returns the exit code.
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
	args = append([]string{sshd, "-D", "-e", "-f", filepath.Join(ConfigDir, configFile)}, args...)
	return fmt.Errorf("run %s: %w", sshd, syscall.Exec(sshd, args, nil)) //nolint:gosec // a constant
}

// shell runs the only command that there is.
func shell(command string, stdout io.Writer) error {
	if command != "host list" {
		return fmt.Errorf("no command but `host list`; to reach a host, use `ssh -J %s@…`", User)
	}
	data, err := os.ReadFile(filepath.Join(ConfigDir, hostsFile))
	if err != nil {
		return err
	}
	_, err = stdout.Write(data)
	return err
}
