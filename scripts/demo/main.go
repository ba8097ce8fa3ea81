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
