package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/archive"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

// common holds the shared flags of most commands, and the steps from a bundle's name to a printed result. Each
// command binds the groups that it needs.
type common struct {
	*app
	trustFlags
	registryFlags
	outputFlags
	base   string   // of the delta to read or make
	target location // a registry here is tried before a bundle is verified for it
}

func with(cmd *cobra.Command, groups ...func(*cobra.Command)) *cobra.Command {
	for _, bind := range groups {
		bind(cmd)
	}
	return cmd
}

func (c *common) bindBase(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.base, "base", "", "where SRC is a delta: the `BUNDLE` that has the layers which it leaves out")
}

func (c *common) options() run.Options {
	return run.Options{Concurrency: c.remote.Concurrency, Progress: c.reporter(), DryRun: c.dryRun}
}

// show prints a result: as JSON if requested, else as text.
func (c *common) show(result any, text func(*printer)) error {
	if c.json() {
		return command.WriteJSON(c.out, result)
	}
	var p printer
	text(&p)
	_, err := c.out.Write(p.Bytes())
	return err
}

// printer collects a command's text until show writes it; only that can fail.
type printer struct{ bytes.Buffer }

func (p *printer) line(format string, args ...any) { _ = command.Say(p, format, args...) }

// print prints values in a line, separated by spaces.
func (p *printer) print(values ...any) { _, _ = fmt.Fprintln(p, values...) }

func (p *printer) table(t command.Table) { _ = t.Write(p) }

// opened is a readable bundle and its verification.
type opened struct {
	*pinned.Bundle
	verified *verify.Verification // nil if not verified
	client   *remote.Client
}

// read opens the bundle of an argument while use runs.
func (c *common) read(ctx context.Context, arg string, rules verify.Rules, use func(opened) error) error {
	b, err := c.open(ctx, arg, rules)
	if err != nil {
		return err
	}
	defer b.Close() //nolint:errcheck // only read
	return use(b)
}

// open opens the bundle of an argument, and verifies it if the rules have a policy. Callers read only the result.
func (c *common) open(ctx context.Context, arg string, rules verify.Rules) (opened, error) {
	p, err := parseLocation(arg)
	client, clientErr := c.client(c)
	if err := fault.Join(err, clientErr); err != nil {
		return opened{}, err
	}
	return c.openAt(ctx, p, client, rules)
}

// openAt does the same for a location.
func (c *common) openAt(
	ctx context.Context, p location, client *remote.Client, rules verify.Rules,
) (b opened, err error) {
	b.client = client
	if b.Bundle, err = c.openWhole(ctx, p, client); err != nil {
		return b, err
	}
	if rules.Policy != nil && c.target.store == inRegistry && !c.dryRun {
		err = client.Repository(c.target.reference).Ready(ctx, 0)
	}
	if rules.Policy != nil && err == nil {
		b.verified, err = verify.Bundle(ctx, b.Bundle, rules, c.options())
	}
	if err != nil {
		return b, errors.Join(err, b.Close())
	}
	return b, nil
}

// direct returns a function that opens references without any mapping.
func direct(client *remote.Client) medium.Registry {
	return func(ref image.Reference) medium.Source { return client.Repository(ref) }
}

// openWhole opens a location for reading. It joins a delta and its base to a whole bundle.
func (c *common) openWhole(ctx context.Context, p location, client *remote.Client) (*pinned.Bundle, error) {
	if c.base == "" {
		return c.openPinned(ctx, p, client)
	}
	at, err := parseLocation(c.base)
	if err == nil && at.store == inStream {
		err = flags.Bad("--base", "-", errors.New("it cannot come from standard input"), "name FILE.tar or oci:DIR")
	}
	if err != nil {
		return nil, err
	}
	delta, err := c.openPinned(ctx, p, client)
	if err != nil {
		return nil, err
	}
	base, err := c.openPinned(ctx, at, client)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the base %s: %w", at, err), delta.Close())
	}
	both, err := pinned.Join(ctx, delta, base)
	if err != nil {
		return nil, errors.Join(err, delta.Close(), base.Close())
	}
	return pinned.Open(ctx, both) // no request: the delta has its digest
}

// openPinned opens a location for reading and binds it to its digest.
func (c *common) openPinned(ctx context.Context, p location, client *remote.Client) (*pinned.Bundle, error) {
	source, err := c.openLocation(ctx, p, client)
	if err != nil {
		return nil, err
	}
	return pinned.Open(ctx, source)
}

