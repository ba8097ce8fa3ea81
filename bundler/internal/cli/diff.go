package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/diff"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

// diffOptions are the flags of `diff`.
type diffOptions struct {
	*app
	registryFlags
	outputFlags
}

func newDiffCommand(a *app) *cobra.Command {
	o := &diffOptions{app: a}
	cmd := &cobra.Command{
		Use:   "diff FROM TO",
		Short: "Show what changes from one bundle to another",
		Long: `diff shows releases and images that are new, gone or changed, how the matrix
changed, and how many bytes the two share: what is new is what a delta carries. It
proves nothing: see verify. FROM and TO are bundles anywhere.`,
		Example: `  vdo-bundle diff october.tar november.tar
  vdo-bundle diff registry.site/vdo/drivers:1 drivers.tar --format json`,
		Args: flags.Exactly("FROM", "TO"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0], args[1]) },
	}
	o.registryFlags.bind(cmd)
	o.bindFormat(cmd)
	return cmd
}

func (o *diffOptions) run(ctx context.Context, from, to string) error {
	one, err := o.open(ctx, o.app, from, verify.Rules{}, nil)
	if err == nil {
		defer one.Close() //nolint:errcheck // only read
	}
	other, otherErr := o.open(ctx, o.app, to, verify.Rules{}, nil)
	if otherErr == nil {
		defer other.Close() //nolint:errcheck // only read
	}
	if err := fault.Join(err, otherErr); err != nil {
		return err
	}
	d, err := diff.Bundles(ctx, one.Bundle, other.Bundle)
	if err != nil {
		return err
	}
	if o.json() {
		return command.WriteJSON(o.out, d)
	}
	return printDifference(o.out, d)
}

// printer writes lines until one cannot be written.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		p.err = command.Say(p.w, format, args...)
	}
}

func printDifference(w io.Writer, d *diff.Difference) error {
	p := &printer{w: w}
	if d.From == d.To {
		p.line("the same bundle: %s", d.From)
		return p.err
	}
	p.line("from %s", d.From)
	p.line("to   %s", d.To)
	p.changes("releases", d.Releases)
	p.changes("images", d.Images)
	p.matrix(d.Matrix)
	p.line("")
	p.line("new     %d blobs and manifests, %s", d.Layers.Added.Count, size.Format(d.Layers.Added.Bytes))
	p.line("gone    %d, %s", d.Layers.Removed.Count, size.Format(d.Layers.Removed.Bytes))
	p.line("shared  %d, %s", d.Layers.Shared.Count, size.Format(d.Layers.Shared.Bytes))
	return p.err
}

// changes are what came, went and is another one, where there is any of it.
func (p *printer) changes(title string, c diff.Changes) {
	if c.Empty() {
		return
	}
	p.line("")
	p.line("%s", title)
	for _, x := range c.Removed {
		p.line("- %s", x.Name)
	}
	for _, x := range c.Added {
		p.line("+ %s", x.Name)
	}
	for _, x := range c.Changed {
		if p.line("~ %s", x.Name); x.From != x.To {
			p.line("    %s", x.To)
			p.line("    was %s", x.From)
		}
		for _, what := range x.What {
			p.line("    %s", what)
		}
	}
}

func (p *printer) matrix(m diff.MatrixChange) {
	title := fmt.Sprintf("matrix: serial %d, was %d", m.ToSerial, m.FromSerial)
	if m.FromSerial == m.ToSerial {
		title = fmt.Sprintf("matrix: serial %d, but another document", m.ToSerial)
	}
	if e := m.Expires; e != nil {
		title += fmt.Sprintf("; expires %s, was %s", e.To, e.From)
	}
	if m.Empty() && (m.FromSerial != m.ToSerial || m.Expires != nil) {
		p.line("")
		p.line("%s", title)
	}
	p.changes(title, m.Changes)
}
