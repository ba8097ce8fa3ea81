package cli

import (
	"cmp"
	"context"
	"errors"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/kms"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/timestamp"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/token"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/sign"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

type signOptions struct {
	common
	signingFlags
	identity  string
	recursive bool
}

func newSignCommand(a *app) *cobra.Command {
	o := &signOptions{common: common{app: a}}
	cmd := &cobra.Command{
		Use:   "sign SRC --key KEY",
		Short: "Add a signature to a bundle",
		Long: `sign signs the digest of a bundle's root, as cosign does. It adds the signature to the
archive, the folder or the registry: as a sigstore bundle that refers to the root, and under
cosign's tag. Existing signatures stay. It first reads and verifies all of an archive or a
folder. It copies an archive, which needs as much free space again, and then replaces it.

--recursive signs every index and platform's manifest of the images as well. Admission
policies that check the images of pods need that.

Vault is built in. For a key NAME://… in another service install sigstore's plug-in
sigstore-kms-NAME. Keyless signatures are made with cosign.`,
		Example: `  vdo-bundle sign drivers.tar --key release.key
  vdo-bundle sign drivers.tar --key signer.key --certificate signer.crt --certificate-chain issuing-ca.crt --timestamp-server https://tsa.corp.example/stamp
  vdo-bundle sign drivers.tar --key 'pkcs11:token=signing;object=release?module-path=/usr/lib/hsm.so' --key-password-file pin
  VAULT_ADDR=https://vault.site vdo-bundle sign drivers.tar --key hashivault://release
  vdo-bundle sign registry.site/vdo/drivers:1 --key site.key --recursive`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.signingFlags.bind(cmd, "key", signingKeyHelp, &o.common)
	flags.Group(cmd, flags.Signing, func(fl *pflag.FlagSet) {
		fl.StringVar(&o.identity, "identity", "", "what the signature calls the bundle: `HOST/PATH` (default the registry's repository)")
	})
	cmd.Flags().BoolVar(&o.recursive, "recursive", false, "sign every index and manifest of the images as well")
	return with(cmd, o.bindSignatureFormat, o.registryFlags.bind, o.bindFormat)
}

func (o *signOptions) run(cmd *cobra.Command, src string) error {
	if src == "-" {
		return flags.Usage(cmd, "a bundle on standard input cannot be signed: sign the file, or pull with --sign-key")
	}
	ctx := cmd.Context()
	return o.read(ctx, src, verify.Rules{}, func(b opened) error {
		signer, err := o.signer(ctx)
		if err != nil {
			return err
		}
		signed, err := sign.Bundle(ctx, b.Bundle, sign.Input{
			Signer: signer, Name: src, Identity: cmp.Or(o.identity, b.Can().Repository.Repository()),
			Format: signatures.Format(o.form), Images: o.recursive,
		})
		if err != nil {
			return err
		}
		root := b.Digest()
		result := map[string]any{
			"root": root.String(), "tag": image.Signatures.TagOf(root), "source": src, "signed": len(signed),
		}
		return o.show(result, func(p *printer) {
			if o.recursive {
				o.say("signed %s of its images as well", command.Plural(len(signed)-1, "index or manifest", "indexes and manifests"))
			}
			p.print("signed", root)
		})
	})
}

type signingFlags struct {
	flag string // name of the flag for the key
	key  string
	form string // format of a bundle's signature
	passwordFlags
	certificate, certificateChain   string
	timestampServer, timestampRoots string
	by                              *common // of the command, with CAs, retries and timeout for the TSA
}

// bind binds the flags, with the name of the key's flag and the settings of the command.
func (f *signingFlags) bind(cmd *cobra.Command, flag, help string, by *common) {
	f.flag, f.by = "--"+flag, by
	flags.Group(cmd, flags.Signing, func(fl *pflag.FlagSet) {
		fl.StringVar(&f.key, flag, "", help)
		f.passwordFlags.bind(fl)
		fl.StringVar(&f.certificate, "certificate", "", "PEM `FILE` of a certificate for the signing key, which the signature then carries")
		fl.StringVar(&f.certificateChain, "certificate-chain", "", "PEM `FILE` of the CAs that issued the certificate, nearest first")
		fl.StringVar(&f.timestampServer, "timestamp-server", "", "`URL` of a time-stamping authority (RFC 3161) that says when the signature was made, for when the certificate has expired")
		fl.StringVar(&f.timestampRoots, "timestamp-roots", "", "PEM `FILE` of that authority's root, to make sure that it is the one")
	})
}

const signingKeyHelp = "private `KEY` to sign with: cosign's, PEM, pkcs11:… for one on a token, or hashivault://… for one in Vault"

// bindSignatureFormat binds --signature-format, for commands that sign bundles.
func (f *signingFlags) bindSignatureFormat(cmd *cobra.Command) {
	f.form = string(signatures.Both)
	flags.Group(cmd, flags.Signing, func(fl *pflag.FlagSet) {
		fl.Var(&flags.Choice{To: &f.form, Of: signatures.Formats()}, "signature-format",
			"`FORM` of the signature: "+strings.Join(signatures.Formats(), ", ")+" (cosign 3 writes sigstore-bundle, cosign 2 simple)")
	})
}

// signer loads the flag's private key and certificate; nil without a key. It requests time stamps within ctx.
func (f *signingFlags) signer(ctx context.Context) (*trust.Signer, error) {
	if err := f.check(); err != nil || f.key == "" {
		return nil, err
	}
	authority, roots, err := f.timestamps()
	if err != nil {
		return nil, err
	}
	signer, err := f.privateKey(ctx)
	if err != nil || f.certificate == "" {
		return signer, err
	}
	leaf, err := userfile.Read("--certificate", f.certificate, maxKeyFile)
	if err != nil {
		return nil, err
	}
	var between []byte
	if chain := f.certificateChain; chain != "" {
		if between, err = userfile.Read("--certificate-chain", chain, maxKeyFile); err != nil {
			return nil, err
		}
	}
	signer, err = signer.WithCertificate(f.certificate, leaf, between, time.Now())
	if err != nil || authority == nil {
		return signer, err
	}
	stamp := func(signature []byte) ([]byte, error) { return authority.Stamp(ctx, signature) }
	return signer.WithTimestamps(stamp, roots), nil
}

// check returns a fault if a required other flag is missing. It shows no value, since a URL can hold a secret.
func (f *signingFlags) check() error {
	for _, c := range []struct{ given, flag, lacks, needs string }{
		{f.file, "--key-password-file", f.key, f.flag},
		{f.certificate, "--certificate", f.key, f.flag},
		{f.certificateChain, "--certificate-chain", f.certificate, "--certificate"},
		{f.timestampServer, "--timestamp-server", f.certificate, "--certificate"},
		{f.timestampRoots, "--timestamp-roots", f.timestampServer, "--timestamp-server"},
	} {
		if c.given != "" && c.lacks == "" {
			return fault.Errorf(fault.InvalidInput, "read flag", c.flag, "give both, or neither", "missing required flag %s", c.needs)
		}
	}
	return nil
}

// timestamps returns the TSA client and its roots; nil if not given.
func (f *signingFlags) timestamps() (authority *timestamp.Authority, roots trust.TimestampRoots, err error) {
	if f.timestampServer == "" {
		return nil, roots, nil
	}
	at, err := timestamp.ParseURL(f.timestampServer)
	if err == nil && f.timestampRoots != "" {
		roots, err = userfile.Parse("--timestamp-roots", f.timestampRoots, maxKeyFile, trust.ParseTimestampRoots)
	}
	if err != nil {
		return nil, roots, err
	}
	by := f.by
	net := registryFlags{hostsConfig: by.hostsConfig, retries: by.retries}
	net.remote.CAFiles, net.remote.Stall, net.remote.Concurrency = by.remote.CAFiles, by.remote.Stall, 1
	options, err := net.options(by)
	if err != nil {
		return nil, roots, err
	}
	if at.Scheme == "http" { // like most TSAs: the stamp is signed
		set := options.Hosts[at.Host]
		set.PlainHTTP = true
		options.Hosts[at.Host] = set
	}
	client, err := remote.NewClient(options)
	return &timestamp.Authority{URL: at, Client: client}, roots, err
}

// privateKey loads a private key from a file, a token or a KMS.
func (f *signingFlags) privateKey(ctx context.Context) (*trust.Signer, error) {
	name := f.key
	if strings.HasPrefix(name, token.Scheme) {
		return f.tokenKey(ctx, name)
	}
	if kms.IsURI(name) {
		key, err := kms.Open(ctx, name)
		if err != nil {
			return nil, err
		}
		return trust.NewSigner(name, key)
	}
	pem, err := userfile.Read(f.flag, name, maxKeyFile)
	if err != nil {
		return nil, err
	}
	// The key derivation takes 64 MiB; free them before layers move.
	defer debug.FreeOSMemory()
	signer, err := trust.LoadSigner(name, pem, func() ([]byte, error) {
		return f.password(ctx, f.by.app, "Password of "+name+": ")
	})
	if wrong, ok := errors.AsType[*fault.Error](err); ok && wrong.Reason == fault.Unauthorized && f.found != "" {
		wrong.Hint += ", not the one in " + f.found
	}
	return signer, err
}

// tokenKey opens a key on a token, until the program ends.
func (f *signingFlags) tokenKey(ctx context.Context, name string) (*trust.Signer, error) {
	uri, err := token.ParseURI(name)
	if err != nil {
		return nil, err
	}
	key, err := token.Open(uri, func() ([]byte, error) { return f.pin(ctx, f.by.app, uri) })
	if err != nil {
		return nil, err
	}
	return trust.NewSigner(uri.String(), key)
}

type keygenOptions struct {
	*app
	passwordFlags
	prefix string
}

func newKeygenCommand(a *app) *cobra.Command {
	o := &keygenOptions{app: a}
	cmd := &cobra.Command{
		Use:   "keygen [-o PREFIX]",
		Short: "Make a key pair to sign with",
		Long: `keygen makes an ECDSA P-256 key pair in the form of cosign generate-key-pair:
PREFIX.key, encrypted with a password, and PREFIX.pub. Files that are there are
never replaced.`,
		Example: `  vdo-bundle keygen -o release`,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().StringVarP(&o.prefix, "output", "o", "vdo", "path `PREFIX` of the pair, without .key and .pub")
	flags.Group(cmd, flags.Signing, o.passwordFlags.bind)
	return cmd
}

func (o *keygenOptions) run(ctx context.Context) error {
	private, public := o.prefix+".key", o.prefix+".pub"
	password, err := o.newPassword(ctx, o.app, "Password for "+private+": ")
	if err != nil {
		return err
	}
	key, pub, err := trust.GenerateKey(password)
	if err != nil {
		return err
	}
	if err := userfile.WriteNew(private, key, 0o600); err != nil {
		return err
	}
	if err := userfile.WriteNew(public, pub, 0o644); err != nil {
		return errors.Join(err, os.Remove(private))
	}
	if err := o.print(private + "\n" + public); err != nil {
		return errors.Join(err, os.Remove(private), os.Remove(public)) // unused yet
	}
	return nil
}
