package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
)

// Root gives a program's root command what all programs have: the usage with its flags in
// groups, help that ends with the exit codes and more, and errors of our own. It has no
// arguments but commands, and without one it shows its help. Its version has to be set.
//
// Nothing of it is a template: one that is linked in keeps every method of every type in the
// program, of which the Kubernetes and vSphere types have some tens of thousands.
func Root(root *cobra.Command, more string) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Args = flags.OnlyCommands
	version := root.Version
	root.Version = "" // or cobra would show it, by a template
	short := "v"
	if root.PersistentFlags().ShorthandLookup(short) != nil {
		short = "" // a program's own
	}
	shown := root.Flags().BoolP("version", short, false, "version for "+root.Name())
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *shown {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		}
		return cmd.Help()
	}
	root.SetUsageFunc(flags.ShowUsage)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		out := cmd.OutOrStdout()
		if err := flags.ShowHelp(cmd, out); err == nil && !cmd.HasParent() {
			_, _ = io.WriteString(out, "\n"+ExitCodesHelp+more+"\n") // that it takes no more is told by [Output]
		}
	})
	root.SetFlagErrorFunc(flags.Unread)
}

// Add puts commands below the root, in a group of its help.
func Add(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, c := range commands {
		c.GroupID = id
	}
	root.AddCommand(commands...)
}

// Run runs the command that the arguments name, and returns it with its error, which may
// be that standard output took no more.
func Run(ctx context.Context, root *cobra.Command, args []string, out, err io.Writer) (*cobra.Command, error) {
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(err)
	cmd, failed := root.ExecuteContextC(ctx)
	if o, ok := out.(*Output); ok && failed == nil {
		failed = o.Failed()
	}
	return cmd, failed
}

// WantsJSON tells whether a command was asked for its result as JSON.
func WantsJSON(cmd *cobra.Command) bool {
	f := cmd.Flags().Lookup("format")
	return f != nil && f.Value.String() == flags.JSON
}
