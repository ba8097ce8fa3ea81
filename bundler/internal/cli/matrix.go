package cli

import (
	"cmp"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

func newMatrixCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Show, ask, extend and sign the compatibility matrix",
		Long: `The compatibility matrix says which release of which driver fits which
Kubernetes and which vSphere. One is built in; --matrix FILE uses another.`,
		Args: flags.OnlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newMatrixShowCommand(a), newMatrixResolveCommand(a), newMatrixSignCommand(a),
		newMatrixExportCommand(a), newMatrixDiffCommand(a), newMatrixAddCommand(a),
	)
	return cmd
}

// badForm is the error of a flag whose message says what to write.
func badForm(flag, value string, err error) error { return flags.Bad(flag, value, err, forms[flag]) }

// forms are what the flags take.
var forms = map[string]string{
	"--k8s":     "write 1.33, or where several are taken a range 1.30-1.33 or a list 1.31,1.33",
	"--vsphere": "write 8.0.3, 8.0U3, NAME=8.0.3 or 6.7.0+BUILD, or a list of them",
	"--pin":     "write DRIVER@VERSION such as csi@3.5.1, once for a driver",
	"--select":  "write DRIVER=RULE such as csi=lts, once for a driver",
}

// loadMatrix reads the document that a flag or argument names, or the built-in one.
func (c *common) loadMatrix(flag, file string) (doc *matrix.Document, err error) {
	data := matrix.Default()
	if file != "" {
		if data, err = userfile.Read(flag, file, matrix.MaxSize); err != nil {
			return nil, err
		}
	}
	name := cmp.Or(file, matrix.DefaultName)
	if doc, err = matrix.Parse(name, data); err != nil {
		return nil, err
	}
	if !c.now().Before(doc.Expires) {
		c.say("warning: the matrix %s expired on %s", name, doc.Expires.Format(time.DateOnly))
	}
	return doc, nil
}

func matrixFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("matrix", "", "compatibility matrix in `FILE` (default: the one that is built in)")
}

// matrixSignOptions are the flags of `matrix sign`.
type matrixSignOptions struct {
	common
	signingFlags
}

func newMatrixSignCommand(a *app) *cobra.Command {
	o := &matrixSignOptions{common: common{app: a}}
	cmd := &cobra.Command{
		Use:   "sign FILE --key KEY",
		Short: "Sign a matrix document",
		Long: `Checks a matrix document and writes its signature to FILE.sig, as
cosign sign-blob does; with --certificate it is a sigstore bundle, which has room
for that. Keys, certificates and passwords are those of vdo-bundle sign.`,
		Example: `  vdo-bundle matrix sign matrix.yaml --key release.key
  cosign verify-blob --key release.pub --signature matrix.yaml.sig matrix.yaml
  vdo-bundle matrix sign matrix.yaml --key signer.key --certificate signer.crt --certificate-chain issuing-ca.crt`,
		Args: flags.Exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.bindReplace(cmd, "a signature that is there already")
	o.signingFlags.bind(cmd, "key", signingKeyHelp, &o.registryFlags)
	flags.Group(cmd, flags.Registries, func(fl *pflag.FlagSet) { o.bindCA(fl, ", for --timestamp-server") })
	flags.Group(cmd, flags.Tuning, func(fl *pflag.FlagSet) {
		o.bindPatience(fl, "how often (`N`) the time-stamping authority is asked again that failed for a passing reason",
			"how long (`DURATION`) it may be silent before it is asked again")
	})
	return cmd
}

func (o *matrixSignOptions) run(cmd *cobra.Command, file string) error {
	data, err := userfile.Read("FILE", file, matrix.MaxSize)
	if err != nil {
		return err
	}
	if _, err := matrix.Parse(file, data); err != nil { // what is wrong is not signed
		return err
	}
	if err := o.checkPatience(); err != nil {
		return err
	}
	s, err := o.signer(cmd.Context(), o.app)
	switch {
	case err != nil:
		return err
	case s == nil:
		return flags.Missing(cmd, "--key KEY")
	}
	signature, err := s.SignBlob(data)
	if err != nil {
		return err
	}
	if err := userfile.Vacant(file+".sig", o.replace); err != nil {
		return err
	}
	if err := userfile.WriteBelow(filepath.Dir(file), filepath.Base(file)+".sig", signature, 0o644); err != nil {
		return err
	}
	return o.print(file + ".sig")
}
