package trust

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	cosignbundle "github.com/sigstore/cosign/v2/pkg/cosign/bundle"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// WithCertificate returns the signer with a certificate for its key, which its
// signatures carry from now on, as those of cosign sign --certificate do. chain are
// the authorities between the certificate and the root, with or without the root,
// nearest first.
func (s *Signer) WithCertificate(name string, certificate, chain []byte, now time.Time) (*Signer, error) {
	bad := func(why error, hint string) (*Signer, error) {
		return nil, fault.Errorf(fault.InvalidInput, "use certificate", name, hint, "%w", why)
	}
	v, err := readCertified(certificate, chain, nil)
	switch {
	case err != nil:
		return bad(err, "give PEM: one certificate, and beside it the chain of those that issued it")
	case v == nil:
		return bad(errors.New("there is no certificate in it"), "give the certificate of the signing key, in PEM")
	}
	if print, err := fingerprint(v.leaf.PublicKey); err != nil || print != s.key.fingerprint {
		return bad(errors.New("it is for another key than the one that signs"), "give the certificate that was issued for this key")
	}
	at := v.leaf
	for _, c := range v.chain {
		if err := at.CheckSignatureFrom(c); err != nil {
			return bad(fmt.Errorf("%q did not issue %q", c.Subject, at.Subject), "give the chain with the issuer of the certificate first, then its issuer")
		}
		at = c
	}
	switch {
	case now.After(v.leaf.NotAfter):
		return bad(fmt.Errorf("it expired %s", v.leaf.NotAfter.UTC().Format(time.RFC3339)), "have a new one issued")
	case now.Before(v.leaf.NotBefore):
		return bad(fmt.Errorf("it is not valid before %s", v.leaf.NotBefore.UTC().Format(time.RFC3339)), "check the clock of this machine")
	}
	out := *s
	out.certified = v
	return &out, nil
}

// WithTimestamps returns the signer with a time-stamping authority: stamp is shown
// each signature that is made from now on, and returns the authority's answer (RFC
// 3161), which the signature then carries, as those of cosign sign
// --timestamp-server-url do. An answer that is not a time stamp of the signature, or
// says that it was made while the signer's certificate was not valid, is refused. A
// signature that is there already and has no better one is made again. roots are the
// authority's; none: anybody's time stamp is taken.
func (s *Signer) WithTimestamps(stamp func(signature []byte) ([]byte, error), roots TimestampRoots) *Signer {
	out := *s
	out.stamp, out.stampRoots = stamp, roots
	return &out
}

// carried returns the annotations that go with a signature: certificate, chain, and
// the time stamp of it.
func (s *Signer) carried(signature []byte) (map[string]string, error) {
	out := map[string]string{}
	if s.certified != nil {
		out[CertificateAnnotation] = string(pemOf(s.certified.leaf))
		if len(s.certified.chain) > 0 {
			out[ChainAnnotation] = string(pemOf(s.certified.chain...))
		}
	}
	if s.stamp == nil {
		return out, nil
	}
	stamp, err := s.stamped(signature)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(cosignbundle.TimestampToRFC3161Timestamp(stamp))
	out[TimestampAnnotation] = string(text)
	return out, err
}

// stamped asks for the time stamp of a signature.
func (s *Signer) stamped(signature []byte) ([]byte, error) {
	stamp, err := s.stamp(signature)
	if err != nil {
		return nil, err
	}
	if err := s.checkStamp(stamp, signature); err != nil {
		return nil, fault.Errorf(fault.Corrupt, "check the time stamp of", "the signature",
			"have the time-stamping authority looked at, its clock first, or use another one", "%w", err)
	}
	return stamp, nil
}

// checkStamp verifies the time stamp of a signature, as far as the signer can.
func (s *Signer) checkStamp(stamp, signature []byte) error {
	says, err := CheckTimestamp(stamp, signature, s.stampRoots)
	at := says.Time
	if v := s.certified; err == nil && v != nil && (at.Before(v.leaf.NotBefore) || at.After(v.leaf.NotAfter)) {
		const late = "it gives the time %s, at which the certificate of the key is not valid"
		err = fmt.Errorf(late, at.UTC().Format(time.RFC3339))
	}
	return err
}

// hasStamp reports whether one of the time stamps of a signature holds, where the signer
// has them made.
func (s *Signer) hasStamp(stamps [][]byte, signature []byte) bool {
	holds := func(stamp []byte) bool { return s.checkStamp(stamp, signature) == nil }
	return s.stamp == nil || slices.ContainsFunc(stamps, holds)
}
