package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/token"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
)

// passwordFlag binds where the password of a private key comes from. A password is
// never an argument: other users of the machine see those.
func (f *flags) passwordFlag(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.passwordFile, "key-password-file", "", "file with the password of the private key (else VDO_KEY_PASSWORD, COSIGN_PASSWORD, or a prompt)")
	fl.StringVar(&f.passwordEnv, "key-password-env", "", "environment variable with the password of the private key")
	fl.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if short, ok := strings.CutPrefix(name, "password-"); ok {
			name = "key-password-" + short // --password-file and --password-env, for short
		}
		return pflag.NormalizedName(name)
	})
}

// signing binds the flags of the key that a command of another package signs with.
func (a app) signing(cmd *cobra.Command) func(context.Context) (*trust.Signer, error) {
	a.keyFlags(cmd)
	return func(context.Context) (*trust.Signer, error) { return a.signer("--key", a.flags.key) }
}

// keyFlags bind all that says with what key and certificate a command signs.
func (a *app) keyFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.flags.key, "key", "", "private key to sign with: cosign's, PEM, or pkcs11:… for one on a token")
	a.flags.passwordFlag(cmd)
	a.flags.certificateFlags(cmd)
}

// certificateFlags bind the certificate of a signing key.
func (f *flags) certificateFlags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.certificate, "certificate", "", "PEM file of a certificate for the signing key, which the signature then carries")
	fl.StringVar(&f.certificateChain, "certificate-chain", "", "PEM file of the authorities that issued the certificate, nearest first")
}

// signer reads the private key of a flag, with its certificate; nil where none is
// given.
func (a *app) signer(flag, name string) (*trust.Signer, error) {
	certificate, chain := a.flags.certificate, a.flags.certificateChain
	switch {
	case name == "" && certificate != "":
		return nil, badFlag("--certificate", certificate, errors.New("there is no "+flag+" to sign with"), "give the private key with "+flag)
	case certificate == "" && chain != "":
		return nil, badFlag("--certificate-chain", chain, errors.New("there is no --certificate"), "give the key's own certificate with --certificate")
	case name == "":
		return nil, nil
	}
	signer, err := a.privateKey(flag, name)
	if err != nil || certificate == "" {
		return signer, err
	}
	leaf, err := userfile.Read("--certificate", certificate, maxKeyFile)
	if err != nil {
		return nil, err
	}
	var between []byte
	if chain != "" {
		if between, err = userfile.Read("--certificate-chain", chain, maxKeyFile); err != nil {
			return nil, err
		}
	}
	return signer.WithCertificate(certificate, leaf, between, a.now())
}

// privateKey reads a private key from its file, or finds it on a token.
func (a *app) privateKey(flag, name string) (*trust.Signer, error) {
	if strings.HasPrefix(name, token.Scheme) {
		return a.tokenKey(name)
	}
	pem, err := userfile.Read(flag, name, maxKeyFile)
	if err != nil {
		return nil, err
	}
	// The password's key derivation takes 64 MiB; they are given back before layers move.
	defer debug.FreeOSMemory()
	return trust.LoadSigner(name, pem, func() ([]byte, error) { return a.password("Password of " + name + ": ") })
}

// tokenKey opens a key on a token. It stays open until the program ends.
func (a *app) tokenKey(name string) (*trust.Signer, error) {
	uri, err := token.ParseURI(name)
	if err != nil {
		return nil, err
	}
	if module, ok := a.getenv("COSIGN_PKCS11_MODULE_PATH"); ok && uri.Module == "" {
		uri.Module = module
	}
	var pin []byte
	if token.Available {
		if pin, err = a.pin(uri); err != nil {
			return nil, fmt.Errorf("open key %s: %w", uri, err)
		}
	}
	key, err := token.Open(uri, pin)
	if err != nil {
		return nil, err
	}
	return trust.NewSigner(uri.String(), key)
}

// pin finds the PIN of a token: the file that the URI names, else as passwords of
// keys are found.
func (a *app) pin(uri token.URI) ([]byte, error) {
	if uri.PINFile != "" {
		data, err := userfile.Read("pin-source", uri.PINFile, maxPassword)
		return bytes.TrimRight(data, "\r\n"), err
	}
	if pin, ok := a.getenv("COSIGN_PKCS11_PIN"); ok && a.flags.passwordFile == "" && a.flags.passwordEnv == "" {
		return []byte(pin), nil
	}
	return a.password("PIN of " + uri.String() + ": ")
}

// password finds the password of a private key: the file, the environment, the
// terminal; never the arguments.
func (a *app) password(prompt string) ([]byte, error) {
	switch file, env := a.flags.passwordFile, a.flags.passwordEnv; {
	case file != "" && env != "":
		return nil, badFlag("--key-password-env", env, errors.New("--key-password-file is given as well"), "keep one of them")
	case file != "":
		data, err := userfile.Read("--key-password-file", file, maxPassword)
		return bytes.TrimRight(data, "\r\n"), err
	case env != "":
		value, ok := a.getenv(env)
		if !ok {
			return nil, badFlag("--key-password-env", env, errors.New("there is no such environment variable"), "set it for this command")
		}
		return []byte(value), nil
	}
	for _, name := range []string{"VDO_KEY_PASSWORD", "COSIGN_PASSWORD"} {
		if value, ok := a.getenv(name); ok {
			return []byte(value), nil
		}
	}
	if a.in != nil && term.IsTerminal(int(a.in.Fd())) {
		a.ask(prompt)
		password, err := term.ReadPassword(int(a.in.Fd()))
		a.ask("\n")
		return password, err
	}
	return nil, &fault.Error{
		Reason: fault.InvalidInput, Op: "read password", Err: errors.New("there is no password, and no terminal to ask for it"),
		Hint: "set VDO_KEY_PASSWORD or COSIGN_PASSWORD, or name a file with --key-password-file",
	}
}

func (a *app) ask(s string) { _, _ = fmt.Fprint(a.err, s) }
