package trust

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Verify checks that enough distinct keys of the policy have signed subject. All of
// the evidence is looked at. The error is a fault with reason Untrusted that says
// what was found.
func (p *Policy) Verify(subject image.Digest, evidence []Evidence, now time.Time) (Verified, error) {
	if err := p.admits(subject); err != nil {
		return Verified{}, err
	}
	if len(evidence) > maxEvidence {
		return Verified{}, untrusted(subject, fmt.Errorf("%d signatures are more than are looked at (%d)", len(evidence), maxEvidence),
			"remove signatures that are out of use from the repository")
	}
	t := tally{subject: subject, found: map[string]int{}, counted: map[string]string{}}
	for _, e := range evidence {
		t.add(p, e, now)
	}
	return t.verdict(p, now)
}

// admits refuses a subject before any signature is looked at.
func (p *Policy) admits(subject image.Digest) error {
	switch {
	case p == nil || p.threshold < 1 || len(p.keys) == 0:
		return untrusted(subject, errors.New("the trust policy is empty: it accepts nothing"), "add the publisher's public key to it")
	case subject.IsZero():
		return untrusted(subject, errors.New("there is no digest to verify"), "")
	case p.revoked[subject]:
		return untrusted(subject, errors.New("the trust policy has revoked this digest"), "use a newer bundle")
	}
	return nil
}

func untrusted(subject image.Digest, why error, hint string) error {
	return &fault.Error{Reason: fault.Untrusted, Op: "verify", Subject: subject.String(), Hint: hint, Err: why}
}

// tally is what a look at the evidence found.
type tally struct {
	subject image.Digest
	total   int
	found   map[string]int    // what was found that does not count -> how often
	counted map[string]string // fingerprint -> id of keys whose signatures count
	lapsed  bool              // a key of the policy signed, but does not count (any more)
}

func (t *tally) add(p *Policy, e Evidence, now time.Time) {
	t.total++
	switch {
	case e.problem != "":
		t.found[e.problem]++
	case len(e.subjects) == 0:
		t.found["damaged: it claims nothing"]++
	case !slices.Contains(e.subjects, t.subject):
		t.found["of another digest, "+e.subjects[0].String()]++
	default:
		t.addSigned(p, e.message, e.signatures, now)
	}
}

// addSigned looks for the keys that made the signatures over a message that binds
// the subject.
func (t *tally) addSigned(p *Policy, message []byte, signatures [][]byte, now time.Time) {
	known := false
	for _, k := range p.keys {
		if !slices.ContainsFunc(signatures, func(s []byte) bool { return k.signed(message, s) }) {
			continue
		}
		known = true
		if why := k.standing(now); why != "" {
			t.found["by the key "+k.id+", "+why]++
			t.lapsed = true
			continue
		}
		if t.counted[k.fingerprint] == "" { // several entries or signatures of one key count once
			t.counted[k.fingerprint] = k.id
		}
	}
	if !known {
		t.found["by no key of the policy"]++
	}
}

func (t *tally) keys() []string {
	ids := make([]string, 0, len(t.counted))
	for _, id := range t.counted {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	return ids
}

func (t *tally) verdict(p *Policy, now time.Time) (Verified, error) {
	if len(t.counted) >= p.threshold {
		return Verified{subject: t.subject, keys: t.keys(), at: now}, nil
	}
	return Verified{}, untrusted(t.subject, errors.New(t.explain(p, now)), t.hint())
}

// explain says what was found where it is not enough.
func (t *tally) explain(p *Policy, now time.Time) string {
	var text strings.Builder
	switch {
	case t.total == 0:
		text.WriteString("it has no signature")
	case len(t.counted) == 0:
		fmt.Fprintf(&text, "%s, none by a key of the policy that counts", plural(t.total, "signature"))
	default:
		fmt.Fprintf(&text, "signed by %s (%s) where the policy wants %d", plural(len(t.counted), "distinct key"),
			strings.Join(t.keys(), ", "), p.threshold)
	}
	fmt.Fprintf(&text, "; keys tried: %s", strings.Join(p.describeKeys(now), ", "))
	for _, line := range t.findings() {
		text.WriteString("; " + line)
	}
	return text.String()
}

func (p *Policy) describeKeys(now time.Time) []string {
	out := make([]string, 0, len(p.keys))
	for _, k := range p.keys {
		name := k.id
		if why := k.standing(now); why != "" {
			name += " (" + why + ")"
		}
		out = append(out, name)
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
		return "sign it with `vdo-bundle sign` or `cosign sign --key`, and bring its signature along (tag " + SignatureTag(t.subject) + ")"
	case t.lapsed:
		return "have it signed with a key that is in force"
	case len(t.counted) > 0:
		return "have it signed with further keys of the policy"
	}
	return "add the public key of who signed it to the trust policy if you trust them, else refuse the bundle"
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// VerifyBlob checks a file against its signature file: base64 as cosign sign-blob
// writes it, several signatures one a line. The subject of the result is the
// digest of data.
func (p *Policy) VerifyBlob(data, signatures []byte, now time.Time) (Verified, error) {
	subject := image.DigestOf(data)
	if err := p.admits(subject); err != nil {
		return Verified{}, err
	}
	lines := bytes.Fields(signatures)
	if len(lines) > maxSignatures {
		return Verified{}, untrusted(subject, fmt.Errorf("%d signatures are more than %d", len(lines), maxSignatures),
			"give the file that holds the signatures")
	}
	t := tally{subject: subject, found: map[string]int{}, counted: map[string]string{}}
	for _, line := range lines {
		t.total++
		raw, err := decodeSignature(string(line))
		if err != nil {
			t.found["damaged: it "+err.Error()]++
			continue
		}
		t.addSigned(p, data, [][]byte{raw}, now)
	}
	return t.verdict(p, now)
}
