package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/inspect"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

// sbomOptions are the flags of `sbom`.
type sbomOptions struct {
	*app
	registryFlags
	kind, dest string
}

func newSBOMCommand(a *app) *cobra.Command {
	o := &sbomOptions{app: a}
	cmd := &cobra.Command{
		Use:   "sbom SRC --type spdx|cyclonedx",
		Short: "Write the bill of materials of a bundle",
		Long: `sbom writes the software bill of materials of a whole bundle: its releases, their
manifest files, every image by digest with its package URL, and the matrix; in SPDX
2.3 or CycloneDX 1.6, as JSON. The same bundle gives the same document. It says what
the bundle holds, and proves nothing: see verify.`,
		Example: `  vdo-bundle sbom drivers.tar --type spdx -o drivers.spdx.json
  vdo-bundle sbom registry.site/vdo/drivers:1 --type cyclonedx | less`,
		Args: flags.Exactly("SRC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.kind == "" {
				return flags.Missing(cmd, "--type spdx or cyclonedx")
			}
			return o.run(cmd.Context(), args[0])
		},
	}
	cmd.Flags().Var(&flags.Choice{To: &o.kind, Of: []string{inspect.SPDX, inspect.CycloneDX}}, "type", "which form to write: spdx or cyclonedx")
	cmd.Flags().StringVarP(&o.dest, "output", "o", "-", "`FILE` to write to, - for standard output")
	o.registryFlags.bind(cmd)
	return cmd
}

func (o *sbomOptions) run(ctx context.Context, src string) error {
	b, err := o.open(ctx, o.app, src, verify.Rules{}, nil)
	if err != nil {
		return err
	}
	defer b.Close() //nolint:errcheck // only read
	data, err := inspect.SBOM(ctx, b.Bundle, o.kind, "vdo-bundle "+version().Version)
	if err != nil {
		return err
	}
	return o.deliver(o.dest, data, "")
}
