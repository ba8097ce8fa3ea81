// Package trustflags has the flags for required signatures: public keys, of which one is enough, or
// a trust policy. The user of [Flags] provides the file reader.
//
//	--key FILE      public key that must have signed the bundle (repeatable)
//	--policy FILE   trust policy, as package api/trust reads it
package trustflags

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

// Bounds of the files, in bytes.
const (
	maxKeyFile    = 64 << 10
	maxTrustFile  = 1 << 20 // keys, certificates and trusted roots that a policy names
	maxPolicyFile = 1 << 20
)

// Reader reads a file that a flag names, of at most limit bytes. Its faults name the file.
type Reader func(flag, name string, limit int64) ([]byte, error)

// Flags say whose signature a bundle needs, or another object, whose name then prefixes the flags.
type Flags struct {
	Of     string // "matrix" binds --matrix-key and --matrix-policy; "" is the bundle
	Keys   []string
	Policy string
}

func (f *Flags) flag(name string) string { return strings.TrimPrefix(f.Of+"-"+name, "-") }

// Bind binds the flags.
func (f *Flags) Bind(fl *pflag.FlagSet) {
	of := cmp.Or(f.Of, "bundle")
	fl.StringArrayVar(&f.Keys, f.flag("key"), nil,
		"public key in `FILE` that must have signed the "+of+"; of several, one is enough (repeatable)")
	fl.StringVar(&f.Policy, f.flag("policy"), "",
		"trust policy in `FILE` for the "+of+", with several keys and a threshold")
}

// Read returns the policy of the keys or of the file; nil without either.
func (f *Flags) Read(read Reader) (*trust.Policy, error) {
	key, policy := "--"+f.flag("key"), "--"+f.flag("policy")
	switch {
	case f.Policy != "" && len(f.Keys) > 0:
		return nil, flags.Bad(policy, f.Policy, errors.New(key+" is given as well"), "put the keys into the policy, or give keys alone")
	case f.Policy != "":
		return ReadPolicy(read, policy, f.Policy)
	case len(f.Keys) == 0:
		return nil, nil
	}
	keys := make([]trust.Key, len(f.Keys))
	var problems []error
	for i, name := range f.Keys {
		suffix := "" // tells equal names apart; the first has none
		if slices.ContainsFunc(f.Keys[:i], func(other string) bool { return KeyID(other) == KeyID(name) }) {
			suffix = fmt.Sprintf("-%d", i+1)
		}
		var err error
		keys[i], err = readKey(read, key, name, suffix)
		problems = append(problems, err)
	}
	if err := fault.Join(problems...); err != nil {
		return nil, err
	}
	return trust.NewPolicy(1, keys...)
}

// readKey reads a public key, and names it after its file.
func readKey(read Reader, flag, name, suffix string) (trust.Key, error) {
	pem, err := read(flag, name, maxKeyFile)
	if err != nil {
		return trust.Key{}, err
	}
	key, err := trust.NewKey(trust.Entry{ID: KeyID(name) + suffix}, pem)
	if err != nil {
		return key, fault.Errorf(fault.InvalidInput, "read public key", name, fault.HintOf(err),
			"%w", fault.CauseOf(err))
	}
	return key, nil
}

// KeyID returns the id of a key from its file name.
func KeyID(name string) string {
	id := strings.Map(func(r rune) rune {
		if r < 128 && (r == '.' || r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			return r
		}
		return '_'
	}, filepath.Base(name))
	return id[:min(len(id), 48)]
}

// ReadPolicy reads a trust policy file, and the key files that it names relative to itself.
func ReadPolicy(read Reader, flag, name string) (*trust.Policy, error) {
	data, err := read(flag, name, maxPolicyFile)
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
		data, err := read(flag, path, maxTrustFile)
		if f, ok := errors.AsType[*fault.Error](err); ok {
			f.Hint = fmt.Sprintf("check what %s names: a path is relative to its folder", name)
		}
		return data, err
	})
}
