package trust

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

const maxKeys = 32 // of one policy, with authorities and keyless entries

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
// counts once, whichever of its identities signed, and a key once, whoever has
// certified it.
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
	return fault.Errorf(fault.InvalidInput, "read trust policy", "", hint, format, args...)
}

// countSigners returns how many signers can count at most. That an identity is in
// two entries is refused: who has it could count twice with two certificates.
func countSigners(keys []Key, authorities []Authority, keyless []Keyless) (int, error) {
	distinct, ids, identities := map[string]bool{}, map[string]bool{}, map[string]string{}
	once := func(e entry, isEmpty bool, named []string) error {
		switch {
		case isEmpty:
			return badPolicy("", "an entry is empty")
		case ids[e.id]:
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
		errs = append(errs, once(k.entry, k.public == nil, nil))
		distinct[k.fingerprint] = true
	}
	for _, a := range authorities {
		errs = append(errs, once(a.entry, a.rootPool == nil, texts(a.o.Identities)))
	}
	for _, k := range keyless {
		errs = append(errs, once(k.entry, k.material == nil, texts(k.o.Identities)))
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
		revoked[k.fingerprint] = revoked[k.fingerprint] || k.valid.Revoked
	}
	for i := range keys {
		keys[i].valid.Revoked = revoked[keys[i].fingerprint]
	}
	return keys
}

// WithRevokedDigests returns the policy with digests that it never accepts added.
func (p *Policy) WithRevokedDigests(digests ...image.Digest) *Policy {
	out := *p
	out.revoked = maps.Clone(p.revoked)
	for _, d := range digests {
		out.revoked[d] = true
	}
	return &out
}

// Keys returns the keys, sorted by id.
func (p *Policy) Keys() []Key { return slices.Clone(p.keys) }
