package cli

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/matrixfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

// Bounds of files that the user names, in bytes.
const (
	maxKeyFile       = 64 << 10
	maxTrustFile     = 1 << 20 // keys, certificates and trusted roots that a policy names
	maxPolicyFile    = 1 << 20
	maxSignatureFile = 1 << 20
	maxCAFile        = 4 << 20
	maxPassword      = 4 << 10
)

// trustFlags say whose signatures a bundle and its matrix need.
type trustFlags struct {
	keys   []string
	policy string
	matrixTrustFlags
}

func (f *trustFlags) bind(cmd *cobra.Command) {
	flags.Group(cmd, flags.Trust, func(fl *pflag.FlagSet) {
		fl.StringArrayVar(&f.keys, "key", nil, "public key in `FILE` that must have signed the bundle; of several, one is enough (repeatable)")
		fl.StringVar(&f.policy, "policy", "", "trust policy in `FILE`, for several keys and a threshold")
		f.matrixTrustFlags.bind(fl)
	})
}

// rules are what a bundle is verified by; without a policy, where no flag gives one.
func (f *trustFlags) rules() (verify.Rules, error) {
	policy, err := f.trustPolicy()
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
		rules.Policy, err = parsePolicy("--matrix-policy", f.matrixPolicy)
		return rules, err
	case f.matrixKey == "":
		return rules, nil
	}
	key, err := publicKey("--matrix-key", f.matrixKey, "")
	if err != nil {
		return rules, err
	}
	rules.Policy, err = trust.NewPolicy(1, key)
	return rules, err
}

// trustPolicy returns the policy of --key or --policy; nil where neither is given.
func (f *trustFlags) trustPolicy() (*trust.Policy, error) {
	switch {
	case f.policy != "" && len(f.keys) > 0:
		return nil, flags.Bad("--policy", f.policy, errors.New("--key is given as well"), "put the keys into the policy, or give keys alone")
	case f.policy != "":
		return parsePolicy("--policy", f.policy)
	case len(f.keys) == 0:
		return nil, nil
	}
	keys := make([]trust.Key, len(f.keys))
	var problems []error
	for i, name := range f.keys {
		var err error
		keys[i], err = publicKey("--key", name, fmt.Sprintf("-%d", i+1))
		problems = append(problems, err)
	}
	if err := fault.Join(problems...); err != nil {
		return nil, err
	}
	return trust.NewPolicy(1, keys...)
}

// publicKey reads a key and names it after its file. Of several, the suffix keeps
// equal names apart; the first has none.
func publicKey(flag, name, suffix string) (trust.Key, error) {
	pem, err := userfile.Read(flag, name, maxKeyFile)
	if err != nil {
		return trust.Key{}, err
	}
	if suffix == "-1" {
		suffix = ""
	}
	key, err := trust.NewKey(keyID(name)+suffix, pem, trust.KeyOptions{})
	if err != nil {
		return key, &fault.Error{
			Reason: fault.InvalidInput, Op: "read public key", Subject: name, Err: unwrapped(err), Hint: fault.HintOf(err),
		}
	}
	return key, nil
}

func keyID(name string) string {
	id := strings.Map(func(r rune) rune {
		if r < 128 && (r == '.' || r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			return r
		}
		return '_'
	}, filepath.Base(name))
	return id[:min(len(id), 48)]
}

// parsePolicy reads a trust policy file, and the keys that it names beside it.
func parsePolicy(flag, name string) (*trust.Policy, error) {
	data, err := userfile.Read(flag, name, maxPolicyFile)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("-----BEGIN ")) && flag == "--policy" {
		return nil, flags.Bad(flag, name, errors.New("a key or certificate, not a trust policy"), "give a public key with --key, or name it in a policy")
	}
	return trust.ParsePolicy(name, data, func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(name), path)
		}
		data, err := userfile.Read(flag, path, maxTrustFile)
		var f *fault.Error
		if errors.As(err, &f) {
			f.Hint = fmt.Sprintf("check what %s names: a path is relative to its folder", name)
		}
		return data, err
	})
}
