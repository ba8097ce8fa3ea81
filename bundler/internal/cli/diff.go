package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/diff"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/cli/flags"
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
		return writeJSON(o.out, d)
	}
	return printDifference(o.out, d)
}

func printDifference(w io.Writer, d *diff.Difference) error {
	var err error
	line := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format+"\n", args...)
		}
	}
	if d.From == d.To {
		line("the same bundle: %s", d.From)
		return err
	}
	line("from %s", d.From)
	line("to   %s", d.To)
	section := func(title string, c diff.Changes) {
		if c.Empty() {
			return
		}
		line("")
		line("%s", title)
		for _, x := range c.Removed {
			line("- %s", x.Name)
		}
		for _, x := range c.Added {
			line("+ %s", x.Name)
		}
		for _, x := range c.Changed {
			if line("~ %s", x.Name); x.From != x.To {
				line("    %s", x.To)
				line("    was %s", x.From)
			}
			for _, what := range x.What {
				line("    %s", what)
			}
		}
	}
	section("releases", d.Releases)
	section("images", d.Images)
	title := fmt.Sprintf("matrix: serial %d, was %d", d.Matrix.ToSerial, d.Matrix.FromSerial)
	if d.Matrix.FromSerial == d.Matrix.ToSerial {
		title = fmt.Sprintf("matrix: serial %d, but another document", d.Matrix.ToSerial)
	}
	if e := d.Matrix.Expires; e != nil {
		title += fmt.Sprintf("; expires %s, was %s", e.To, e.From)
	}
	if d.Matrix.Empty() && (d.Matrix.FromSerial != d.Matrix.ToSerial || d.Matrix.Expires != nil) {
		line("")
		line("%s", title)
	}
	section(title, d.Matrix.Changes)
	line("")
	line("new     %d blobs and manifests, %s", d.Layers.Added.Count, size.Format(d.Layers.Added.Bytes))
	line("gone    %d, %s", d.Layers.Removed.Count, size.Format(d.Layers.Removed.Bytes))
	line("shared  %d, %s", d.Layers.Shared.Count, size.Format(d.Layers.Shared.Bytes))
	return err
}
