package trust

import (
	"fmt"
	"sort"

	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/strictyaml"
)

// The header of a policy file.
const (
	PolicyAPIVersion = "vdo.vmware.com/trust/v1"
	PolicyKind       = "TrustPolicy"

	maxPolicy         = 1 << 20
	maxRevokedDigests = 4096
)

// policyFile is the form of the file; see the package comment.
type policyFile struct {
	APIVersion     string          `yaml:"apiVersion"`
	Kind           string          `yaml:"kind"`
	Threshold      *int            `yaml:"threshold,omitempty"`
	Keys           []keyFile       `yaml:"keys,omitempty"`
	Certificates   []authorityFile `yaml:"certificates,omitempty"`
	Keyless        []keylessFile   `yaml:"keyless,omitempty"`
	RevokedDigests []string        `yaml:"revokedDigests,omitempty"`
}

// The forms of entries: what they are, or the paths of files that have it.
type (
	keyFile struct {
		ID         string `yaml:"id"`
		PublicKey  Text   `yaml:"publicKey,omitempty"`
		File       string `yaml:"file,omitempty"`
		KeyOptions `yaml:",inline"`
	}
	authorityFile struct {
		ID                string `yaml:"id"`
		AuthorityOptions  `yaml:",inline"`
		RootsFile         string `yaml:"rootsFile,omitempty"`
		IntermediatesFile string `yaml:"intermediatesFile,omitempty"`
		TimestampFile     string `yaml:"timestampRootsFile,omitempty"`
	}
	keylessFile struct {
		ID              string `yaml:"id"`
		KeylessOptions  `yaml:",inline"`
		TrustedRootFile string `yaml:"trustedRootFile,omitempty"`
	}
)

