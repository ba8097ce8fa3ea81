// Command demo runs the main job on this machine, and needs only Go. A connected host builds a signed bundle of
// drivers. It crosses a gap as one file, is verified and pushed into a private mirror. The operator installs,
// configures and upgrades the drivers in a real Kubernetes control plane. Both sides of the mirror refuse a tampered
// bundle. The demo prints every command with its real output.
//
//	make demo             # ends with nothing left behind
//	KEEP=1 make demo      # leaves the world running until Ctrl-C
//	SIP=1 make demo       # also a tenant cluster's hosts and services
//
// Registries, vCenter and cluster are those of packages world and site. What only the site needs is built while the
// first commands run.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/site"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/world"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends it without cleaning up
	dir, err := os.MkdirTemp("", "vdo-demo-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	d := &demo{keep: os.Getenv("KEEP") != "", sip: os.Getenv("SIP") != "", dir: dir}
	_ = os.Setenv("TMPDIR", d.path("tmp")) // of all its programs
	log.SetOutput(io.Discard)              // what servers say of clients that leave
	ctrllog.SetLogger(logr.Discard())      // else it prints a stack trace after 30 seconds
	if err = d.run(ctx); ctx.Err() != nil && (!d.kept || err != nil) {
		err = errors.Join(errInterrupted, err)
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
	for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if err = os.RemoveAll(d.dir); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

type demo struct {
	keep bool
	kept bool // all is done, and the world waits for Ctrl-C
	sip  bool
	dir  string // of everything
	// manifests is the directory of upstream's; "" for stand-ins.
	manifests string

	connected, isolated *shell.Shell
	upstream            *world.Upstream
	mirror              *registry.Registry
	site                *site.Site
	operators           []*shell.Process
	key                 string     // an administrator's, for the jump host of SIP=1
	rest                chan error // result of the builds in the background
	began               time.Time
}

// run goes through the steps and ends what they started.
func (d *demo) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer d.close()
	defer stop()
	d.hosts()
	heading("Building")
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
	heading("Done in %s", time.Since(d.began).Round(time.Second))
	if d.keep {
		return d.wait(ctx)
	}
	return nil
}

// close ends the world. No build may write into the directory while it is removed.
func (d *demo) close() {
	for _, o := range d.operators {
		o.Kill()
	}
	if d.site != nil {
		d.site.Close()
	}
	if d.mirror != nil {
		_ = d.mirror.Close()
	}
	if d.upstream != nil {
		d.upstream.Close()
	}
	if d.rest != nil {
		<-d.rest //nolint:errcheck // the demo no longer needs the result
	}
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
		heading("To work %s, paste into another terminal", one.title)
		for _, line := range entering(one.where) {
			say("%s", line)
		}
	}
	say("export FLAGS=%s  # of lock and pull", fault.Quote(d.value("FLAGS")))
	heading("Everything goes on running until Ctrl-C")
	say("mirror   %s, CA %s, login in %s", d.mirror.Host, d.path("site/mirror-ca.crt"), d.path("site/docker/config.json"))
	say("vCenter  %s, CA %s, administrator %s, password %q", d.site.VCenter.Address(), d.path("site/vcenter-ca.crt"),
		vcenter.Administrator.Username, vcenter.Administrator.Password)
	say("operator log %s", d.path("vdo-operator.log"))
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

// heading, say and command show what the demo does. The output of a command goes where command says.
func heading(format string, args ...any) { say("\n== "+format, args...) }

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func command(line string) io.Writer {
	say("$ %s", line)
	return os.Stdout
}
