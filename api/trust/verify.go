package trust

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Verify checks that enough distinct signers of the policy have signed subject: keys,
// or holders of certificates. All of the evidence is looked at. The error is a fault with reason Untrusted that says
// what was found.
func (p *Policy) Verify(subject image.Digest, evidence []Evidence, now time.Time) (Verified, error) {
	if err := p.admits(subject); err != nil {
		return Verified{}, err
	}
	if len(evidence) > maxEvidence {
		return Verified{}, untrusted(subject, fmt.Errorf("%d signatures are more than are looked at (%d)", len(evidence), maxEvidence),
			"remove signatures that are out of use from the repository")
	}
	t := newTally(subject)
	for _, e := range evidence {
		t.look(p, e, now)
	}
	return t.verdict(p, now)
}

// ErrRevoked is why a digest is untrusted, whoever signed it.
var ErrRevoked = errors.New("the trust policy has revoked this digest")

// admits refuses a subject before any signature is looked at.
func (p *Policy) admits(subject image.Digest) error {
	switch {
	case p == nil || p.threshold < 1 || len(p.keys)+len(p.authorities)+len(p.keyless) == 0:
		return untrusted(subject, errors.New("the trust policy is empty: it accepts nothing"), "add the publisher's public key to it")
	case subject.IsZero():
		return untrusted(subject, errors.New("there is no digest to verify"), "")
	case p.revoked[subject]:
		return untrusted(subject, ErrRevoked, "use a newer bundle")
	}
	return nil
}

func untrusted(subject image.Digest, why error, hint string) error {
	return fault.Errorf(fault.Untrusted, "verify", subject.String(), hint, "%w", why)
}

// tally is what a look at the evidence found.
type tally struct {
	subject image.Digest
	total   int
	found   map[string]int // what was found that does not count -> how often
	counts  count
	invalid bool // a signer of the policy signed, but does not count (any more)
}

func newTally(subject image.Digest) *tally {
	return &tally{subject: subject, found: map[string]int{}, counts: count{}}
}

// add adds what another look found.
func (t *tally) add(other *tally) {
	t.total += other.total
	for what, n := range other.found {
		t.found[what] += n
	}
	for print, ids := range other.counts {
		for _, id := range ids {
			t.counts.add(print, id)
		}
	}
	t.invalid = t.invalid || other.invalid
}

// look looks at one signature.
func (t *tally) look(p *Policy, e Evidence, now time.Time) {
	t.total++
	switch {
	case e.problem != "":
		t.found[e.problem]++
	case len(e.subjects) == 0:
		t.found["damaged: it claims nothing"]++
	case !slices.Contains(e.subjects, t.subject):
		t.found["of another digest, "+e.subjects[0].String()]++
	default:
		t.addSigned(p, e, now)
	}
}

// addSigned looks for the signers of a message that binds the subject.
func (t *tally) addSigned(p *Policy, e Evidence, now time.Time) {
	known := t.addKeys(p, e, now)
	wanted := len(p.authorities)+len(p.keyless) > 0
	if e.holder != nil && wanted {
		known = t.addCertified(p, e, now) || known
	}
	switch {
	case known:
	case e.doubt != "":
		t.found[e.doubt]++
	case e.holder != nil && wanted: // addCertified has noted why
	default:
		t.found["by none of these keys"]++
	}
}

// addKeys counts the policy's keys that made the signature.
func (t *tally) addKeys(p *Policy, e Evidence, now time.Time) (known bool) {
	for _, k := range p.keys {
		if !e.candidate.madeBy(k.verifiers, t.subject) {
			continue
		}
		known = true
		if why := k.valid.invalid(now); why != "" {
			t.discount("by the key " + k.id + ", " + why)
			continue
		}
		t.counts.add(k.fingerprint, k.id)
	}
	return known
}

