package trust

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/digitorus/pkcs7"
	"github.com/sigstore/timestamp-authority/v2/pkg/verification"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// MaxTimestamp is the largest accepted answer of a time-stamping authority, in bytes.
const MaxTimestamp = 64 << 10

// TimestampRoots are trusted time-stamping authorities. The zero value names none; see [CheckTimestamp].
type TimestampRoots struct{ certificates []*x509.Certificate }

// ParseTimestampRoots reads certificates in PEM, roots and intermediates, as in a policy's
// timestampRoots. name is the file's, for messages.
func ParseTimestampRoots(name string, data []byte) (TimestampRoots, error) {
	all, err := parseCertificates("it", data)
	if err == nil && !slices.ContainsFunc(all, selfSigned) {
		err = errors.New("none of its certificates is self-signed")
	}
	if err != nil {
		return TimestampRoots{}, fault.Errorf(fault.InvalidInput, "read time-stamp roots", name,
			"give the certificates of the time-stamping authority in PEM, its root among them", "%w", err)
	}
	return TimestampRoots{all}, nil
}

// CheckTimestamp verifies an authority's answer (RFC 3161) for this signature as [Policy.Verify]
// does. Its signer's certificate must be for time stamps only, with a chain to one of the roots.
// Without roots the signer is not checked, but the answer must contain its certificate.
func CheckTimestamp(answer, signature []byte, roots TimestampRoots) (Timestamp, error) {
	return verifyTimestamp(answer, signature, stampersOf(roots.certificates))
}

// Timestamp is the content of a time stamp.
type Timestamp struct {
	Time  time.Time
	Nonce *big.Int // of the request, or nil
}

// stampers are the trusted signers of time stamps; empty trusts every signer.
type stampers struct {
	roots, between []*x509.Certificate
	signer         *x509.Certificate // the only signer, or nil: every signer that the roots certify
}

// stampersOf splits certificates into roots and intermediates.
func stampersOf(certificates []*x509.Certificate) stampers {
	var out stampers
	for _, c := range certificates {
		if selfSigned(c) {
			out.roots = append(out.roots, c)
		} else {
			out.between = append(out.between, c)
		}
	}
	return out
}

// known returns the certificates to search for a signer whose own did not come with the answer.
func (s stampers) known() []*x509.Certificate {
	out := slices.Concat(s.between, s.roots)
	if s.signer != nil {
		out = append(out, s.signer)
	}
	return out
}

// verifyTimestamp verifies a signature's time stamp with timestamp-authority's library. The library
// uses its own clock if the signer gives no time, so verifyTimestamp verifies the chain to a root
// again for the stamped time.
func verifyTimestamp(answer, signature []byte, trusted stampers) (out Timestamp, err error) {
	defer func() {
		if p := recover(); p != nil { // the parsers below are foreign
			out, err = Timestamp{}, fmt.Errorf("damaged time stamp: %v", p)
		}
	}()
	if len(answer) > MaxTimestamp {
		return out, fmt.Errorf("it is longer than %d bytes", MaxTimestamp)
	}
	known := trusted.known()
	signer, others, err := signerOfTimestamp(answer, known)
	if err != nil {
		return out, err
	}
	if trusted.signer != nil && !trusted.signer.Equal(signer) {
		return out, errors.New("it is signed by another certificate than that of the authority")
	}
	roots := trusted.roots
	if len(known) == 0 {
		roots = []*x509.Certificate{signer} // any signer
	}
	between := slices.DeleteFunc(slices.Concat(others, trusted.between), func(c *x509.Certificate) bool { return selfSigned(c) || !mayStamp(c) })
	stamp, err := verification.VerifyTimestampResponse(answer, bytes.NewReader(signature), verification.VerifyOpts{
		TSACertificate: signer, Intermediates: between, Roots: roots,
	})
	if err != nil {
		return out, err
	}
	if !slices.Contains([]crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512}, stamp.HashAlgorithm) {
		return out, fmt.Errorf("it is of a hash that is not trusted (%s)", stamp.HashAlgorithm)
	}
	if len(known) > 0 {
		_, err = signer.Verify(x509.VerifyOptions{
			Roots: pool(roots), Intermediates: pool(between), CurrentTime: stamp.Time, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping},
		})
	}
	return Timestamp{Time: stamp.Time, Nonce: stamp.Nonce}, err
}

// mayStamp reports whether an authority may issue certificates for time stamps. One that may not
// makes the library refuse all.
func mayStamp(c *x509.Certificate) bool {
	return c.IsCA && (len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) == 0 ||
		slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageTimeStamping) || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny))
}

// signerOfTimestamp returns the signer's certificate of a time stamp and the certificates in the
// answer. It searches those or, if there are none, the known ones. It bounds them before the
// library calculates with them.
func signerOfTimestamp(answer []byte, known []*x509.Certificate) (signer *x509.Certificate, along []*x509.Certificate, err error) {
	var a struct {
		Status asn1.RawValue
		Token  asn1.RawValue `asn1:"optional"`
	}
	if rest, err := asn1.Unmarshal(answer, &a); err != nil || len(rest) > 0 {
		return nil, nil, errors.New("it is not an answer of a time-stamping authority")
	}
	if len(a.Token.FullBytes) == 0 {
		return nil, nil, errors.New("it is a refusal, without a time stamp")
	}
	token, err := pkcs7.Parse(a.Token.FullBytes)
	if err != nil {
		return nil, nil, err
	}
	along = token.Certificates
	if len(along) > maxCertificates {
		return nil, nil, fmt.Errorf("there are more than %d certificates", maxCertificates)
	}
	for _, c := range along {
		if err := boundCertificate(c); err != nil {
			return nil, nil, err
		}
	}
	if len(along) == 0 {
		token.Certificates = known
	}
	if signer = token.GetOnlySigner(); signer == nil {
		return nil, nil, errors.New("it does not have one signer whose certificate is there")
	}
	return signer, along, nil
}
