package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/archive"
)

// repairOptions are the flags of `repair`.
type repairOptions struct {
	*app
	outputFlags
	dryRun bool
}

func newRepairCommand(a *app) *cobra.Command {
	o := &repairOptions{app: a}
	cmd := &cobra.Command{
		Use:   "repair FILE.tar.parts",
		Short: "Check the parts of an archive, and rebuild lost or damaged ones",
		Long: `repair holds all parts of an archive, and its recovery parts, against the sha256
that the parts file lists, names those that are missing or damaged, and rebuilds as
many of them as there are recovery parts. What is rebuilt takes its name only once
its sha256 is right. With --dry-run it only looks.`,
		Example: `  vdo-bundle repair drivers.tar.parts
  vdo-bundle repair drivers.tar.parts --dry-run --format json`,
		Args: flags.Exactly("FILE.tar.parts"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only say what is missing or damaged")
	o.bindFormat(cmd)
	return cmd
}

func (o *repairOptions) run(ctx context.Context, src string) error {
	p, err := filePlace(src)
	if err != nil {
		return err
	}
	r, err := archive.Repair(ctx, p.path, o.dryRun)
	if err != nil {
		return err
	}
	if o.json() {
		if r.Damaged == nil {
			r.Damaged = []archive.PartDamage{}
		}
		return command.WriteJSON(o.out, r)
	}
	for _, d := range r.Damaged {
		_, _ = fmt.Fprintf(o.out, "%s rebuilt: %s\n", filepath.Base(d.Part), strings.Replace(strings.Replace(d.Why, "it is", "it was", 1), "it has", "it had", 1))
	}
	if len(r.Damaged) == 0 {
		_, err = fmt.Fprintf(o.out, "all %d parts are as they were\n", r.Parts)
	}
	return err
}
