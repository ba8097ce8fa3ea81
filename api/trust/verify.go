package trust

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/options"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Verify checks that enough distinct signers of the policy, keys or holders of certificates, have
// signed subject. It examines all evidence. The error is Untrusted and describes the evidence.
func (p *Policy) Verify(subject image.Digest, evidence []Evidence, now time.Time) (Verified, error) {
	if err := p.Admits(subject); err != nil {
		return Verified{}, err
	}
	if len(evidence) > maxEvidence {
		return Verified{}, untrusted(subject, fmt.Errorf("%d signatures are more than are checked (%d)", len(evidence), maxEvidence),
			"remove signatures that are out of use from the repository")
	}
	t := evaluation{policy: p, subject: subject, now: now, signatures: map[string]int{}, counts: count{}}
	for _, e := range evidence {
		t.look(e)
	}
	v := Verified{t.counts.distinct()}
	if len(v.signers) >= p.file.Threshold {
		return v, nil
	}
	return Verified{}, untrusted(subject, errors.New(t.explain(len(evidence), v.Keys())), t.hint(len(evidence)))
}

// ErrRevoked is why a revoked digest is untrusted, whoever signed it.
var ErrRevoked = errors.New("the trust policy has revoked this digest")

// Admits refuses a revoked subject, whoever signed it.
func (p *Policy) Admits(subject image.Digest) error {
	switch {
	case p == nil || p.file.Threshold < 1 || p.file.size() == 0:
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

// evaluation is the result of examining the evidence.
type evaluation struct {
	policy     *Policy
	subject    image.Digest
	now        time.Time
	signatures map[string]int // why signatures are not valid -> how often
	counts     count
}

// look examines one signature.
func (t *evaluation) look(e Evidence) {
	switch {
	case e.problem != "":
		t.signatures[e.problem]++
	case len(e.subjects) == 0:
		t.signatures["damaged: it claims nothing"]++
	case !slices.Contains(e.subjects, t.subject):
		t.signatures["of another digest, "+e.subjects[0].String()]++
	default:
		known := t.addKeys(e)
		if e.holder != nil && len(t.policy.file.Certificates)+len(t.policy.file.Keyless) > 0 {
			t.addCertified(e)
			known = known || e.doubt == ""
		}
		if !known {
			t.signatures[cmp.Or(e.doubt, "by none of these keys")]++
		}
	}
}

// addKeys counts the policy's keys that made the signature.
func (t *evaluation) addKeys(e Evidence) (known bool) {
	for _, k := range t.policy.file.Keys {
		if !e.madeBy(k.verifiers) {
			continue
		}
		known = true
		if why := k.invalid(t.now); why != "" {
			t.signatures["by the key "+k.ID+", "+why]++
			continue
		}
		t.counts.add(k.fingerprint, CountedSigner{ID: k.ID})
	}
	return known
}

// addCertified counts the CAs that certified the signer, or records why one does not. A certificate
// does not restore a revoked key.
func (t *evaluation) addCertified(e Evidence) {
	holder, err := keyOf("", e.holder.leaf.PublicKey)
	if err != nil || !e.madeBy(holder.verifiers) {
		t.signatures["by another key than that of its certificate"]++
		return
	}
	isRevoked := func(k Key) bool { return k.Revoked && k.fingerprint == holder.fingerprint }
	if slices.ContainsFunc(t.policy.file.Keys, isRevoked) {
		t.signatures["by a certificate whose key is revoked"]++
		return
	}
	note := func(s CountedSigner, why string) {
		if why == "" {
			s.Expires = &e.holder.leaf.NotAfter
			t.counts.add(holder.fingerprint, s)
		} else {
			t.signatures["by a certificate "+why]++
		}
	}
	for _, a := range t.policy.file.Certificates {
		note(a.signer(e.holder, e.stamped, t.now))
	}
	for _, k := range t.policy.file.Keyless {
		note(k.signer(e, t.subject, t.now))
	}
}

// count maps the public keys (by fingerprint) that signed to entries of the policy. Several entries of one
// key count once, and so do several keys with one CA. So the largest pairing of keys and ids counts.
type count map[string][]CountedSigner

// add keeps the first signature of a key for an id, or the earliest with a time stamp.
func (c count) add(print string, s CountedSigner) {
	n := slices.IndexFunc(c[print], func(o CountedSigner) bool { return o.ID == s.ID })
	if n < 0 {
		c[print] = append(c[print], s)
	} else if was := c[print][n].Stamped; s.Stamped != nil && (was == nil || s.Stamped.Before(*was)) {
		c[print][n] = s
	}
}

// distinct returns the signers of a largest pairing, sorted by id.
func (c count) distinct() (out []CountedSigner) {
	taken := map[string]string{} // id -> fingerprint
	for _, print := range slices.Sorted(maps.Keys(c)) {
		c.place(print, taken, map[string]bool{})
	}
	for _, id := range slices.Sorted(maps.Keys(taken)) {
		for _, s := range c[taken[id]] {
			if s.ID == id {
				s.Key, _ = image.ParseDigest("sha256:" + taken[id])
				out = append(out, s)
			}
		}
	}
	return out
}

// place assigns an id to a key, and moves other keys to their other ids if needed.
func (c count) place(print string, taken map[string]string, tried map[string]bool) bool {
	for _, s := range c[print] {
		id := s.ID
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

const maxFindings = 8 // kinds of finding in one message

// explain describes the evidence if it is not enough.
func (t *evaluation) explain(signatures int, ids []string) string {
	text := fmt.Sprintf("no trusted signature: %d found", signatures)
	switch {
	case signatures == 0:
		text = "it has no signature"
	case len(ids) > 0:
		text = fmt.Sprintf("signed by %s (%s) where the policy wants %d", plural(len(ids), "distinct key"),
			strings.Join(ids, ", "), t.policy.file.Threshold)
	}
	out := []string{text, "keys tried: " + strings.Join(t.policy.names(), ", ")}
	kinds := slices.Sorted(maps.Keys(t.signatures))
	for _, what := range kinds[:min(len(kinds), maxFindings)] {
		out = append(out, fmt.Sprintf("%d %s", t.signatures[what], what))
	}
	return strings.Join(out, "; ")
}

func (p *Policy) names() (out []string) {
	p.file.each(func(_ string, e entry) { out = append(out, e.kind().title+e.common().ID) })
	return out
}

func (t *evaluation) hint(signatures int) string {
	switch {
	case signatures == 0:
		return "sign it with `vdo-bundle sign` or `cosign sign --key`, and copy its signature along (tag " +
			image.Signatures.TagOf(t.subject) + ")"
	case len(t.counts) > 0:
		return "have it signed with further keys of the policy"
	}
	return "check the given keys and certificates; have it signed by one that counts now, or refuse the bundle"
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// madeBy reports whether a key made the signature.
func (e Evidence) madeBy(key []signature.Verifier) bool {
	return slices.ContainsFunc(e.signatures, func(s []byte) bool {
		return slices.ContainsFunc(key, func(v signature.Verifier) bool {
			return check(v, s, e.message) == nil
		})
	})
}

func check(v signature.Verifier, signature, message []byte) (err error) {
	defer recovered(&err)
	return v.VerifySignature(bytes.NewReader(signature), bytes.NewReader(message))
}

// recovered turns a panic of a foreign parser into an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("damaged: %v", p)
	}
}

// verifiersOf returns the verifiers of a key's signatures. Cosign signs claims with SHA-256, and
// everything else with sigstore's algorithm for the key.
func verifiersOf(public crypto.PublicKey) ([]signature.Verifier, error) {
	load := []signature.LoadOption{nil}
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		larger := map[elliptic.Curve]crypto.Hash{elliptic.P384(): crypto.SHA384, elliptic.P521(): crypto.SHA512}
		if h, ok := larger[k.Curve]; ok {
			load = append(load, options.WithHash(h))
		}
	case ed25519.PublicKey:
		load = append(load, options.WithED25519ph())
	}
	load[0] = options.WithHash(crypto.SHA256)
	out := make([]signature.Verifier, 0, len(load))
	for _, o := range load {
		v, err := signature.LoadVerifierWithOpts(public, o)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}
