// Package cli is the command line of vdo-bundle: flags, one call of a flow, one print. Results go
// to standard output. Progress, messages and errors go to standard error, so that users can pipe
// the output.
//
// An error is printed as lines "error: what: why" and "hint: what to do", one pair per independent
// problem. With --format json it is one JSON object on standard error: {"error": {"reason",
// "exitCode", "problems": [{"reason", "message", "hint"}]}}, after a line {"message"} per message. With
// --progress json there are also lines {"phase", "items", "done", "bytes", "moved"} and
// {"phase", "failed"}.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// app is one run of the program. Each command has its flags in its own struct, which embeds the shared groups.
type app struct {
	out, err io.Writer
	args     []string // as given, for hints
	debug    bool
	inIsRead bool          // standard input was read as a bundle
	progress string        // a form of progress
	grace    *atomic.Int64 // extra time for a server to finish answers, in nanoseconds
}

// patience is how long the work may save its progress after a signal. Main abandons work that takes longer, such as
// an idle pipe or a hanging disk: no written data needs an orderly end.
const patience = 5 * time.Second

// Main runs the program and returns its exit code. SIGINT, SIGTERM and SIGHUP end the work so that a later run can
// resume. A second signal ends the program at once. version is the linker's or, if empty, the module's.
func Main(version string, args []string) int {
	linked = version
	log.SetOutput(io.Discard) // libraries log what they also return, beside the JSON of an error
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, command.Signals()...)
	go func() {
		s := <-signals
		signal.Stop(signals)
		cancel(errors.New(signalNames[s]))
	}()
	a := &app{
		out: command.Stdout(), err: os.Stderr, args: args, grace: &atomic.Int64{},
	}
	done := make(chan int, 1)
	go func() { done <- a.run(ctx) }()
	select {
	case code := <-done:
		return code
	case <-ctx.Done():
	}
	select {
	case code := <-done:
		return code
	case <-time.After(patience + time.Duration(a.grace.Load())):
		a.report(a.interrupted(ctx), false)
		return command.ExitInterrupted
	}
}

var signalNames = map[os.Signal]string{
	os.Interrupt: "Ctrl-C (SIGINT)", syscall.SIGTERM: "SIGTERM", syscall.SIGHUP: "SIGHUP",
}

func (a *app) run(ctx context.Context) int {
	cmd, err := command.Run(ctx, a.root(), a.args, a.out, a.err)
	if err != nil && ctx.Err() != nil {
		err = a.interrupted(ctx)
	}
	a.report(err, command.WantsJSON(cmd))
	return command.ExitCode(err)
}

// interrupted returns a fault that says how to resume. It repeats no argument: a URL may hold a secret.
func (a *app) interrupted(ctx context.Context) error {
	return &fault.Error{
		Reason: fault.Interrupted, Op: "interrupted by", Subject: context.Cause(ctx).Error(),
		Hint: "run the same command again: it resumes",
	}
}

// report prints an error for people or, if requested, as JSON.
func (a *app) report(err error, asJSON bool) {
	if a.progress == progressJSON {
		reportEvent(a.err, err)
		return
	}
	command.Report(a.err, err, asJSON)
}

// deliver writes a result to a file and reports it, or to standard output for "-".
func (c *common) deliver(to string, data []byte, what string) error {
	if to == "-" {
		_, err := c.out.Write(data)
		return err
	}
	if err := c.vacant(to); err != nil { // again, as time has passed
		return err
	}
	if err := userfile.Write(to, data, 0o644); err != nil {
		return err
	}
	c.say("wrote %s%s", to, what)
	return nil
}

func (a *app) print(values ...any) error {
	_, err := fmt.Fprintln(a.out, values...)
	return err
}

func (a *app) say(format string, args ...any) {
	(&run.Progress{Out: a.err, JSON: a.progress == progressJSON}).Warn(format, args...)
}

func (a *app) root() *cobra.Command {
	a.progress = progressAuto
	root := &cobra.Command{
		Use:   "vdo-bundle",
		Short: "Carry signed vSphere drivers across an air gap",
		Long: `vdo-bundle makes, signs, checks and moves bundles of the vSphere drivers for Kubernetes. A
bundle has matching releases of the cloud provider (cpi), the storage driver (csi), the
snapshot controller and, on request, a network (cni). It contains their manifests and all
their images, each by digest.

A bundle is FILE.tar or its parts, FILE.tar.parts; oci:DIR; or HOST/REPOSITORY:TAG
in a registry.`,
		Example: `  vdo-bundle pull -o drivers.tar
  vdo-bundle sign drivers.tar --key release.key
  vdo-bundle verify drivers.tar --key release.pub
  vdo-bundle push drivers.tar registry.site:5000/vdo/drivers:1`,
		Version: version().String(),
	}
	command.Root(root, "")
	root.SetOut(a.out) // before the completion command takes it
	flags.GlobalGroup(root, func(fl *pflag.FlagSet) {
		fl.BoolVar(&a.debug, "debug", false, "tell every request to registries and sources of manifests on standard error, without anything secret")
	})
	a.addCommands(root)
	return root
}

func (a *app) addCommands(root *cobra.Command) {
	command.Add(root, "make", "Make a bundle, on a connected host",
		newKeygenCommand(a), newLockCommand(a), newPullCommand(a), newSignCommand(a), newSplitCommand(a))
	command.Add(root, "look", "Look at a bundle, anywhere",
		newVerifyCommand(a), newInspectCommand(a), newDiffCommand(a), newOutdatedCommand(a),
		newSBOMCommand(a), newRepairCommand(a))
	command.Add(root, "use", "Use a bundle, on an isolated host",
		newPushCommand(a), newCopyCommand(a), newExportCommand(a), newServeCommand(a),
		newInstallManifestsCommand(a), newMirrorConfigCommand(a))
	command.Add(root, "registry", "Keep the registry of a site",
		newLoginCommand(a), newLogoutCommand(a), newListCommand(a), newPruneCommand(a))
	root.AddCommand(newVersionCommand(a), newMatrixCommand(a))
	flags.Complete(root)
}

// linked is the version from the linker, shared with the operator.
var linked string

func version() command.Build { return command.BuildOf("vdo-bundle", linked) }

func newVersionCommand(a *app) *cobra.Command {
	o := &common{app: a}
	return with(&cobra.Command{
		Use: "version", Short: "Show the version of this program",
		RunE: func(*cobra.Command, []string) error {
			return o.show(version(), func(p *printer) { p.print(version()) })
		},
	}, o.bindFormat)
}
