// Command demo runs the main job on this machine, and needs only Go. A connected host builds a signed bundle of
// drivers. It crosses a gap as one file, is verified and pushed into a private mirror. The operator installs,
// configures and upgrades the drivers in a real Kubernetes control plane. Both sides of the mirror refuse a tampered
// bundle. The demo prints every command with its real output.
//
//	make demo             # ends with nothing left behind
//	KEEP=1 make demo      # leaves the world running until Ctrl-C
//	SIP=1 make demo       # also a tenant cluster's hosts and services
//
// It imports little, so that it starts at once. The world consists of separate programs (registries, site), which are
// built while the first commands run.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// patience is the time for programs to end gracefully after an interrupt.
const patience = 3 * time.Second

func main() {
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	dir, err := os.MkdirTemp("", "vdo-demo-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	d := &demo{out: &printer{w: os.Stdout}, keep: os.Getenv("KEEP") != "", sip: os.Getenv("SIP") != "", dir: dir}
	done := make(chan error, 1)
	go func() { done <- d.run(ctx) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		asMeant := false
		select {
		case err = <-done:
			asMeant = d.kept && err == nil
		case <-time.After(3 * patience):
		}
		if !asMeant {
			err = errors.Join(errInterrupted, err)
		}
	}
	os.Exit(d.end(err))
}

var errInterrupted = errors.New("interrupted")

// end removes the demo's directory, with all files of its programs, and returns the exit code.
func (d *demo) end(err error) int {
	left := d.remove()
	switch {
	case left != nil:
		fmt.Fprintln(os.Stderr, "demo: left behind:", left)
		return 1
	case err == nil:
		return 0
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(os.Stderr, "demo: interrupted; nothing is left behind")
		return 130
	default:
		fmt.Fprintln(os.Stderr, "demo: failed:", err)
		return 1
	}
}

// remove removes the directory. A program that was just killed may still have created a file at its end.
func (d *demo) remove() (err error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if err = os.RemoveAll(d.dir); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

type demo struct {
	out  *printer
	keep bool
	kept bool // all is done, and the world waits for Ctrl-C
	sip  bool
	dir  string // of everything
	// manifests is the directory of upstream's; "" for stand-ins.
	manifests string

	connected, isolated *shell.Shell
	running             sync.WaitGroup // programs beside the demo
	stop                func()         // ends them
	registries          registries
	site                site
	key                 string     // an administrator's, for the jump host of SIP=1
	rest                chan error // result of the builds in the background
	began               time.Time
}

// run goes through the steps and ends the programs that they started.
func (d *demo) run(ctx context.Context) (err error) {
	ctx, d.stop = context.WithCancel(ctx)
	d.hosts()
	d.out.heading("Building")
	defer func() { // no build may write into the directory while it is removed
		d.stop()
		d.running.Wait()
		if d.rest != nil {
			<-d.rest //nolint:errcheck // the demo no longer needs the result
		}
	}()
	steps := []func(context.Context) error{
		d.findManifests, d.buildFirst, d.startRegistries, d.play("bundle"),
		d.awaitRest, d.startSite, d.play("operator"),
	}
	if d.sip {
		steps = append(steps, d.writeSIPFiles, d.play("sip"))
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			if ctx.Err() == nil {
				d.explain()
			}
			return err
		}
	}
	d.out.heading("Done in %s", time.Since(d.began).Round(time.Second))
	if d.keep {
		return d.wait(ctx)
	}
	return nil
}

func (d *demo) path(name string) string { return filepath.Join(d.dir, filepath.FromSlash(name)) }

// wait leaves the world running.
func (d *demo) wait(ctx context.Context) error {
	if err := d.play("keep")(ctx); err != nil {
		return err
	}
	for _, one := range []struct {
		title string
		where *shell.Shell
	}{{"in the site, as its administrator", d.isolated}, {"on the connected host", d.connected}} {
		d.out.heading("To work %s, paste into another terminal", one.title)
		for _, line := range entering(one.where) {
			d.out.say("%s", line)
		}
	}
	d.out.say("export FLAGS=%s  # of lock and pull", fault.Quote(d.value("FLAGS")))
	d.out.heading("Everything goes on running until Ctrl-C")
	d.out.say("mirror   %s, CA %s, login in %s", d.registries.Mirror, d.path("site/mirror-ca.crt"), d.path("site/docker/config.json"))
	d.out.say("vCenter  %s, CA %s, administrator %s, password %q", d.site.VCenter, d.path("site/vcenter-ca.crt"), d.site.Administrator, d.site.Password)
	d.out.say("operator log %s", d.path("vdo-operator.log"))
	d.kept = true
	<-ctx.Done()
	return nil
}

// entering returns the lines that give a new shell the directory, programs and settings of one of the demo's hosts.
func entering(where *shell.Shell) []string {
	path := fault.Quote(strings.Join(where.Path, ":"))
	out := []string{shell.CommandLine("cd", []string{where.Dir}), "export PATH=" + path + `:"$PATH"`}
	for _, v := range where.Env {
		if name, value, _ := strings.Cut(v, "="); name != "HOME" { // a person's shell keeps its own
			out = append(out, "export "+name+"="+fault.Quote(value))
		}
	}
	return out
}

// printer shows headings, commands and their output.
type printer struct {
	mu sync.Mutex
	w  io.Writer
}

func (p *printer) heading(format string, args ...any) { p.say("\n== "+format, args...) }

func (p *printer) say(format string, args ...any) { _, _ = fmt.Fprintf(p, format+"\n", args...) }

// command shows a command line and returns where its output goes.
func (p *printer) command(line string) io.Writer {
	p.say("$ %s", line)
	return p
}

// Write passes output on, one writer at a time.
func (p *printer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.w.Write(b)
}

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
