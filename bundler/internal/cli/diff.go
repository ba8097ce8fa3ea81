package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/diff"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/cli/matrixcmd"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

func newDiffCommand(a *app) *cobra.Command {
	o := &common{app: a}
	return with(&cobra.Command{
		Use:   "diff FROM TO",
		Short: "Show what changes from one bundle to another",
		Long: `diff shows releases and images that are new, gone or changed, how the matrix
changed, and how many bytes the two share: what is new is what a delta carries. It
proves nothing: see verify. FROM and TO are bundles anywhere.`,
		Example: `  vdo-bundle diff october.tar november.tar
  vdo-bundle diff registry.site/vdo/drivers:1 drivers.tar --format json`,
		Args: flags.Exactly("FROM", "TO"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.diff(cmd.Context(), args[0], args[1]) },
	}, o.registryFlags.bind, o.bindFormat)
}

func (c *common) diff(ctx context.Context, from, to string) error {
	one, err := c.open(ctx, from, verify.Rules{})
	if err == nil {
		defer one.Close() //nolint:errcheck // only read
	}
	other, otherErr := c.open(ctx, to, verify.Rules{})
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
	return c.show(d, func() error { return printDifference(c.out, d) })
}

func printDifference(w io.Writer, d *diff.Difference) error {
	p := &matrixcmd.Printer{W: w}
	if d.From == d.To {
		p.Line("the same bundle: %s", d.From)
		return p.Err
	}
	p.Line("from %s", d.From)
	p.Line("to   %s", d.To)
	p.Changes("releases", d.Releases)
	p.Changes("images", d.Images)
	_ = p.Matrix(d.Matrix, matrixcmd.Title(d.Matrix)) // it is the printer's error
	p.Line("")
	p.Line("new     %d blobs and manifests, %s", d.Layers.Added.Count, size.Format(d.Layers.Added.Bytes))
	p.Line("gone    %d, %s", d.Layers.Removed.Count, size.Format(d.Layers.Removed.Bytes))
	p.Line("shared  %d, %s", d.Layers.Shared.Count, size.Format(d.Layers.Shared.Bytes))
	return p.Err
}
