package trust

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// The header of a policy file.
const (
	PolicyAPIVersion = "vdo.vmware.com/trust/v1"
	PolicyKind       = "TrustPolicy"

	maxPolicy         = 1 << 20
	maxKeys           = 32
	maxRevokedDigests = 4096
)

// Policy says whose signatures make something acceptable. It is made by
// [ParsePolicy] and [NewPolicy]; the zero value accepts nothing.
type Policy struct {
	threshold   int
	keys        []Key                 // as given, sorted by id
	authorities []Authority           // likewise
	keyless     []Keyless             // likewise
	revoked     map[image.Digest]bool // digests
}

// NewPolicy returns a policy of keys. threshold is how many distinct ones must have
// signed.
func NewPolicy(threshold int, keys ...Key) (*Policy, error) {
	return ComposePolicy(threshold, keys, nil)
}

// ComposePolicy returns a policy of keys and of certificate authorities. An authority
// counts once, whichever of its identities signed, and a key once, whoever vouches
// for it.
func ComposePolicy(threshold int, keys []Key, authorities []Authority, keyless ...Keyless) (*Policy, error) {
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
	slices.SortFunc(p.keyless, func(a, b Keyless) int { return strings.Compare(a.id, b.id) })
	slices.SortFunc(p.keys, func(a, b Key) int { return strings.Compare(a.id, b.id) })
	slices.SortFunc(p.authorities, func(a, b Authority) int { return strings.Compare(a.id, b.id) })
	p.keys = mergeRevoked(p.keys)
	return p, nil
}

func badPolicy(hint, format string, args ...any) error {
	return &fault.Error{
		Reason: fault.InvalidInput, Op: "read trust policy", Hint: hint, Err: fmt.Errorf(format, args...),
	}
}

// countSigners returns how many signers can count at most. That an identity is in
// two entries is refused: who has it could count twice with two certificates.
func countSigners(keys []Key, authorities []Authority, keyless []Keyless) (int, error) {
	distinct, ids, identities := map[string]bool{}, map[string]bool{}, map[string]string{}
	once := func(id string, named []string) error {
		if ids[id] {
			return badPolicy("give each an id of its own", "two entries have the id %q", id)
		}
		ids[id] = true
		for _, i := range named {
			if other, twice := identities[i]; twice {
				return badPolicy("put both authorities' roots into one entry", "%s is in two entries, %s and %s", i, other, id)
			}
			identities[i] = id
		}
		return nil
	}
	for _, k := range keys {
		if k.public == nil {
			return 0, badPolicy("", "a key is empty")
		}
		if ids[k.id] {
			return 0, badPolicy("give each key an id of its own", "two keys have the id %q", k.id)
		}
		ids[k.id], distinct[k.fingerprint] = true, true
	}
	for _, a := range authorities {
		if len(a.roots) == 0 {
			return 0, badPolicy("", "a certificate authority is empty")
		}
		if err := once(a.id, texts(a.identities)); err != nil {
			return 0, err
		}
	}
	for _, k := range keyless {
		if k.sigstore == nil {
			return 0, badPolicy("", "a keyless entry is empty")
		}
		if err := once(k.id, texts(k.identities)); err != nil {
			return 0, err
		}
	}
	return len(distinct) + len(authorities) + len(keyless), nil
}

// texts writes identities, each once.
func texts[T fmt.Stringer](in []T) []string {
	out := make([]string, 0, len(in))
	for _, i := range in {
		if !slices.Contains(out, i.String()) {
			out = append(out, i.String())
		}
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
		return badPolicy("a threshold is 1 or more", "a threshold of %d would accept what nobody signed", threshold)
	case threshold > signers:
		return badPolicy("lower the threshold or add keys", "a threshold of %d can never be met with %d distinct keys", threshold, signers)
	}
	return nil
}

// mergeRevoked revokes every entry of a public key that one entry revokes.
func mergeRevoked(keys []Key) []Key {
	revoked := map[string]bool{}
	for _, k := range keys {
		revoked[k.fingerprint] = revoked[k.fingerprint] || k.revoked
	}
	for i := range keys {
		keys[i].revoked = revoked[keys[i].fingerprint]
	}
	return keys
}

// WithRevokedDigests returns the policy with digests that it never accepts added.
func (p *Policy) WithRevokedDigests(digests ...image.Digest) *Policy {
	out := &Policy{threshold: p.threshold, keys: p.keys, authorities: p.authorities, keyless: p.keyless, revoked: map[image.Digest]bool{}}
	for d := range p.revoked {
		out.revoked[d] = true
	}
	for _, d := range digests {
		out.revoked[d] = true
	}
	return out
}

