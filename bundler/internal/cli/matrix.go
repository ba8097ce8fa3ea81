package cli

import (
	"cmp"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

func newMatrixCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Show, ask, extend, check and sign the compatibility matrix",
		Long: `The compatibility matrix says which release of which driver fits which
Kubernetes and which vSphere. One is built in; --matrix FILE uses another.`,
		Args: flags.OnlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newMatrixShowCommand(a), newMatrixResolveCommand(a), newMatrixLintCommand(a), newMatrixSignCommand(a),
		newMatrixExportCommand(a), newMatrixDiffCommand(a), newMatrixAddCommand(a),
	)
	return cmd
}

// badForm is the error of a flag whose message says what to write.
func badForm(flag, value string, err error) error { return flags.Bad(flag, value, err, forms[flag]) }

// forms are what the flags take.
var forms = map[string]string{
	"--k8s":       "write 1.33, or where several are taken a range 1.30-1.33 or a list 1.31,1.33",
	"--vsphere":   "write 8.0.3, 8.0U3, NAME=8.0.3 or 6.7.0+BUILD, or a list of them",
	"--pin":       "write DRIVER@VERSION such as csi@3.5.1, once for a driver",
	"--installed": "write DRIVER@VERSION such as csi@3.5.1, once for a driver",
	"--select":    "write DRIVER=RULE such as csi=lts, once for a driver",
}

// loadMatrix reads the document that a flag or argument names, or the built-in one, and
// returns its bytes too.
func (c *common) loadMatrix(flag, file string) (doc *matrix.Document, data []byte, err error) {
	data = matrix.Default()
	if file != "" {
		if data, err = userfile.Read(flag, file, matrix.MaxSize); err != nil {
			return nil, nil, err
		}
	}
	name := cmp.Or(file, matrix.DefaultName)
	if doc, err = matrix.Parse(name, data); err != nil {
		return nil, nil, err
	}
	if !c.now().Before(doc.Expires) {
		c.say("warning: the matrix %s expired on %s", name, doc.Expires.Format(time.DateOnly))
	}
	return doc, data, nil
}

func matrixFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("matrix", "", "compatibility matrix in `FILE` (default: the one that is built in)")
}

// summary is what lint says of a document without faults.
type summary struct {
	File      string                `json:"file"`
	Serial    int64                 `json:"serial"`
	Issued    time.Time             `json:"issued"`
	Expires   time.Time             `json:"expires"`
	Expired   bool                  `json:"expired"`
	Releases  int                   `json:"releases"`
	ByDriver  map[matrix.Driver]int `json:"byDriver"`
	ByState   map[matrix.State]int  `json:"byState"`
	Manifests int                   `json:"manifests"`
}

func newMatrixLintCommand(a *app) *cobra.Command {
	c := &common{app: a}
	cmd := &cobra.Command{
		Use:     "lint FILE",
		Short:   "Check a matrix document",
		Long:    `Checks a matrix document and names every problem with its file, line and key.`,
		Example: `  vdo-bundle matrix lint matrix.yaml`,
		Args:    flags.Exactly("FILE"),
	}
	c.bindFormat(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		doc, _, err := c.loadMatrix("FILE", args[0])
		if err != nil {
			return err
		}
		s := summary{
			File: args[0], Serial: doc.Serial, Issued: doc.Issued, Expires: doc.Expires, Expired: !c.now().Before(doc.Expires),
			Releases: len(doc.Releases), ByDriver: map[matrix.Driver]int{}, ByState: map[matrix.State]int{},
		}
		for _, r := range doc.Releases {
			s.ByDriver[r.Driver]++
			s.ByState[r.State]++
			s.Manifests += len(r.Manifests)
		}
		return c.show(s, func() error {
			return command.Say(c.out, "%s: valid, serial %d, issued %s, expires %s, %d releases with %d manifests",
				s.File, s.Serial, s.Issued.Format(time.DateOnly), s.Expires.Format(time.DateOnly), s.Releases, s.Manifests)
		})
	}
	return cmd
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
  vdo-bundle matrix sign matrix.yaml --key signer.key --certificate signer.crt --certificate-chain issuing-ca.crt
  vdo-bundle matrix sign matrix.yaml --key 'pkcs11:token=signing;object=release?module-path=/usr/lib/hsm.so' --key-password-file pin`,
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