// ParsePolicy reads a policy file. name is the file's, for messages. readFile hands
// over the keys that the policy names by path (relative paths are for it to
// resolve); nil refuses such keys. All problems are
// reported together.
func ParsePolicy(name string, data []byte, readFile func(path string) ([]byte, error)) (*Policy, error) {
	f, err := decodePolicy(name, data)
	if err != nil {
		return nil, err
	}
	var problems []error
	bad := func(err error, where string) {
		reason := fault.InvalidInput
		if fault.ReasonOf(err) == fault.NotFound { // a file that the policy names
			reason = fault.NotFound
		}
		problems = append(problems, fault.Errorf(reason, "parse trust policy", name+": "+where,
			fault.HintOf(err), "%w", err))
	}
	head := func(field, got, want string) {
		if got != want {
			const hint = "begin it with apiVersion: " + PolicyAPIVersion + " and kind: " + PolicyKind + "; " + wholePolicy
			bad(fault.Errorf(fault.InvalidInput, "", "", hint, "%q is not %q", got, want), field)
		}
	}
	head("apiVersion", f.APIVersion, PolicyAPIVersion)
	head("kind", f.Kind, PolicyKind)
	read := func(what, id, field, file, path string, to *Text) error {
		return readField("read "+what+" "+fmt.Sprintf("%q", id), field, file, path, to, readFile)
	}
	keys := entries(f.Keys, "keys", bad, func(e keyFile) (Key, error) {
		if err := read("public key", e.ID, "publicKey", "file", e.File, &e.PublicKey); err != nil {
			return Key{}, err
		}
		return NewKey(e.ID, e.PublicKey, e.KeyOptions)
	})
	authorities := entries(f.Certificates, "certificates", bad, func(e authorityFile) (Authority, error) {
		const what = "certificate authority"
		if err := fault.Join(
			read(what, e.ID, "roots", "rootsFile", e.RootsFile, &e.Roots),
			read(what, e.ID, "intermediates", "intermediatesFile", e.IntermediatesFile, &e.Intermediates),
			read(what, e.ID, "timestampRoots", "timestampRootsFile", e.TimestampFile, &e.TimestampRoots),
		); err != nil {
			return Authority{}, err
		}
		return NewAuthority(e.ID, e.AuthorityOptions)
	})
	keyless := entries(f.Keyless, "keyless", bad, func(e keylessFile) (Keyless, error) {
		if err := read("keyless", e.ID, "trustedRoot", "trustedRootFile", e.TrustedRootFile, &e.TrustedRoot); err != nil {
			return Keyless{}, err
		}
		return NewKeyless(e.ID, e.KeylessOptions)
	})
	revoked, err := parseDigests(f.RevokedDigests)
	if err != nil {
		bad(err, "revokedDigests")
	}
	if len(problems) > 0 {
		return nil, fault.Join(problems...)
	}
	threshold := 1
	if f.Threshold != nil {
		threshold = *f.Threshold
	}
	p, err := ComposePolicy(threshold, keys, authorities, keyless...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p.WithRevokedDigests(revoked...), nil
}

const wholePolicy = "`vdo-bundle verify --help` shows a whole policy"

func decodePolicy(name string, data []byte) (policyFile, error) {
	var f policyFile
	err := strictyaml.Decode(data, maxPolicy, &f)
	if n := len(f.Keys) + len(f.Certificates) + len(f.Keyless); err == nil && n > maxKeys { // before a file is read for each
		err = fmt.Errorf("%d keys are more than %d", n, maxKeys)
	}
	if err != nil {
		return policyFile{}, fault.Errorf(fault.InvalidInput, "parse trust policy", name,
			wholePolicy+"; its fields: apiVersion, kind, threshold, keys, certificates, keyless, revokedDigests", "%w", err)
	}
	return f, nil
}

// entries makes all entries of a field, and names each that is bad.
func entries[F, E any](all []F, field string, bad func(err error, where string), read func(F) (E, error)) []E {
	out := make([]E, len(all))
	for n, f := range all {
		var err error
		if out[n], err = read(f); err != nil {
			bad(err, fmt.Sprintf("%s[%d]", field, n))
		}
	}
	return out
}

// readField reads a field that is in a file, which another field names.
func readField(op, field, file, path string, to *Text, readFile func(string) ([]byte, error)) error {
	switch {
	case path == "":
		return nil
	case len(*to) > 0:
		return fault.Errorf("", op, "", "keep one of them", "give one of %s and %s, not both", field, file)
	case readFile == nil:
		return fault.Errorf("", op, "", "give it in "+field, "%s by file cannot be read here", field)
	}
	data, err := readFile(path)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", op, field, err)
	}
	*to = data
	return nil
}

func parseDigests(in []string) ([]image.Digest, error) {
	if len(in) > maxRevokedDigests {
		return nil, fmt.Errorf("%d digests are more than %d", len(in), maxRevokedDigests)
	}
	var problems []error
	out := make([]image.Digest, 0, len(in))
	for _, s := range in {
		d, err := image.ParseDigest(s)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		out = append(out, d)
	}
	return out, fault.Join(problems...)
}

// YAML returns the policy as a file, keys in PEM, sorted; reading it gives the same
// policy.
func (p *Policy) YAML() ([]byte, error) {
	threshold := p.threshold
	f := policyFile{APIVersion: PolicyAPIVersion, Kind: PolicyKind, Threshold: &threshold}
	for _, k := range p.keys {
		f.Keys = append(f.Keys, keyFile{ID: k.id, PublicKey: k.PEM(), KeyOptions: k.valid})
	}
	for _, a := range p.authorities {
		f.Certificates = append(f.Certificates, authorityFile{ID: a.id, AuthorityOptions: a.o})
	}
	for _, k := range p.keyless {
		f.Keyless = append(f.Keyless, keylessFile{ID: k.id, KeylessOptions: k.o})
	}
	for d := range p.revoked {
		f.RevokedDigests = append(f.RevokedDigests, d.String())
	}
	sort.Strings(f.RevokedDigests)
	return yaml.Marshal(f)
}