// Keys returns the keys, sorted by id.
func (p *Policy) Keys() []Key { return append([]Key(nil), p.keys...) }

// Authorities returns the certificate authorities, sorted by id.
func (p *Policy) Authorities() []Authority { return slices.Clone(p.authorities) }

// Threshold returns how many distinct keys must have signed.
func (p *Policy) Threshold() int { return p.threshold }

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

type authorityFile struct {
	ID                string     `yaml:"id"`
	Roots             string     `yaml:"roots,omitempty"`
	RootsFile         string     `yaml:"rootsFile,omitempty"`
	Intermediates     string     `yaml:"intermediates,omitempty"`
	IntermediatesFile string     `yaml:"intermediatesFile,omitempty"`
	Identities        []Identity `yaml:"identities"`
	ExtendedKeyUsage  string     `yaml:"extendedKeyUsage,omitempty"`
	TimestampRoots    string     `yaml:"timestampRoots,omitempty"`
	TimestampFile     string     `yaml:"timestampRootsFile,omitempty"`
	RevokedSerials    []string   `yaml:"revokedSerials,omitempty"`
	NotBefore         *time.Time `yaml:"notBefore,omitempty"`
	NotAfter          *time.Time `yaml:"notAfter,omitempty"`
	Revoked           bool       `yaml:"revoked,omitempty"`
}

type keyFile struct {
	ID        string     `yaml:"id"`
	PublicKey string     `yaml:"publicKey,omitempty"`
	File      string     `yaml:"file,omitempty"`
	NotBefore *time.Time `yaml:"notBefore,omitempty"`
	NotAfter  *time.Time `yaml:"notAfter,omitempty"`
	Revoked   bool       `yaml:"revoked,omitempty"`
}

