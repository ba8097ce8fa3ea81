// Package matrixcmd is the `matrix` command of vdo-bundle: what the compatibility
// matrix says, for a site or as a whole, and how a matrix of one's own is made,
// checked and signed.
//
//	vdo-bundle matrix show
//	vdo-bundle matrix resolve --k8s 1.33 --vsphere 8.0.3
//	vdo-bundle matrix import compat.json --manifest-dir manifests -o matrix.yaml
//	vdo-bundle matrix add csi@3.8.0 --manifests csi-3.8.0 -o matrix.yaml
//	vdo-bundle matrix diff "" matrix.yaml
//	vdo-bundle matrix lint matrix.yaml
//	vdo-bundle matrix needs --matrix matrix.yaml csi@3.7.4=manifests/csi-3.7.4
//	vdo-bundle matrix sign matrix.yaml --key release.key
//
// What a command found goes to standard output, remarks and warnings go to standard
// error. Errors are returned: whoever mounts the command prints them.
package matrixcmd

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
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
		Short: "Show, ask, extend, check and sign the compatibility matrix",
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
	cmd.AddCommand(world.show(), world.resolve(), world.lint(), world.export(), world.diff(), world.add())
	cmd.AddCommand(world.needs(), world.importLegacy())
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

// result prints a value: as JSON, where that is asked for, else as text does.
func (w IO) result(value any, text func() error) error {
	if *w.Format == flags.JSON {
		return command.WriteJSON(w.Out, value)
	}
	return text()
}

// write writes a document to a file, or to standard output where none is named.
func (w IO) write(to string, data []byte) error {
	if to != "" {
		return userfile.Write(to, data, 0o644)
	}
	_, err := w.Out.Write(data)
	return err
}

// remark tells something on standard error.
func (w IO) remark(text string, args ...any) {
	_ = command.Say(w.Err, text, args...) // nobody is left to hear of it
}

// document is one that was read, with its bytes.
type document struct {
	*matrix.Document
	name string
	data []byte
}

// load reads the document that a flag or argument names, or the built-in one.
func (w IO) load(flag, file string) (document, error) {
	d := document{name: matrix.DefaultName, data: matrix.Default()}
	var err error
	if file != "" {
		d.name = file
		if d.data, err = userfile.Read(flag, file, matrix.MaxSize); err != nil {
			return d, err
		}
	}
	if d.Document, err = matrix.Parse(d.name, d.data); err != nil {
		return d, err
	}
	if !w.Now().Before(d.Expires) {
		w.remark("warning: the matrix %s expired on %s", d.name, d.Expires.Format(time.DateOnly))
	}
	return d, nil
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

func (w IO) lint() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "lint FILE",
		Short:   "Check a matrix document",
		Long:    `Checks a matrix document and names every problem with its file, line and key.`,
		Example: `  vdo-bundle matrix lint matrix.yaml`,
		Args:    flags.Exactly("FILE"),
	}
	w.formatFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		doc, err := w.load("FILE", args[0])
		if err != nil {
			return err
		}
		s := summary{
			File: args[0], Serial: doc.Serial, Issued: doc.Issued, Expires: doc.Expires, Expired: !w.Now().Before(doc.Expires),
			Releases: len(doc.Releases), ByDriver: map[matrix.Driver]int{}, ByState: map[matrix.State]int{},
		}
		for _, r := range doc.Releases {
			s.ByDriver[r.Driver]++
			s.ByState[r.State]++
			s.Manifests += len(r.Manifests)
		}
		return w.result(s, func() error {
			return command.Say(w.Out, "%s: valid, serial %d, issued %s, expires %s, %d releases with %d manifests",
				s.File, s.Serial, s.Issued.Format(time.DateOnly), s.Expires.Format(time.DateOnly), s.Releases, s.Manifests)
		})
	}
	return cmd
}

func (w IO) sign() *cobra.Command {
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
	}
	signer := w.Signing(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		data, err := userfile.Read("FILE", args[0], matrix.MaxSize)
		if err != nil {
			return err
		}
		if _, err := matrix.Parse(args[0], data); err != nil { // what is wrong is not signed
			return err
		}
		s, err := signer(cmd.Context())
		switch {
		case err != nil:
			return err
		case s == nil:
			return flags.Missing(cmd, "--key KEY")
		}
		return w.signFile(args[0], data, s)
	}
	return cmd
}

func (w IO) signFile(file string, data []byte, s *trust.Signer) error {
	signature, err := s.SignBlob(data)
	if err != nil {
		return err
	}
	if err := userfile.Free("FILE", file+".sig", userfile.IsText); err != nil {
		return err
	}
	if err := userfile.WriteBelow(filepath.Dir(file), filepath.Base(file)+".sig", signature, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintln(w.Out, file+".sig")
	return err
}
