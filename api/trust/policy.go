package trust

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/strictyaml"
)

const maxKeys = 32 // of one policy, with authorities and keyless entries

// Policy says whose signatures make an artifact acceptable. [ParsePolicy] and [NewPolicy] create
// it; the zero value accepts nothing.
type Policy struct {
	file    policyFile            // entries sorted by id
	revoked map[image.Digest]bool // digests
}

// NewPolicy returns a policy of keys. threshold is the required number of distinct ones.
func NewPolicy(threshold int, keys ...Key) (*Policy, error) {
	return newPolicy(policyFile{Threshold: threshold, Keys: slices.Clone(keys)})
}

// newPolicy returns a policy of prepared entries. An entry counts once, whichever of its identities signed, and a key
// once, whoever certified it.
func newPolicy(f policyFile) (*Policy, error) {
	revoked := map[string]bool{} // one entry of a public key revokes all others
	for _, k := range f.Keys {
		revoked[k.fingerprint] = revoked[k.fingerprint] || k.Revoked
	}
	err := cmp.Or(f.checkNames(), f.checkThreshold(len(revoked)+len(f.Certificates)+len(f.Keyless)))
	if err != nil {
		return nil, err
	}
	for i, k := range f.Keys {
		f.Keys[i].Revoked = revoked[k.fingerprint]
	}
	f.APIVersion, f.Kind = PolicyAPIVersion, PolicyKind
	slices.SortFunc(f.Keys, func(a, b Key) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(f.Certificates, func(a, b CA) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(f.Keyless, func(a, b Keyless) int { return strings.Compare(a.ID, b.ID) })
	return &Policy{file: f, revoked: map[image.Digest]bool{}}, nil
}

func badPolicy(hint, format string, args ...any) error {
	return fault.Errorf(fault.InvalidInput, "read trust policy", "", hint, format, args...)
}

// checkNames refuses an id or an identity in two entries. The owner of that could count twice with two certificates.
func (f *policyFile) checkNames() error {
	var errs []error
	ids, identities := map[string]bool{}, map[string]string{}
	f.each(func(_ string, e entry) {
		id := e.common().ID
		if ids[id] {
			errs = append(errs, badPolicy("give each an id of its own", "two entries have the id %q", id))
		}
		ids[id] = true
		for _, i := range e.identities() {
			if other, twice := identities[i]; twice && other != id {
				errs = append(errs, badPolicy("name it in one of the two, or make one entry of both",
					"%s is in two entries, %s and %s", i, other, id))
			}
			identities[i] = id
		}
	})
	return fault.Join(errs...)
}

func texts[T fmt.Stringer](in []T) (out []string) {
	for _, i := range in {
		out = append(out, i.String())
	}
	return out
}

// checkThreshold requires as many signers as can be.
func (f *policyFile) checkThreshold(signers int) error {
	entries, threshold := f.size(), f.Threshold
	switch {
	case entries == 0:
		return badPolicy("add the publisher's public key", "there is no key: nothing could ever be accepted")
	case entries > maxKeys:
		return badPolicy("remove keys that are out of use", "%d keys are more than %d", entries, maxKeys)
	case threshold < 1:
		return badPolicy("a threshold is 1 or more", "a threshold of %d would accept unsigned bundles", threshold)
	case threshold > signers:
		return badPolicy("lower the threshold or add keys", "a threshold of %d can never be met with %s",
			threshold, plural(signers, "distinct key"))
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
	APIVersion     string    `yaml:"apiVersion"`
	Kind           string    `yaml:"kind"`
	Threshold      int       `yaml:"threshold"` // of distinct signers; default 1
	Keys           []Key     `yaml:"keys,omitempty"`
	Certificates   []CA      `yaml:"certificates,omitempty"`
	Keyless        []Keyless `yaml:"keyless,omitempty"`
	RevokedDigests []string  `yaml:"revokedDigests,omitempty"` // never accepted, whoever signed them
}

func (f *policyFile) size() int { return len(f.Keys) + len(f.Certificates) + len(f.Keyless) }

// each visits all entries with their places in the file.
func (f *policyFile) each(do func(place string, e entry)) {
	for i := range f.Keys {
		do(fmt.Sprintf("keys[%d]", i), &f.Keys[i])
	}
	for i := range f.Certificates {
		do(fmt.Sprintf("certificates[%d]", i), &f.Certificates[i])
	}
	for i := range f.Keyless {
		do(fmt.Sprintf("keyless[%d]", i), &f.Keyless[i])
	}
}

// entry is a [Key], a [CA] or a [Keyless].
type entry interface {
	common() *Entry
	kind() kind
	files() []fileField
	prepare() error       // checks the values, and reads what verification needs
	identities() []string // each may be in one entry only
}

// kind has the words for a kind of entry in messages.
type kind struct{ name, title, hint string }

// fileField is a field whose value another field may name as a file.
type fileField struct {
	name, fileName string
	value          *Text
	path           *string
}

// Entry is what all entries have in common. Without times it is valid at all times.
type Entry struct {
	ID        string    `yaml:"id"` // in messages
	NotBefore time.Time `yaml:"notBefore,omitempty"`
	NotAfter  time.Time `yaml:"notAfter,omitempty"`
	Revoked   bool      `yaml:"revoked,omitempty"`
}

func (e *Entry) common() *Entry { return e }

var idText = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)

// valid checks the id and the times, and converts these to UTC.
func (e *Entry) valid() error {
	switch {
	case e.ID == "":
		return errors.New("it has no id")
	case !idText.MatchString(e.ID):
		return errors.New("its id is not a name of 1 to 63 letters, digits and . _ -")
	case !e.NotBefore.IsZero() && !e.NotAfter.IsZero() && !e.NotBefore.Before(e.NotAfter):
		return errors.New("notBefore is not before notAfter (swap them)")
	}
	e.NotBefore, e.NotAfter = e.NotBefore.UTC(), e.NotAfter.UTC()
	return nil
}

// invalid returns why an entry is not valid at a time, or "".
func (e *Entry) invalid(now time.Time) string {
	switch {
	case e.Revoked:
		return "revoked"
	case !e.NotBefore.IsZero() && now.Before(e.NotBefore):
		return "not valid before " + e.NotBefore.Format(time.RFC3339)
	case !e.NotAfter.IsZero() && now.After(e.NotAfter):
		return "expired " + e.NotAfter.Format(time.RFC3339)
	}
	return ""
}

// readEntry prepares an entry, with the files that it names.
func readEntry(e entry, readFile func(string) ([]byte, error)) error {
	id, kind := fmt.Sprintf("%q", e.common().ID), e.kind()
	op := "read " + kind.name
	var errs []error
	for _, f := range e.files() {
		errs = append(errs, f.read(op+" "+id, readFile))
	}
	if err := fault.Join(errs...); err != nil {
		return err
	}
	if err := e.common().valid(); err != nil {
		return fault.Errorf(fault.InvalidInput, op, id, wholePolicy, "%w", err)
	}
	if err := e.prepare(); err != nil {
		return fault.Errorf(fault.InvalidInput, op, id, cmp.Or(fault.HintOf(err), kind.hint), "%w", err)
	}
	return nil
}

func (f fileField) read(op string, readFile func(string) ([]byte, error)) error {
	switch {
	case *f.path == "":
		return nil
	case len(*f.value) > 0:
		return fault.Errorf("", op, "", "keep one of them", "give one of %s and %s, not both", f.name, f.fileName)
	case readFile == nil:
		return fault.Errorf("", op, "", "give it in "+f.name, "%s by file cannot be read here", f.name)
	}
	data, err := readFile(*f.path)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", op, f.name, err)
	}
	*f.value, *f.path = data, ""
	return nil
}

// ParsePolicy reads a policy file; messages name it. The function readFile reads keys that the policy
// names by path, and resolves relative paths; nil refuses such keys. It reports all problems together.
func ParsePolicy(name string, data []byte, readFile func(path string) ([]byte, error)) (*Policy, error) {
	f := policyFile{Threshold: 1}
	if err := policyFormat.Decode(name, data, &f); err != nil {
		return nil, err
	}
	if n := f.size(); n > maxKeys { // before the first file is read
		return nil, fault.Errorf(fault.InvalidInput, policyFormat.Op, name, policyFormat.Hint, "%d keys are more than %d", n, maxKeys)
	}
	var problems []error
	check := func(place string, err error) {
		reason := fault.InvalidInput
		if fault.ReasonOf(err) == fault.NotFound { // a file that the policy names
			reason = fault.NotFound
		}
		if err != nil {
			problems = append(problems, fault.Errorf(reason, policyFormat.Op, name+": "+place, fault.HintOf(err), "%w", err))
		}
	}
	f.each(func(place string, e entry) { check(place, readEntry(e, readFile)) })
	revoked, err := parseDigests(f.RevokedDigests)
	check("revokedDigests", err)
	if len(problems) > 0 {
		return nil, fault.Join(problems...)
	}
	p, err := newPolicy(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p.WithRevokedDigests(revoked...), nil
}

const wholePolicy = "`vdo-bundle verify --help` shows a whole policy"

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
	f := p.file
	f.RevokedDigests = texts(slices.Collect(maps.Keys(p.revoked)))
	slices.Sort(f.RevokedDigests)
	return yaml.Marshal(f)
}
