package cli

import (
	"cmp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/sign"
)

// signOptions are the flags of `sign`.
type signOptions struct {
	common
	signingFlags
	signatureFormat signatureFormatFlag
	identity        string
	recursive       bool
}

func newSignCommand(a *app) *cobra.Command {
	o := &signOptions{common: common{app: a}}
	cmd := &cobra.Command{
		Use:   "sign SRC --key KEY",
		Short: "Add a signature to a bundle",
		Long: `sign signs the digest of a bundle's root, as cosign does, and puts the signature
beside it: into the archive or folder without rewriting the rest, or into the
registry, as a sigstore bundle that refers to the root and under cosign's tag. Signatures
that are there stay.

--recursive signs every index and platform's manifest of the images as well. Admission
policies that check the images of pods need that.`,
		Example: `  vdo-bundle sign drivers.tar --key release.key
  vdo-bundle sign drivers.tar --key signer.key --certificate signer.crt --certificate-chain issuing-ca.crt --timestamp-server https://tsa.corp.example/stamp
  vdo-bundle sign drivers.tar --key 'pkcs11:token=signing;object=release?module-path=/usr/lib/hsm.so' --key-password-file pin
  VAULT_ADDR=https://vault.site vdo-bundle sign drivers.tar --key hashivault://release
  vdo-bundle sign registry.site/vdo/drivers:1 --key site.key --recursive`,
		Args: flags.Exactly("SRC"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.signingFlags.bind(cmd, "key", signingKeyHelp, &o.registryFlags)
	flags.Group(cmd, flags.Signing, func(fl *pflag.FlagSet) {
		fl.StringVar(&o.identity, "identity", "", "what the signature calls the bundle: `HOST/PATH` (default the registry's repository)")
	})
	cmd.Flags().BoolVar(&o.recursive, "recursive", false, "sign every index and manifest of the images as well")
	return with(cmd, o.signatureFormat.bind, o.registryFlags.bind, o.bindFormat)
}

func (o *signOptions) run(cmd *cobra.Command, src string) error {
	if o.key == "" {
		return flags.Missing(cmd, "--key KEY")
	}
	if src == "-" {
		return flags.Usage(cmd, "a bundle on standard input cannot be signed: sign the file, or pull with --sign-key")
	}
	source, at, _, err := o.source(cmd.Context(), src)
	if err != nil {
		return err
	}
	defer source.Close() //nolint:errcheck // what was written has been synced
	signer, err := o.signer(cmd.Context(), o.app)
	if err != nil {
		return err
	}
	signed, err := sign.Bundle(cmd.Context(), source, sign.Input{
		Signer: signer, Identity: cmp.Or(o.identity, at.reference.Repository()),
		Format: signatures.Format(o.signatureFormat.name), Images: o.recursive,
	})
	if err != nil {
		return err
	}
	root, err := image.ParseDigest(signed[0].Digest.String())
	if err != nil {
		return err
	}
	result := map[string]any{
		"root": root.String(), "tag": trust.SignatureTag(root), "source": at.String(), "signed": len(signed),
	}
	return o.show(result, func() error {
		if o.recursive {
			o.say("signed %s of its images as well", command.Plural(len(signed)-1, "index or manifest", "indexes and manifests"))
		}
		return o.print("signed", root)
	})
}
