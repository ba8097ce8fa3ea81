package trust

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
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
	threshold int
	keys      []Key                 // as given, sorted by id
	revoked   map[image.Digest]bool // digests
}

// NewPolicy returns a policy of keys. threshold is how many distinct ones must have
// signed.
func NewPolicy(threshold int, keys ...Key) (*Policy, error) {
	bad := func(why, hint string) (*Policy, error) {
		return nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "read trust policy", Hint: hint, Err: errors.New(why),
		}
	}
	distinct, ids := map[string]bool{}, map[string]bool{}
	for _, k := range keys {
		if k.public == nil {
			return bad("a key is empty", "")
		}
		if ids[k.id] {
			return bad(fmt.Sprintf("two keys have the id %q", k.id), "give each key an id of its own")
		}
		ids[k.id], distinct[k.fingerprint] = true, true
	}
	switch {
	case len(keys) == 0:
		return bad("there is no key: nothing could ever be accepted", "add the publisher's public key")
	case len(keys) > maxKeys:
		return bad(fmt.Sprintf("%d keys are more than %d", len(keys), maxKeys), "remove keys that are out of use")
	case threshold < 1:
		return bad(fmt.Sprintf("a threshold of %d would accept what nobody signed", threshold), "a threshold is 1 or more")
	case threshold > len(distinct):
		return bad(fmt.Sprintf("a threshold of %d can never be met with %d distinct keys", threshold, len(distinct)),
			"lower the threshold or add keys")
	}
	sorted := append([]Key(nil), keys...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].id < sorted[j].id })
	return &Policy{threshold: threshold, keys: mergeRevoked(sorted), revoked: map[image.Digest]bool{}}, nil
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
	out := &Policy{threshold: p.threshold, keys: p.keys, revoked: map[image.Digest]bool{}}
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

// Threshold returns how many distinct keys must have signed.
func (p *Policy) Threshold() int { return p.threshold }

// policyFile is the form of the file; see the package comment.
type policyFile struct {
	APIVersion     string    `yaml:"apiVersion"`
	Kind           string    `yaml:"kind"`
	Threshold      *int      `yaml:"threshold,omitempty"`
	Keys           []keyFile `yaml:"keys"`
	RevokedDigests []string  `yaml:"revokedDigests,omitempty"`
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
// resolve); nil refuses such keys. All problems are reported together.
func ParsePolicy(name string, data []byte, readFile func(path string) ([]byte, error)) (*Policy, error) {
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
	p, err := NewPolicy(threshold, keys...)
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
			Hint: "see the format in `go doc api/trust`: apiVersion, kind, threshold, keys, revokedDigests",
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
	if len(f.Keys) > maxKeys { // before a file is read for each
		return bad(fmt.Errorf("%d keys are more than %d", len(f.Keys), maxKeys))
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
	for d := range p.revoked {
		f.RevokedDigests = append(f.RevokedDigests, d.String())
	}
	sort.Strings(f.RevokedDigests)
	return yaml.Marshal(f)
}
