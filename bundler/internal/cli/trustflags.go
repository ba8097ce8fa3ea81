package cli

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/trustflags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/matrixfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

// Bounds of files that the user names, in bytes.
const (
	maxKeyFile       = 64 << 10
	maxPolicyFile    = 1 << 20
	maxSignatureFile = 1 << 20
	maxCAFile        = 4 << 20
	maxPassword      = 4 << 10
)

// trustFlags say whose signatures a bundle and its matrix need.
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

// rules are what a bundle is verified by; without a policy, where no flag gives one.
func (f *trustFlags) rules() (verify.Rules, error) {
	policy, err := f.Read(userfile.Read)
	rules, matrixErr := f.matrixRules()
	if policy == nil && err == nil && matrixErr == nil {
		err = f.unused()
	}
	return verify.Rules{Policy: policy, Matrix: rules}, fault.Join(err, matrixErr)
}

// unused refuses flags that would have no effect: the matrix is looked at where the
// bundle is verified, and its signature alone would prove nothing of what is installed.
func (f *matrixTrustFlags) unused() error {
	bad := func(flag, value string) error {
		return flags.Bad(flag, value, errors.New(flag+" requires --key or --policy"), "give the key that signed the bundle with --key, or leave out "+flag)
	}
	switch {
	case f.matrixKey != "":
		return bad("--matrix-key", f.matrixKey)
	case f.matrixPolicy != "":
		return bad("--matrix-policy", f.matrixPolicy)
	case f.allowExpired:
		return bad("--allow-expired", "true")
	}
	return nil
}

// matrixTrustFlags say whose signature the matrix needs.
type matrixTrustFlags struct {
	matrixKey, matrixPolicy string
	allowExpired            bool
}

func (f *matrixTrustFlags) bind(fl *pflag.FlagSet) {
	fl.StringVar(&f.matrixKey, "matrix-key", "", "public key in `FILE` that must have signed the matrix")
	fl.StringVar(&f.matrixPolicy, "matrix-policy", "", "trust policy in `FILE` that the matrix's signatures must satisfy")
	fl.BoolVar(&f.allowExpired, "allow-expired", false, "accept a matrix that has expired")
}

func (f *matrixTrustFlags) matrixRules() (matrixfile.Rules, error) {
	rules := matrixfile.Rules{AllowExpired: f.allowExpired}
	switch {
	case f.matrixPolicy != "" && f.matrixKey != "":
		return rules, flags.Bad("--matrix-policy", f.matrixPolicy, errors.New("--matrix-key is given as well"), "put the key into the policy, or give the key alone")
	case f.matrixPolicy != "":
		var err error
		rules.Policy, err = trustflags.ReadPolicy(userfile.Read, "--matrix-policy", f.matrixPolicy)
		return rules, err
	case f.matrixKey == "":
		return rules, nil
	}
	key, err := trustflags.ReadKey(userfile.Read, "--matrix-key", f.matrixKey)
	if err != nil {
		return rules, err
	}
	rules.Policy, err = trust.NewPolicy(1, key)
	return rules, err
}
