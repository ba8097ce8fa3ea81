package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/diff"
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
	return c.show(d, func() error { return c.printDifference(d) })
}

func (c *common) printDifference(d *diff.Difference) error {
	p := &printer{w: c.out}
	if d.From == d.To {
		p.line("the same bundle: %s", d.From)
		return p.err
	}
	p.line("from %s", d.From)
	p.line("to   %s", d.To)
	p.changes("releases", d.Releases)
	p.changes("images", d.Images)
	_ = p.matrix(d.Matrix, matrixTitle(d.Matrix)) // it is the printer's error
	p.line("")
	p.line("new     %d blobs and manifests, %s", d.Layers.Added.Count, size.Format(d.Layers.Added.Bytes))
	p.line("gone    %d, %s", d.Layers.Removed.Count, size.Format(d.Layers.Removed.Bytes))
	p.line("shared  %d, %s", d.Layers.Shared.Count, size.Format(d.Layers.Shared.Bytes))
	return p.err
}
