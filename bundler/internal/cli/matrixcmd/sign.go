package matrixcmd

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

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
		data, err := checked(args[0])
		if err != nil {
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

// checked reads a document that is valid: what is wrong is not signed.
func checked(file string) ([]byte, error) {
	data, err := userfile.Read("FILE", file, matrix.MaxSize)
	if err != nil {
		return nil, err
	}
	_, err = matrix.Parse(file, data)
	return data, err
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