// addCertified counts the authorities that have certified who made the signature. A
// revoked key does not come back with a certificate.
func (t *tally) addCertified(p *Policy, e Evidence, now time.Time) (known bool) {
	holder, err := e.holder.key()
	if err != nil || !e.candidate.madeBy(holder.verifiers, t.subject) {
		t.found["by another key than that of its certificate"]++
		return false
	}
	if slices.ContainsFunc(p.keys, func(k Key) bool { return k.valid.Revoked && k.fingerprint == holder.fingerprint }) {
		t.discount("by a certificate whose key is revoked")
		return true
	}
	other := ""
	note := func(id string, why *refusal) {
		switch {
		case why == nil:
			known = true
			t.counts.add(holder.fingerprint, id)
		case why.known:
			known = true
			t.discount(why.why)
		default:
			other = why.why
		}
	}
	for _, a := range p.authorities {
		note(a.id, a.accepts(e.holder, e.stamped, now))
	}
	for _, k := range p.keyless {
		note(k.id, k.accepts(e, t.subject, now))
	}
	if !known {
		t.found[other]++
	}
	return known
}

func (t *tally) discount(why string) {
	t.found[why]++
	t.invalid = true
}

// count is which public keys (by fingerprint) signed under which ids of the policy.
// Several entries of one key count once, and so do several keys that one authority
// certifies: what counts is how many keys and ids can be paired off.
type count map[string][]string

func (c count) add(print, id string) {
	if !slices.Contains(c[print], id) {
		c[print] = append(c[print], id)
	}
}

// distinct returns the ids of a largest pairing, sorted.
func (c count) distinct() []string {
	taken := map[string]string{} // id -> fingerprint
	for _, print := range slices.Sorted(maps.Keys(c)) {
		c.place(print, taken, map[string]bool{})
	}
	return slices.Sorted(maps.Keys(taken))
}

// place finds an id for a key, moving others to ids that they also have.
func (c count) place(print string, taken map[string]string, tried map[string]bool) bool {
	for _, id := range c[print] {
		if tried[id] {
			continue
		}
		tried[id] = true
		if other, ok := taken[id]; !ok || c.place(other, taken, tried) {
			taken[id] = print
			return true
		}
	}
	return false
}

func (t *tally) verdict(p *Policy, now time.Time) (Verified, error) {
	ids := t.counts.distinct()
	if len(ids) >= p.threshold {
		return Verified{subject: t.subject, keys: ids}, nil
	}
	return Verified{}, untrusted(t.subject, errors.New(t.explain(p, ids, now)), t.hint())
}

// explain says what was found where it is not enough.
func (t *tally) explain(p *Policy, ids []string, now time.Time) string {
	var text strings.Builder
	switch {
	case t.total == 0:
		text.WriteString("it has no signature")
	case len(ids) == 0:
		fmt.Fprintf(&text, "%s, none by a key that counts", plural(t.total, "signature"))
	default:
		fmt.Fprintf(&text, "signed by %s (%s) where the policy wants %d", plural(len(ids), "distinct key"),
			strings.Join(ids, ", "), p.threshold)
	}
	fmt.Fprintf(&text, "; keys tried: %s", strings.Join(p.describe(now), ", "))
	for _, f := range t.findings() {
		text.WriteString("; " + f)
	}
	return text.String()
}

// describe lists the keys and authorities of the policy, with why they do not count.
func (p *Policy) describe(now time.Time) []string {
	out := make([]string, 0, len(p.keys)+len(p.authorities))
	add := func(kind string, e entry) {
		name := kind + e.id
		if why := e.valid.invalid(now); why != "" {
			name += " (" + why + ")"
		}
		out = append(out, name)
	}
	for _, k := range p.keys {
		add("", k.entry)
	}
	for _, a := range p.authorities {
		add("certificates of ", a.entry)
	}
	for _, k := range p.keyless {
		add("keyless ", k.entry)
	}
	return out
}

const maxFindings = 8 // kinds of finding that a message lists

func (t *tally) findings() []string {
	lines := make([]string, 0, len(t.found))
	for what, n := range t.found {
		lines = append(lines, fmt.Sprintf("%d %s", n, what))
	}
	sort.Strings(lines)
	if more := len(lines) - maxFindings; more > 0 {
		lines = append(lines[:maxFindings], fmt.Sprintf("and %s more", plural(more, "kind")))
	}
	return lines
}

func (t *tally) hint() string {
	switch {
	case t.total == 0:
		return "sign it with `vdo-bundle sign` or `cosign sign --key`, and copy its signature along (tag " + SignatureTag(t.subject) + ")"
	case t.invalid:
		return "have it signed with a key or certificate that is valid"
	case len(t.counts) > 0:
		return "have it signed with further keys of the policy"
	}
	return "if you trust who signed it, add their public key to those that you accept; else refuse the bundle"
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
