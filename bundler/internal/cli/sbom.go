package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/inspect"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/provenance"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

func (a app) sbomCommand() *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use:   "sbom SRC --type spdx|cyclonedx",
		Short: "Write the bill of materials of a bundle",
		Long: `sbom writes the software bill of materials of a whole bundle: its releases, their
manifest files, every image by digest with its package URL, and the matrix; in SPDX
2.3 or CycloneDX 1.6, as JSON. The same bundle gives the same document. It says what
the bundle holds, and proves nothing: see verify.`,
		Example: `  vdo-bundle sbom drivers.tar --type spdx -o drivers.spdx.json
  vdo-bundle sbom registry.site/vdo/drivers:1 --type cyclonedx | less`,
		Args: exactly("SRC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if kind == "" {
				return usage(cmd, "there is no --type spdx or cyclonedx")
			}
			return a.sbom(cmd.Context(), args[0], kind)
		},
	}
	cmd.Flags().Var(&choice{to: &kind, of: []string{inspect.SPDX, inspect.CycloneDX}}, "type", "which form to write: spdx or cyclonedx")
	cmd.Flags().StringVarP(&a.flags.dest, "output", "o", "-", "file to write to, - for standard output")
	a.flags.registryFlags(cmd)
	return cmd
}

func (a *app) sbom(ctx context.Context, src, kind string) error {
	b, _, _, err := a.opened(ctx, src, verify.Rules{}, nil)
	if err != nil {
		return err
	}
	defer b.Close() //nolint:errcheck // only read
	data, err := inspect.SBOM(ctx, b.Bundle, kind, "vdo-bundle "+version().Version)
	if err != nil {
		return err
	}
	if a.flags.dest != "-" {
		return userfile.Write(a.flags.dest, data, 0o644)
	}
	_, err = a.out.Write(data)
	return err
}

// provenanceFlag asks for a statement of how a bundle was built.
func (f *flags) provenanceFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.provenance, "provenance", false, "attach a statement of how the bundle was built (SLSA, in-toto), signed with --sign-key")
}

// builder is this program as a provenance statement names it; nil where none is
// asked for.
func (f *flags) builder() *provenance.Builder {
	if !f.provenance {
		return nil
	}
	b := version()
	return &provenance.Builder{Version: b.Version, Revision: b.Revision}
}
