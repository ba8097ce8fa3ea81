package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
)

// Root gives a root command the common behaviour: usage with grouped flags, help with the exit
// codes and more, our own errors, no empty flags. The version must be set. It uses no template: one keeps every
// method of every type linked, tens of thousands for the Kubernetes and vSphere types.
func Root(root *cobra.Command, more string) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Args = flags.OnlyCommands
	version := root.Version
	root.Version = "" // or cobra would show it, by a template
	short := "v"
	if root.PersistentFlags().ShorthandLookup(short) != nil {
		short = "" // the program uses it
	}
	shown := root.Flags().BoolP("version", short, false, "version for "+root.Name())
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *shown {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		}
		return cmd.Help()
	}
	root.PersistentPreRunE = flags.Filled
	root.SetUsageFunc(flags.ShowUsage)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		out := cmd.OutOrStdout()
		if err := flags.ShowHelp(cmd, out); err == nil && !cmd.HasParent() {
			_, _ = io.WriteString(out, "\n"+ExitCodesHelp+more+"\n") // [Output] reports a failed write
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

// Signals returns the signals that end a program's work: Ctrl-C, SIGTERM and, unless under nohup, a lost terminal.
func Signals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// Run runs the command that the arguments name, and returns it with its error, which may be a
// failed write to standard output.
func Run(ctx context.Context, root *cobra.Command, args []string, out, err io.Writer) (*cobra.Command, error) {
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(err)
	cmd, failed := root.ExecuteContextC(ctx)
	if o, ok := out.(*Output); ok && failed == nil {
		failed = o.Failed()
	}
	if failed != nil { // a bad flag hides those after it
		known := pflag.NewFlagSet("", pflag.ContinueOnError)
		known.ParseErrorsAllowlist.UnknownFlags, known.Usage = true, func() {}
		for _, name := range []string{"format", "progress"} {
			if f := cmd.Flags().Lookup(name); f != nil {
				known.AddFlag(f)
			}
		}
		_ = known.Parse(args) // failed tells what is wrong
	}
	return cmd, failed
}

// WantsJSON reports whether a command's result is requested as JSON.
func WantsJSON(cmd *cobra.Command) bool {
	f := cmd.Flags().Lookup("format")
	return f != nil && f.Value.String() == flags.JSON
}
