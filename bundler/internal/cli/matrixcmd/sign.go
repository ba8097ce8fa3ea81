package matrixcmd

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Bounds of what sign reads.
const (
	maxKey      = 64 << 10
	maxPassword = 4 << 10
)

func (w IO) sign() *cobra.Command {
	var key, passwordFile string
	cmd := &cobra.Command{
		Use:   "sign FILE --key KEY",
		Short: "Sign a matrix document",
		Long: `Checks a matrix document and writes its signature to FILE.sig, as
cosign sign-blob does. The password of the key is read from --key-password-file,
VDO_KEY_PASSWORD or COSIGN_PASSWORD, or asked for on the terminal.`,
		Example: `  vdo-bundle matrix sign matrix.yaml --key release.key
  cosign verify-blob --key release.pub --signature matrix.yaml.sig matrix.yaml`,
		Args: exactly("FILE"),
	}
	cmd.Flags().StringVar(&key, "key", "", "private key")
	cmd.Flags().StringVar(&passwordFile, "key-password-file", "", "file with the password of the private key (else VDO_KEY_PASSWORD, COSIGN_PASSWORD, or a prompt)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if key == "" {
			return usage(cmd, "there is no --key KEY")
		}
		return w.signFile(args[0], key, passwordFile)
	}
	return cmd
}

func (w IO) signFile(file, key, passwordFile string) error {
	data, err := readFile(file, matrix.MaxSize)
	if err != nil {
		return err
	}
	if _, err := matrix.Parse(file, data); err != nil {
		return err
	}
	private, err := readFile(key, maxKey)
	if err != nil {
		return err
	}
	signer, err := trust.LoadSigner(key, private, func() ([]byte, error) { return w.password(key, passwordFile) })
	if err != nil {
		return err
	}
	signature, err := signer.SignBlob(data)
	if err != nil {
		return err
	}
	if err := writeFile(file+".sig", signature); err != nil {
		return err
	}
	_, err = fmt.Fprintln(w.Out, file+".sig")
	return err
}

// password takes the password from a file, the environment or the terminal; never
// from an argument, which other users of the machine can see.
func (w IO) password(key, file string) ([]byte, error) {
	if file != "" {
		data, err := readFile(file, maxPassword)
		return bytes.TrimRight(data, "\r\n"), err
	}
	for _, name := range []string{"VDO_KEY_PASSWORD", "COSIGN_PASSWORD"} {
		if value, ok := w.Getenv(name); ok {
			return []byte(value), nil
		}
	}
	if !term.IsTerminal(int(w.In.Fd())) {
		return nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "read password of", Subject: key,
			Err:  errors.New("there is no password, and no terminal to ask for it"),
			Hint: "set VDO_KEY_PASSWORD or COSIGN_PASSWORD, or name a file with --key-password-file",
		}
	}
	_, _ = fmt.Fprintf(w.Err, "Password for %s: ", key)
	password, err := term.ReadPassword(int(w.In.Fd()))
	_, _ = fmt.Fprintln(w.Err)
	return password, err
}
