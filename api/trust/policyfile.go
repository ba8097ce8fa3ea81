package trust

import (
	"errors"
	"fmt"
	"sort"
	"time"

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
// resolve); nil refuses such keys. All problems are
// reported together.
func ParsePolicy(name string, data []byte, readFile func(path string) ([]byte, error)) (*Policy, error) {
	f, err := decodePolicy(name, data)
	if err != nil {
		return nil, err
	}
	var problems []error
	bad := func(err error, where string) {
		problems = append(problems, &fault.Error{
			Reason: reasonOf(err), Op: "parse trust policy", Subject: name + ": " + where, Err: err, Hint: fault.HintOf(err),
		})
	}
	head := func(err error, field string) {
		bad(&fault.Error{Reason: fault.InvalidInput, Err: err, Hint: "begin it with apiVersion: " + PolicyAPIVersion + " and kind: " + PolicyKind + "; " + wholePolicy}, field)
	}
	if f.APIVersion != PolicyAPIVersion {
		head(fmt.Errorf("%q is not %q", f.APIVersion, PolicyAPIVersion), "apiVersion")
	}
	if f.Kind != PolicyKind {
		head(fmt.Errorf("%q is not %q", f.Kind, PolicyKind), "kind")
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
		k, err := kf.keyless(readFile)
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

// reasonOf is InvalidInput, but for a file that the policy names and that is not there.
func reasonOf(err error) fault.Reason {
	if fault.ReasonOf(err) == fault.NotFound {
		return fault.NotFound
	}
	return fault.InvalidInput
}

const wholePolicy = "`vdo-bundle verify --help` shows a whole policy"

func decodePolicy(name string, data []byte) (policyFile, error) {
	var f policyFile
	err := strictyaml.Decode(data, maxPolicy, &f)
	if n := len(f.Keys) + len(f.Certificates) + len(f.Keyless); err == nil && n > maxKeys { // before a file is read for each
		err = fmt.Errorf("%d keys are more than %d", n, maxKeys)
	}
	if err != nil {
		return policyFile{}, &fault.Error{
			Reason: fault.InvalidInput, Op: "parse trust policy", Subject: name, Err: err,
			Hint: wholePolicy + "; its fields: apiVersion, kind, threshold, keys, certificates, keyless, revokedDigests",
		}
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
		ID: a.id, Roots: string(pemOf(a.roots...)), Intermediates: string(pemOf(a.intermediates...)), Identities: a.identities,
		ExtendedKeyUsage: a.usage, TimestampRoots: string(pemOf(a.timestampRoots...)), Revoked: a.revoked,
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