func (a *app) openLocation(ctx context.Context, p location, client *remote.Client) (medium.Source, error) {
	switch p.store {
	case inFile:
		return archive.OpenFile(p.path)
	case inFolder:
		return archive.OpenDir(p.path)
	case inStream:
		switch {
		case a.inIsRead:
			return nil, flags.Bad("SRC", "-", errors.New("standard input is read once"), "name FILE.tar or oci:DIR")
		case term.IsTerminal(int(os.Stdin.Fd())):
			return nil, onTerminal("read", "standard input", "pipe an archive to stdin: `vdo-bundle … - < drivers.tar`")
		}
		a.inIsRead = true
		return archive.OpenStream(ctx, "standard input", os.Stdin)
	}
	return client.Repository(p.reference), nil
}

// openTarget opens a location for writing.
func (c *common) openTarget(p location, client *remote.Client) (medium.Target, error) {
	switch p.store {
	case inFile:
		return archive.CreateFile(p.path, c.archive)
	case inFolder:
		return archive.CreateDir(p.path, c.archive)
	case inStream:
		if f, ok := c.out.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) {
			return nil, onTerminal("write", "standard output", "pipe stdout to a file or a program: `vdo-bundle pull -o - > drivers.tar`")
		}
		return archive.NewStreamWriter(c.out), nil
	}
	return client.Repository(p.reference), nil
}

func onTerminal(op, subject, hint string) error {
	return fault.Errorf(fault.InvalidInput, op, subject, hint, "it is a terminal")
}

type outputFlags struct {
	format  string
	quiet   bool
	shows   bool            // progress
	dest    string          // where to write the result
	archive archive.Options // how, if it is a file or bundle
}

// bindOutput binds -o and --replace. The command refuses an existing file before it starts.
func (f *outputFlags) bindOutput(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVarP(&f.dest, "output", "o", "-", usage)
	f.bindReplace(cmd, "a file that is there already")
	cmd.PreRunE = func(_ *cobra.Command, args []string) error { return f.vacant(f.dest, args...) }
}

func (f *outputFlags) bindReplace(cmd *cobra.Command, what string) {
	cmd.Flags().BoolVar(&f.archive.Replace, "replace", false, "replace "+what)
}

// bindTarget binds the flags of commands that write an archive or a folder.
func (f *outputFlags) bindTarget(cmd *cobra.Command) {
	f.bindReplace(cmd, "a file or bundle that is there already, once the new one is complete")
	cmd.Flags().BoolVar(&f.archive.Restart, "restart", false, "drop what an interrupted run of something else, or with other options, has left there")
}

// vacant returns a fault if a file exists that must not be replaced, or its folder does not.
func (f *outputFlags) vacant(name string, inputs ...string) error {
	if name == "-" {
		return nil
	}
	if _, err := os.Stat(filepath.Dir(name)); err != nil {
		return atomicfile.Fault("write", name, err)
	}
	return userfile.Vacant(name, f.archive.Replace, inputs...)
}

func (f *outputFlags) bindFormat(cmd *cobra.Command) { flags.Format(cmd, &f.format) }

// say writes a message to standard error, in the form of the warnings and errors there.
func (c *common) say(format string, args ...any) {
	c.reporter().Warn(format, args...)
}

// bindProgress binds --quiet and --progress, for long commands.
func (c *common) bindProgress(cmd *cobra.Command) {
	c.shows = true
	flags.Group(cmd, flags.Output, func(fl *pflag.FlagSet) {
		fl.BoolVarP(&c.quiet, "quiet", "q", false, "do not show progress")
		fl.Var(&flags.Choice{To: &c.app.progress, Of: []string{progressAuto, progressLines, progressJSON}}, "progress",
			"show progress as auto (lines, and none with --format json), lines, or json (all of standard error)")
	})
}

func (f *outputFlags) json() bool { return f.format == flags.JSON }

// short truncates a digest for tables.
func short(digest string) string { return digest[:min(len(digest), len("sha256:")+12)] }

// progressAuto and the others are the forms of progress.
const (
	progressAuto  = "auto"  // lines, unless the result is printed as JSON
	progressLines = "lines" // a line per phase, tenth of a phase, and failure
	progressJSON  = "json"  // an event per phase, percent, failure and message
)

// reporter returns the progress of the command.
func (c *common) reporter() *run.Progress {
	warnsOnly := !c.shows || c.quiet || c.json() && c.progress == progressAuto
	return &run.Progress{Out: c.err, JSON: c.progress == progressJSON || c.json() && warnsOnly, WarnOnly: warnsOnly}
}

// reportEvent writes an error in the form of --format json, as one line.
func reportEvent(w io.Writer, err error) {
	var text, line bytes.Buffer
	command.Report(&text, err, true)
	if json.Compact(&line, text.Bytes()) == nil && line.Len() > 0 {
		line.WriteByte('\n')
		_, _ = w.Write(line.Bytes())
	}
}
