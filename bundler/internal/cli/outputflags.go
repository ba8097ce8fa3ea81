package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
)

// outputFlags say how a result is printed, and whether progress is.
type outputFlags struct {
	format  string
	quiet   bool
	noTrunc bool
}

// bindFormat binds --format.
func (f *outputFlags) bindFormat(cmd *cobra.Command) { flags.Format(cmd, &f.format) }

// bindQuiet binds --quiet, for commands with progress.
func (f *outputFlags) bindQuiet(cmd *cobra.Command) {
	flags.Group(cmd, flags.Output, func(fl *pflag.FlagSet) {
		fl.BoolVarP(&f.quiet, "quiet", "q", false, "do not show progress")
	})
}

// bindNoTrunc binds --no-trunc, for commands that print digests in a table.
func (f *outputFlags) bindNoTrunc(cmd *cobra.Command) {
	flags.Group(cmd, flags.Output, func(fl *pflag.FlagSet) {
		fl.BoolVar(&f.noTrunc, "no-trunc", false, "do not cut digests")
	})
}

func (f *outputFlags) json() bool { return f.format == flags.JSON }

func (f *outputFlags) reporter(a *app) reporter {
	return newReporter(a.err, a.terminal && !a.debug, f.quiet || f.json())
}

// digest writes a digest as a table shows it.
func (f *outputFlags) digest(digest string) string {
	if f.noTrunc {
		return digest
	}
	return short(digest)
}

// short cuts a digest.
func short(digest string) string { return digest[:min(len(digest), len("sha256:")+12)] }
