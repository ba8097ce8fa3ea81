package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// program runs beside the demo. The world's programs end with their standard input, so also when the demo is killed.
type program struct {
	name, log string // log is a name too; "": the program's
	args, env []string
	// facts, if set, are read from the line of JSON that it prints.
	facts any
}

// start runs a program until ctx ends, then sends it SIGTERM, and kills it if it stays. With facts it waits until the
// program has printed them. Further output goes to a log; temporary files are in the demo's directory.
func (d *demo) start(ctx context.Context, p program) error {
	log, err := os.OpenFile(d.path(cmp.Or(p.log, p.name)+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, filepath.Join(binDir(), p.name), p.args...)
	cmd.Dir, cmd.WaitDelay = d.path("site"), patience
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(append(os.Environ(), p.env...), "TMPDIR="+d.path("tmp"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the demo handles Ctrl-C
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	var stdout io.Reader
	if p.facts != nil {
		cmd.Stdout, cmd.Cancel = nil, stdin.Close
		cmd.Dir = toolchain.Root() // they find the tools by it
		if stdout, err = cmd.StdoutPipe(); err != nil {
			return err
		}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	if p.facts != nil {
		err = json.NewDecoder(stdout).Decode(p.facts)
	}
	d.running.Go(func() {
		_ = cmd.Wait()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its remaining children
	})
	if err != nil {
		out, _ := os.ReadFile(d.path(p.name + ".log")) //nolint:errcheck // only for the message
		return fmt.Errorf("%s does not start: %w\n%s", p.name, err, out)
	}
	return nil
}
