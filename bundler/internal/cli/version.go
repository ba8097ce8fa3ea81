package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
)

// linked is the version that the linker gave, as the operator's is: one for all programs.
var linked string

func version() command.Build { return command.BuildOf("vdo-bundle", linked) }

func newVersionCommand(a *app) *cobra.Command {
	var o outputFlags
	cmd := &cobra.Command{
		Use: "version", Short: "Show the version of this program", Args: flags.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			if o.json() {
				return command.WriteJSON(a.out, version())
			}
			_, err := fmt.Fprintln(a.out, version())
			return err
		},
	}
	o.bindFormat(cmd)
	return cmd
}
