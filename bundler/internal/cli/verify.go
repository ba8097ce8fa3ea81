package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/trustflags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/matrixfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

type verifyOptions struct {
	common
	provenance bool
}

const verifyHelp = `verify checks the signature of the bundle's root against the key or policy, then every byte
below it. It compares digests and sizes, and images and manifests with the lock. It checks the
matrix, its expiry, and its signature (with --matrix-key or --matrix-policy). A statement of
the build (pull --provenance) must agree with the lock; --provenance demands one.

--policy FILE says whose signatures count, and how many distinct signers it takes.
Files that it names lie beside it. Entries that you do not need are left out:

` + policyHelp

// policyHelp is a complete trust policy. A test parses it.
const policyHelp = `  apiVersion: vdo.vmware.com/trust/v1
  kind: TrustPolicy
  threshold: 1                          # of distinct signers
  keys:
  - id: release
    file: release.pub
    notAfter: 2027-12-31T00:00:00Z      # or revoked: true
  certificates:                         # of a CA of your own
  - id: corp
    rootsFile: corp-root.crt
    identities:                         # exact: email, uri or dns
    - email: release@corp.example
    timestampRootsFile: tsa-root.crt    # signed before its certificate expired
  keyless:                              # sigstore's short-lived certificates
  - id: kubernetes
    trustedRootFile: trusted_root.json  # never fetched
    identities:
    - subject: krel-trust@k8s-releng-prod.iam.gserviceaccount.com
      issuer: https://accounts.google.com
  revokedDigests: []                    # bundles refused whoever signed them`

func newVerifyCommand(a *app) *cobra.Command {
	o := &verifyOptions{common: common{app: a}}
	cmd := &cobra.Command{
		Use:   "verify SRC --key PUB",
		Short: "Check a bundle's signature and every byte below it",
		Long:  verifyHelp,
		Example: `  vdo-bundle verify drivers.tar --key release.pub
  vdo-bundle verify drivers.tar --key release.pub --provenance
  vdo-bundle verify registry.site/vdo/drivers:1 --policy policy.yaml`,
		Args: flags.Exactly("SRC"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.trustFlags.bind(cmd)
	flags.Group(cmd, flags.Trust, func(fl *pflag.FlagSet) {
		fl.BoolVar(&o.provenance, "provenance", false, "demand a signed statement of how the bundle was built")
	})
	return with(cmd, o.registryFlags.bind, o.bindFormat, o.bindProgress)
}

func (o *verifyOptions) run(cmd *cobra.Command, src string) error {
	rules, err := o.rules()
	if err != nil {
		return err
	}
	if rules.Policy == nil {
		return flags.Usage(cmd, "missing required flag --key PUB or --policy FILE: without it nothing is proven")
	}
	rules.Provenance = o.provenance
	return o.read(cmd.Context(), src, rules, func(b opened) error {
		return o.show(b.verified, func(p *printer) { p.verification(b.verified) })
	})
}

func (p *printer) verification(v *verify.Verification) {
	t := command.NewTable()
	row := func(name, format string, args ...any) { t.Row(name, fmt.Sprintf(format, args...)) }
	row("verified", "%s", v.Root)
	row("signed by", "%s", strings.Join(v.SignedBy, ", "))
	for _, s := range v.Signers {
		row("signer", "%s", s)
	}
	matrix := fmt.Sprintf("serial %d, %s", v.Serial, expiry(v.Expires, v.Expired))
	if len(v.MatrixSignedBy) > 0 {
		matrix += ", signed by " + strings.Join(v.MatrixSignedBy, ", ")
	}
	row("matrix", "%s", matrix)
	for _, s := range v.MatrixSigners {
		row("signer", "%s", s)
	}
	row("content", "%s, %s, %s: every digest checked", command.Plural(v.Images, "image", "images"), command.Plural(v.Blobs, "blob", "blobs"), size.Format(v.Bytes))
	if v.Left != nil {
		row("delta", "%s (not verified)", leftLine(v.Left))
	}
	if v.Provenance != nil {
		row("provenance", "%s", provenanceLine(v.Provenance, v.Images))
	}
	p.table(t)
}

// provenanceLine says how the bundle was built, and who signed that.
func provenanceLine(p *verify.Provenance, images int) string {
	if p.Problem != "" {
		return "not verified: " + p.Problem
	}
	return fmt.Sprintf("signed by %s: built by vdo-bundle %.60q, started %.40q, upstream's signatures of %d of %d images checked",
		strings.Join(p.SignedBy, ", "), p.Builder, p.Started, p.UpstreamSigned, images)
}

// leftLine says what a delta omits.
func leftLine(l *bundle.Omitted) string {
	layers := command.Plural(l.Layers, "layer", "layers")
	return fmt.Sprintf("%s (%s) omitted, expected from base %s", layers, size.Format(l.Bytes), l.Base)
}

// maxKeyFile and the others limit files of the user, in bytes.
const (
	maxKeyFile    = 64 << 10
	maxPolicyFile = 1 << 20
	maxCAFile     = 4 << 20
	maxPassword   = 4 << 10
)

// trustFlags say which signatures a bundle and its matrix need.
type trustFlags struct {
	trustflags.Flags
	matrixTrustFlags
}

func (f *trustFlags) bind(cmd *cobra.Command) {
	flags.Group(cmd, flags.Trust, func(fl *pflag.FlagSet) {
		f.Bind(fl)
		f.matrixTrustFlags.bind(fl)
	})
}

// rules returns the verification rules; without a policy if no flag gives one.
func (f *trustFlags) rules() (verify.Rules, error) {
	policy, err := f.Read(userfile.Read)
	rules, matrixErr := f.matrixRules()
	if policy == nil && err == nil && matrixErr == nil {
		err = f.unused()
	}
	return verify.Rules{Policy: policy, Matrix: rules}, fault.Join(err, matrixErr)
}

// sayUnchecked says that no signature is checked.
func (c *common) sayUnchecked(rules verify.Rules) {
	if rules.Policy == nil {
		c.reporter().Warn("signatures are not checked: --key or --policy does that")
	}
}

// unused refuses flags without effect. The matrix is checked only with the bundle, as its signature alone proves
// nothing about what is installed.
func (f *matrixTrustFlags) unused() error {
	if len(f.signers.Keys) == 0 && f.signers.Policy == "" && !f.allowExpired {
		return nil
	}
	return &fault.Error{
		Reason: fault.InvalidInput, Op: "read flags", Hint: "give the key that signed the bundle with --key",
		Err: errors.New("--matrix-key, --matrix-policy and --allow-expired require --key or --policy"),
	}
}

type matrixTrustFlags struct {
	signers      trustflags.Flags
	allowExpired bool
}

func (f *matrixTrustFlags) bind(fl *pflag.FlagSet) {
	f.signers.Of = "matrix"
	f.signers.Bind(fl)
	fl.BoolVar(&f.allowExpired, "allow-expired", false, "accept a matrix that has expired")
}

func (f *matrixTrustFlags) matrixRules() (matrixfile.Rules, error) {
	policy, err := f.signers.Read(userfile.Read)
	return matrixfile.Rules{Policy: policy, AllowExpired: f.allowExpired}, err
}
