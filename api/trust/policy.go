package trust

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/strictyaml"
)

const maxKeys = 32 // of one policy, with authorities and keyless entries

// Policy says whose signatures make an artifact acceptable. [ParsePolicy] and [NewPolicy] create
// it; the zero value accepts nothing.
type Policy struct {
	threshold   int
	keys        []Key                 // as given, sorted by id
	authorities []CA                  // likewise
	keyless     []Keyless             // likewise
	revoked     map[image.Digest]bool // digests
}

// NewPolicy returns a policy of keys. threshold is the required number of distinct ones.
func NewPolicy(threshold int, keys ...Key) (*Policy, error) {
	return ComposePolicy(threshold, keys, nil)
}

// ComposePolicy returns a policy of keys and of CAs. A CA counts once, whichever of its identities
// signed, and a key once, whoever certified it.
func ComposePolicy(threshold int, keys []Key, authorities []CA, keyless ...Keyless) (*Policy, error) {
	signers, err := countSigners(keys, authorities, keyless)
	if err == nil {
		err = checkThreshold(threshold, signers, len(keys)+len(authorities)+len(keyless))
	}
	if err != nil {
		return nil, err
	}
	p := &Policy{
		threshold: threshold, keys: slices.Clone(keys), authorities: slices.Clone(authorities), keyless: slices.Clone(keyless),
		revoked: map[image.Digest]bool{},
	}
	slices.SortFunc(p.keys, func(a, b Key) int { return strings.Compare(a.id, b.id) })
	slices.SortFunc(p.authorities, func(a, b CA) int { return strings.Compare(a.id, b.id) })
	slices.SortFunc(p.keyless, func(a, b Keyless) int { return strings.Compare(a.id, b.id) })
	revoked := map[string]bool{} // one entry of a public key revokes all others
	for _, k := range keys {
		revoked[k.fingerprint] = revoked[k.fingerprint] || k.valid.Revoked
	}
	for i := range p.keys {
		p.keys[i].valid.Revoked = revoked[p.keys[i].fingerprint]
	}
	return p, nil
}

func badPolicy(hint, format string, args ...any) error {
	return fault.Errorf(fault.InvalidInput, "read trust policy", "", hint, format, args...)
}

// countSigners returns the largest possible number of signers. It refuses an identity in two
// entries, whose owner could count twice with two certificates.
func countSigners(keys []Key, authorities []CA, keyless []Keyless) (int, error) {
	distinct, ids, identities := map[string]bool{}, map[string]bool{}, map[string]string{}
	once := func(e entry, named []string) error {
		if ids[e.id] {
			return badPolicy("give each an id of its own", "two entries have the id %q", e.id)
		}
		ids[e.id] = true
		for _, i := range named {
			if other, twice := identities[i]; twice && other != e.id {
				return badPolicy("name it in one of the two, or make one entry of both", "%s is in two entries, %s and %s", i, other, e.id)
			}
			identities[i] = e.id
		}
		return nil
	}
	var errs []error
	for _, k := range keys {
		errs = append(errs, once(k.entry, nil))
		distinct[k.fingerprint] = true
	}
	for _, a := range authorities {
		errs = append(errs, once(a.entry, texts(a.o.Identities)))
	}
	for _, k := range keyless {
		errs = append(errs, once(k.entry, texts(k.o.Identities)))
	}
	if err := fault.Join(errs...); err != nil {
		return 0, err
	}
	return len(distinct) + len(authorities) + len(keyless), nil
}

func texts[T fmt.Stringer](in []T) (out []string) {
	for _, i := range in {
		out = append(out, i.String())
	}
	return out
}

func checkThreshold(threshold, signers, entries int) error {
	switch {
	case entries == 0:
		return badPolicy("add the publisher's public key", "there is no key: nothing could ever be accepted")
	case entries > maxKeys:
		return badPolicy("remove keys that are out of use", "%d keys are more than %d", entries, maxKeys)
	case threshold < 1:
		return badPolicy("a threshold is 1 or more", "a threshold of %d would accept unsigned bundles", threshold)
	case threshold > signers:
		return badPolicy("lower the threshold or add keys", "a threshold of %d can never be met with %s", threshold, plural(signers, "distinct key"))
	}
	return nil
}

