// Package matrixcmd is the `matrix` command of vdo-bundle: what the compatibility
// matrix says, for a site or as a whole, and how a matrix of one's own is made,
// checked and signed.
//
//	vdo-bundle matrix show
//	vdo-bundle matrix resolve --k8s 1.33 --vsphere 8.0.3
//	vdo-bundle matrix import compat.json --manifest-dir manifests -o matrix.yaml
//	vdo-bundle matrix lint matrix.yaml
//	vdo-bundle matrix needs --matrix matrix.yaml csi@3.7.4=manifests/csi-3.7.4
//	vdo-bundle matrix sign matrix.yaml --key release.key
//
// What a command found goes to standard output, remarks and warnings go to standard
// error. Errors are returned: whoever mounts the command prints them.
package matrixcmd

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// IO is what the commands have of the world. Out and Err are needed.
type IO struct {
	Out, Err io.Writer
	Now      func() time.Time // default time.Now
	Format   *string          // where --format is kept, so that errors are printed in the same format
	// Signing gives a command the flags that say with which key it signs, and returns
	// what reads that key, nil where the flags name none. Where it is nil there is no
	// command that signs.
	Signing func(*cobra.Command) func(context.Context) (*trust.Signer, error)
}

// New returns the command with its subcommands.
func New(world IO) *cobra.Command {
	if world.Now == nil {
		world.Now = time.Now
	}
	if world.Format == nil {
		world.Format = new(string)
	}
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Show, ask, check, import and sign the compatibility matrix, and list what releases need",
		Long: `The compatibility matrix says which release of which driver fits which
Kubernetes and which vSphere. One is built in; --matrix FILE uses another.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return flags.UnknownCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(world.show(), world.resolve(), world.lint(), world.needs(), world.importLegacy())
	if world.Signing != nil {
		cmd.AddCommand(world.sign())
	}
	return cmd
}

// bad is the error of a flag whose message says what to write.
func bad(flag, value string, err error) error { return flags.Bad(flag, value, err, forms[flag]) }

// forms are what the flags take.
var forms = map[string]string{
	"--k8s":                     "write 1.33, or where several are taken a range 1.30-1.33 or a list 1.31,1.33",
	"--vsphere":                 "write 8.0.3, 8.0U3, NAME=8.0.3 or 6.7.0+BUILD, or a list of them",
	"--pin":                     "write DRIVER@VERSION such as csi@3.5.1, once for a driver",
	"--installed":               "write DRIVER@VERSION such as csi@3.5.1, once for a driver",
	"--select":                  "write DRIVER=RULE such as csi=lts, once for a driver",
	"--serial and --valid-days": "give numbers from 1 on",
}

// formatFlag binds --format. The default is set when the command runs, because commands
// share the place.
func (w IO) formatFlag(cmd *cobra.Command) { flags.Format(cmd, w.Format) }

func (w IO) json() bool { return *w.Format == flags.JSON }

func (w IO) printJSON(v any) error { return command.WriteJSON(w.Out, v) }

// remark tells something on standard error.
func (w IO) remark(text string, args ...any) {
	_ = command.Say(w.Err, text, args...) // nobody is left to hear of it
}

// load reads the document that a flag or argument names, or the built-in one.
func (w IO) load(flag, file string) (doc *matrix.Document, name string, err error) {
	name, data := matrix.DefaultName, matrix.Default()
	if file != "" {
		name = file
		if data, err = userfile.Read(flag, file, matrix.MaxSize); err != nil {
			return nil, "", err
		}
	}
	if doc, err = matrix.Parse(name, data); err != nil {
		return nil, "", err
	}
	if !w.Now().Before(doc.Expires) {
		w.remark("warning: the matrix %s expired on %s", name, doc.Expires.Format(time.DateOnly))
	}
	return doc, name, nil
}

func matrixFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("matrix", "", "compatibility matrix in `FILE` (default: the one that is built in)")
}
