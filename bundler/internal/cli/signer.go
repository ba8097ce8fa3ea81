package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/timestamp"
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
	fl := cmd.Flags()
	fl.StringVar(&a.flags.caFile, "ca-file", "", "PEM file of certificate authorities to trust besides the system's, for --timestamp-server")
	fl.IntVar(&a.flags.retries, "retries", 5, "how often the time-stamping authority is asked again that failed for a passing reason")
	fl.DurationVar(&a.flags.timeout, "timeout", time.Minute, "how long it may be silent before it is asked again")
	return func(ctx context.Context) (*trust.Signer, error) {
		if err := a.flags.checkPatience(); err != nil {
			return nil, err
		}
		return a.signer(ctx, "--key", a.flags.key)
	}
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
	fl.StringVar(&f.timestampServer, "timestamp-server", "", "URL of a time-stamping authority (RFC 3161) that says when the signature was made, for when the certificate has expired")
	fl.StringVar(&f.timestampRoots, "timestamp-roots", "", "PEM file of that authority's root, to make sure that it is the one")
}

// signer reads the private key of a flag, with its certificate; nil where none is
// given. Time stamps are asked for within ctx.
func (a *app) signer(ctx context.Context, flag, name string) (*trust.Signer, error) {
	if err := a.flags.checkSigner(flag, name); err != nil || name == "" {
		return nil, err
	}
	authority, err := a.flags.timestamps()
	if err != nil {
		return nil, err
	}
	signer, err := a.privateKey(ctx, flag, name)
	if err != nil || a.flags.certificate == "" {
		return signer, err
	}
	leaf, err := userfile.Read("--certificate", a.flags.certificate, maxKeyFile)
	if err != nil {
		return nil, err
	}
	var between []byte
	if chain := a.flags.certificateChain; chain != "" {
		if between, err = userfile.Read("--certificate-chain", chain, maxKeyFile); err != nil {
			return nil, err
		}
	}
	signer, err = signer.WithCertificate(a.flags.certificate, leaf, between, a.now())
	if err != nil || authority == nil {
		return signer, err
	}
	return signer.WithTimestamps(func(signature []byte) ([]byte, error) { return authority.Stamp(ctx, signature) }), nil
}

// checkSigner refuses flags that want another one beside them.
func (f *flags) checkSigner(flag, name string) error {
	switch {
	case name == "" && f.certificate != "":
		return badFlag("--certificate", f.certificate, errors.New("there is no "+flag+" to sign with"), "give the private key with "+flag)
	case f.certificate == "" && f.certificateChain != "":
		return badFlag("--certificate-chain", f.certificateChain, errors.New("there is no --certificate"), "give the key's own certificate with --certificate")
	case f.timestampServer == "" && f.timestampRoots != "":
		return badFlag("--timestamp-roots", f.timestampRoots, errors.New("there is no --timestamp-server"), "give the authority's address with --timestamp-server")
	case f.certificate == "" && f.timestampServer != "":
		return &fault.Error{ // its value is not shown: a URL can hold a secret
			Reason: fault.InvalidInput, Op: "read flag", Subject: "--timestamp-server", Err: errors.New("there is no --certificate, and a time stamp counts beside a certificate only"),
			Hint: "sign with a certificate, or without a time stamp: the time in which a key counts is in the policy",
		}
	}
	return nil
}

// timestamps returns the time-stamping authority; nil where none is named.
func (f *flags) timestamps() (*timestamp.Authority, error) {
	if f.timestampServer == "" {
		return nil, nil
	}
	o := timestamp.Options{URL: f.timestampServer, Timeout: f.timeout, Attempts: f.retries + 1, UserAgent: "vdo-bundle/" + version().Version}
	var err error
	if f.timestampRoots != "" {
		pem, err := userfile.Read("--timestamp-roots", f.timestampRoots, maxKeyFile)
		if err != nil {
			return nil, err
		}
		if o.Roots, err = trust.ParseTimestampRoots(f.timestampRoots, pem); err != nil {
			return nil, err
		}
	}
	if o.CA, err = f.authorities(); err != nil {
		return nil, err
	}
	return timestamp.New(o)
}

// probe makes sure that a time stamp can be had, before work that takes long.
func (a *app) probe(ctx context.Context) error {
	authority, err := a.flags.timestamps()
	if err != nil || authority == nil {
		return err
	}
	_, err = authority.Stamp(ctx, []byte("vdo-bundle: can a time stamp be had?"))
	return err
}

// privateKey reads a private key from its file, or finds it on a token.
func (a *app) privateKey(ctx context.Context, flag, name string) (*trust.Signer, error) {
	if strings.HasPrefix(name, token.Scheme) {
		return a.tokenKey(ctx, name)
	}
	pem, err := userfile.Read(flag, name, maxKeyFile)
	if err != nil {
		return nil, err
	}
	// The password's key derivation takes 64 MiB; they are given back before layers move.
	defer debug.FreeOSMemory()
	return trust.LoadSigner(name, pem, func() ([]byte, error) { return a.password(ctx, "Password of "+name+": ") })
}

// tokenKey opens a key on a token. It stays open until the program ends.
func (a *app) tokenKey(ctx context.Context, name string) (*trust.Signer, error) {
	uri, err := token.ParseURI(name)
	if err != nil {
		return nil, err
	}
	if module, ok := a.getenv("COSIGN_PKCS11_MODULE_PATH"); ok && uri.Module == "" {
		uri.Module = module
	}
	var pin []byte
	if token.Available {
		if pin, err = a.pin(ctx, uri); err != nil {
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
func (a *app) pin(ctx context.Context, uri token.URI) ([]byte, error) {
	if uri.PINFile != "" {
		data, err := userfile.Read("pin-source", uri.PINFile, maxPassword)
		return bytes.TrimRight(data, "\r\n"), err
	}
	if pin, ok := a.getenv("COSIGN_PKCS11_PIN"); ok && a.flags.passwordFile == "" && a.flags.passwordEnv == "" {
		return []byte(pin), nil
	}
	return a.password(ctx, "PIN of "+uri.String()+": ")
}

// password finds the password of a private key: the file, the environment, the
// terminal; never the arguments.
func (a *app) password(ctx context.Context, prompt string) ([]byte, error) {
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
		return a.prompt(ctx, prompt)
	}
	return nil, &fault.Error{
		Reason: fault.InvalidInput, Op: "read password", Err: errors.New("there is no password, and no terminal to ask for it"),
		Hint: "set VDO_KEY_PASSWORD or COSIGN_PASSWORD, or name a file with --key-password-file",
	}
}

// prompt asks on the terminal. Who reads a terminal cannot be stopped, but need not be
// waited for: a signal ends the wait, and leaves the terminal as it was.
func (a *app) prompt(ctx context.Context, prompt string) ([]byte, error) {
	type answer struct {
		password []byte
		err      error
	}
	terminal := int(a.in.Fd())
	before, err := term.GetState(terminal)
	if err != nil {
		return nil, err
	}
	a.ask(prompt)
	defer a.ask("\n")
	read := make(chan answer, 1)
	go func() {
		password, err := term.ReadPassword(terminal)
		read <- answer{password, err}
	}()
	select {
	case got := <-read:
		return got.password, got.err
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), term.Restore(terminal, before))
	}
}

func (a *app) ask(s string) { _, _ = fmt.Fprint(a.err, s) }