// WithRevokedDigests returns the policy with additional revoked digests.
func (p *Policy) WithRevokedDigests(digests ...image.Digest) *Policy {
	out := *p
	out.revoked = maps.Clone(p.revoked)
	for _, d := range digests {
		out.revoked[d] = true
	}
	return &out
}

// Header and bounds of a policy file.
const (
	PolicyAPIVersion = "vdo.vmware.com/trust/v1"
	PolicyKind       = "TrustPolicy"

	maxRevokedDigests = 4096
)

var policyFormat = strictyaml.Format{
	Op: "parse trust policy", APIVersion: PolicyAPIVersion, Kind: PolicyKind, Limit: 1 << 20,
	Hint: wholePolicy + "; its fields: apiVersion, kind, threshold, keys, certificates, keyless, revokedDigests",
}

// policyFile is the form of the file. It has at least one entry of any kind, at most maxKeys.
type policyFile struct {
	APIVersion     string        `yaml:"apiVersion"`
	Kind           string        `yaml:"kind"`
	Threshold      *int          `yaml:"threshold,omitempty"` // of distinct signers; default 1
	Keys           []keyFile     `yaml:"keys,omitempty"`
	Certificates   []caFile      `yaml:"certificates,omitempty"`
	Keyless        []keylessFile `yaml:"keyless,omitempty"`
	RevokedDigests []string      `yaml:"revokedDigests,omitempty"` // never accepted, whoever signed them
}

// Forms of entries: the values, or the paths of files that contain them.
type (
	keyFile struct {
		ID         string `yaml:"id"`
		PublicKey  Text   `yaml:"publicKey,omitempty"`
		File       string `yaml:"file,omitempty"`
		KeyOptions `yaml:",inline"`
	}
	caFile struct {
		ID                string `yaml:"id"`
		CAOptions         `yaml:",inline"`
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

// ParsePolicy reads a policy file; messages name it. The function readFile reads keys that the policy
// names by path, and resolves relative paths; nil refuses such keys. It reports all problems together.
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
	read := func(what, id, field, file, path string, to *Text) error {
		return readField("read "+what+" "+fmt.Sprintf("%q", id), field, file, path, to, readFile)
	}
	keys := entries(f.Keys, "keys", bad, func(e keyFile) (Key, error) {
		if err := read("public key", e.ID, "publicKey", "file", e.File, &e.PublicKey); err != nil {
			return Key{}, err
		}
		return NewKey(e.ID, e.PublicKey, e.KeyOptions)
	})
	authorities := entries(f.Certificates, "certificates", bad, func(e caFile) (CA, error) {
		const what = "CA"
		if err := fault.Join(
			read(what, e.ID, "roots", "rootsFile", e.RootsFile, &e.Roots),
			read(what, e.ID, "intermediates", "intermediatesFile", e.IntermediatesFile, &e.Intermediates),
			read(what, e.ID, "timestampRoots", "timestampRootsFile", e.TimestampFile, &e.TimestampRoots),
		); err != nil {
			return CA{}, err
		}
		return NewCA(e.ID, e.CAOptions)
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
	err := policyFormat.Decode(name, data, &f)
	n := len(f.Keys) + len(f.Certificates) + len(f.Keyless)
	if n > maxKeys && err == nil { // before the first file is read
		err = fault.Errorf(fault.InvalidInput, policyFormat.Op, name, policyFormat.Hint,
			"%d keys are more than %d", n, maxKeys)
	}
	return f, err
}

// entries returns all entries of a field, and reports each invalid one by its place.
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

// readField reads a field from the file that another field names.
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

// YAML returns the policy as a file, keys in PEM, sorted. Parsing it returns the same policy.
func (p *Policy) YAML() ([]byte, error) {
	threshold := p.threshold
	f := policyFile{APIVersion: PolicyAPIVersion, Kind: PolicyKind, Threshold: &threshold}
	for _, k := range p.keys {
		f.Keys = append(f.Keys, keyFile{ID: k.id, PublicKey: k.PEM(), KeyOptions: k.valid})
	}
	for _, a := range p.authorities {
		f.Certificates = append(f.Certificates, caFile{ID: a.id, CAOptions: a.o})
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
