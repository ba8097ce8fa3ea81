// Command demo runs the main job on this machine, from nothing but Go: a signed
// bundle of drivers is built on a connected host, carried across a gap as one
// file, verified, pushed into a private mirror, and installed, configured and
// upgraded by the operator in a real Kubernetes control plane; a tampered bundle is
// refused. Every command is printed as it is run, with its real output.
//
//	make demo             # ends with nothing left behind
//	KEEP=1 make demo      # leaves the world running until Ctrl-C
//	SIP=1 make demo       # and a tenant cluster's hosts and services besides
//
// It imports little, so that it is there at once: what the world consists of are
// programs of their own (registries, site), which are built while the first commands run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
)

// patience is how long programs have to end in good order after an interrupt.
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
		select {
		case err = <-done:
		case <-time.After(3 * patience):
		}
		err = errors.Join(errInterrupted, err)
	}
	os.Exit(d.end(err))
}

var errInterrupted = errors.New("interrupted")

// end removes the demo's folder, which has all that any of its programs wrote, and
// returns the exit code.
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

// remove takes away the folder. A program that was killed a moment ago may still have
// made a file while it went.
func (d *demo) remove() (err error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if err = os.RemoveAll(d.dir); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// demo is one run.
type demo struct {
	out  *printer
	keep bool
	sip  bool
	dir  string // of everything
	// manifests is the folder of upstream's; "" for stand-ins.
	manifests string

	connected, isolated *shell.Shell
	running             sync.WaitGroup // programs that run beside it
	stop                func()         // has them end
	registries          registries
	site                site
	rest                chan error // what is built while the first commands run
	began               time.Time
}

// run goes through the steps and ends what they started.
func (d *demo) run(ctx context.Context) (err error) {
	ctx, d.stop = context.WithCancel(ctx)
	d.hosts()
	d.out.heading("Building")
	defer func() { // before the folder goes, nothing may be building into it any more
		d.stop()
		d.running.Wait()
		if d.rest != nil {
			<-d.rest //nolint:errcheck // what it says is of no use any more
		}
	}()
	steps := []func(context.Context) error{
		d.findManifests, d.buildFirst, d.startRegistries, d.bundle, d.carry, d.land,
		d.awaitRest, d.startSite, d.prepare, d.startOperator, d.install, d.upgrade, d.tamper,
	}
	if d.sip {
		steps = append(steps, d.sipSteps()...)
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
