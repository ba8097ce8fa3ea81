package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
)

// outputFlags say how a result is printed, and whether progress is.
type outputFlags struct {
	format  string
	quiet   bool
	shows   bool   // progress
	dest    string // where the result is written to
	replace bool   // what is there
}

// bindOutput binds -o and --replace of a command that writes one file. One that is there is refused
// before the command does anything.
func (f *outputFlags) bindOutput(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVarP(&f.dest, "output", "o", "-", usage)
	f.bindReplace(cmd, "a file that is there already")
	cmd.PreRunE = func(_ *cobra.Command, args []string) error { return f.vacant(f.dest, args...) }
}

func (f *outputFlags) bindReplace(cmd *cobra.Command, what string) {
	cmd.Flags().BoolVar(&f.replace, "replace", false, "replace "+what)
}

// vacant refuses to write a file where one is, unless it may be replaced.
func (f *outputFlags) vacant(name string, inputs ...string) error {
	if name == "-" {
		return nil
	}
	return userfile.Vacant(name, f.replace, inputs...)
}

// bindFormat binds --format.
func (f *outputFlags) bindFormat(cmd *cobra.Command) { flags.Format(cmd, &f.format) }

// bindProgress binds --quiet and --progress, for commands that take long.
func (c *common) bindProgress(cmd *cobra.Command) {
	c.shows = true
	flags.Group(cmd, flags.Output, func(fl *pflag.FlagSet) {
		fl.BoolVarP(&c.quiet, "quiet", "q", false, "do not show progress")
		fl.Var(&flags.Choice{To: &c.app.progress, Of: []string{progressAuto, progressLines, progressJSON}}, "progress",
			"show progress as auto (lines, and none with --format json), lines, or json (all of standard error)")
	})
}

func (f *outputFlags) json() bool { return f.format == flags.JSON }

// short cuts a digest, for tables. JSON has all of it.
func short(digest string) string { return digest[:min(len(digest), len("sha256:")+12)] }