// ParsePolicy reads a policy file. name is the file's, for messages. readFile hands
// over the keys that the policy names by path (relative paths are for it to
// resolve); nil refuses such keys. Keyless entries want [WithSigstore]. All problems
// are reported together.
func ParsePolicy(name string, data []byte, readFile func(path string) ([]byte, error), options ...PolicyOption) (*Policy, error) {
	reader := policyReader{readFile: readFile}
	for _, o := range options {
		o(&reader)
	}
	f, err := decodePolicy(name, data)
	if err != nil {
		return nil, err
	}
	var problems []error
	bad := func(err error, where string) {
		problems = append(problems, &fault.Error{
			Reason: fault.InvalidInput, Op: "parse trust policy", Subject: name + ": " + where, Err: err, Hint: fault.HintOf(err),
		})
	}
	if f.APIVersion != PolicyAPIVersion {
		bad(fmt.Errorf("%q is not %q", f.APIVersion, PolicyAPIVersion), "apiVersion")
	}
	if f.Kind != PolicyKind {
		bad(fmt.Errorf("%q is not %q", f.Kind, PolicyKind), "kind")
	}
	keys := make([]Key, 0, len(f.Keys))
	for i, kf := range f.Keys {
		k, err := kf.key(readFile)
		if err != nil {
			bad(err, fmt.Sprintf("keys[%d]", i))
		}
		keys = append(keys, k)
	}
	authorities := make([]Authority, 0, len(f.Certificates))
	for i, af := range f.Certificates {
		a, err := af.authority(readFile)
		if err != nil {
			bad(err, fmt.Sprintf("certificates[%d]", i))
		}
		authorities = append(authorities, a)
	}
	keyless := make([]Keyless, 0, len(f.Keyless))
	for i, kf := range f.Keyless {
		k, err := kf.keyless(reader)
		if err != nil {
			bad(err, fmt.Sprintf("keyless[%d]", i))
		}
		keyless = append(keyless, k)
	}
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

var yamlType = regexp.MustCompile(`field (\S+) not found in type trust\.\w+`)

func decodePolicy(name string, data []byte) (policyFile, error) {
	var f policyFile
	bad := func(err error) (policyFile, error) {
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		text = strings.Join(strings.Fields(strings.TrimPrefix(text, "unmarshal errors:")), " ")
		return policyFile{}, &fault.Error{
			Reason: fault.InvalidInput, Op: "parse trust policy", Subject: name,
			Hint: "see the format in `go doc api/trust`: apiVersion, kind, threshold, keys, certificates, keyless, revokedDigests",
			Err:  errors.New(yamlType.ReplaceAllString(text, "the key $1 is not known")),
		}
	}
	if len(data) > maxPolicy {
		return bad(fmt.Errorf("longer than %d bytes", maxPolicy))
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	switch err := dec.Decode(&f); {
	case errors.Is(err, io.EOF):
		return bad(errors.New("it is empty"))
	case err != nil:
		return bad(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return bad(errors.New("there is something after the first YAML document"))
	}
	if n := len(f.Keys) + len(f.Certificates) + len(f.Keyless); n > maxKeys { // before a file is read for each
		return bad(fmt.Errorf("%d keys are more than %d", n, maxKeys))
	}
	return f, nil
}

func (f keyFile) key(readFile func(string) ([]byte, error)) (Key, error) {
	data := []byte(f.PublicKey)
	switch {
	case (f.PublicKey == "") == (f.File == ""):
		return Key{}, &fault.Error{
			Op: "read public key", Subject: fmt.Sprintf("%q", f.ID), Hint: "keep one of them",
			Err: errors.New("give exactly one of publicKey and file"),
		}
	case f.File != "" && readFile == nil:
		return Key{}, &fault.Error{
			Op: "read public key", Subject: fmt.Sprintf("%q", f.ID), Hint: "give it in publicKey",
			Err: errors.New("a key by file cannot be read here"),
		}
	case f.File != "":
		var err error
		if data, err = readFile(f.File); err != nil {
			return Key{}, fmt.Errorf("read public key %q: %w", f.ID, err)
		}
	}
	o := KeyOptions{Revoked: f.Revoked}
	if f.NotBefore != nil {
		o.NotBefore = *f.NotBefore
	}
	if f.NotAfter != nil {
		o.NotAfter = *f.NotAfter
	}
	return NewKey(f.ID, data, o)
}

func (f authorityFile) authority(readFile func(string) ([]byte, error)) (Authority, error) {
	var problems []error
	load := func(field, text, path string) []byte {
		data, err := loadField("certificate authority", f.ID, field, text, path, readFile)
		if err != nil {
			problems = append(problems, err)
		}
		return data
	}
	o := AuthorityOptions{
		Roots:            load("roots", f.Roots, f.RootsFile),
		Intermediates:    load("intermediates", f.Intermediates, f.IntermediatesFile),
		TimestampRoots:   load("timestampRoots", f.TimestampRoots, f.TimestampFile),
		ExtendedKeyUsage: f.ExtendedKeyUsage, Identities: f.Identities, RevokedSerials: f.RevokedSerials, Revoked: f.Revoked,
	}
	if len(problems) > 0 {
		return Authority{}, fault.Join(problems...)
	}
	if f.NotBefore != nil {
		o.NotBefore = *f.NotBefore
	}
	if f.NotAfter != nil {
		o.NotAfter = *f.NotAfter
	}
	return NewAuthority(f.ID, o)
}

// loadField returns a field that is given in the policy, or in a file that it names.
func loadField(what, id, field, text, path string, readFile func(string) ([]byte, error)) ([]byte, error) {
	bad := func(why, hint string) ([]byte, error) {
		return nil, &fault.Error{
			Op: "read " + what, Subject: fmt.Sprintf("%q", id), Hint: hint, Err: errors.New(why),
		}
	}
	switch {
	case path == "":
		return []byte(text), nil
	case text != "":
		return bad("give one of "+field+" and "+field+"File, not both", "keep one of them")
	case readFile == nil:
		return bad(field+" by file cannot be read here", "give them in "+field)
	}
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("read %s %q: %s: %w", what, id, field, err)
	}
	return data, nil
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
		kf := keyFile{ID: k.id, PublicKey: string(k.PEM()), Revoked: k.revoked}
		if !k.notBefore.IsZero() {
			kf.NotBefore = &k.notBefore
		}
		if !k.notAfter.IsZero() {
			kf.NotAfter = &k.notAfter
		}
		f.Keys = append(f.Keys, kf)
	}
	for _, a := range p.authorities {
		f.Certificates = append(f.Certificates, a.file())
	}
	for _, k := range p.keyless {
		f.Keyless = append(f.Keyless, k.file())
	}
	for d := range p.revoked {
		f.RevokedDigests = append(f.RevokedDigests, d.String())
	}
	sort.Strings(f.RevokedDigests)
	return yaml.Marshal(f)
}

func (a Authority) file() authorityFile {
	f := authorityFile{
		ID: a.id, Roots: string(pemOf(a.roots)), Intermediates: string(pemOf(a.intermediates)), Identities: a.identities,
		ExtendedKeyUsage: a.usage, TimestampRoots: string(pemOf(a.timestampRoots)), Revoked: a.revoked,
	}
	for _, n := range a.revokedSerials {
		f.RevokedSerials = append(f.RevokedSerials, n.Text(16))
	}
	if !a.notBefore.IsZero() {
		f.NotBefore = &a.notBefore
	}
	if !a.notAfter.IsZero() {
		f.NotAfter = &a.notAfter
	}
	return f
}
