package trust

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"

	"github.com/digitorus/pkcs7"
	"github.com/digitorus/timestamp"
	"github.com/sigstore/timestamp-authority/v2/pkg/verification"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// MaxTimestamp is the largest accepted answer of a time-stamping authority, in bytes.
const MaxTimestamp = 64 << 10

// TimestampRoots are trusted time-stamping authorities, roots and intermediates; see [CheckTimestamp].
type TimestampRoots []*x509.Certificate

// ParseTimestampRoots reads certificates in PEM, roots and intermediates, as in a policy's
// timestampRoots. name is the file's, for messages.
func ParseTimestampRoots(name string, data []byte) (TimestampRoots, error) {
	all, err := parseCertificates("it", data)
	if err == nil && !slices.ContainsFunc(all, selfSigned) {
		err = errors.New("none of its certificates is self-signed")
	}
	if err != nil {
		return nil, fault.Errorf(fault.InvalidInput, "read time-stamp roots", name,
			"give the certificates of the time-stamping authority in PEM, its root among them", "%w", err)
	}
	return all, nil
}

// CheckTimestamp verifies an authority's answer (RFC 3161) for this signature as [Policy.Verify]
// does. Its signer's certificate must be for time stamps only, with a chain to one of the roots at the stamped time.
// Without roots the signer is not checked, but the answer must contain its certificate.
func CheckTimestamp(answer, signature []byte, trusted TimestampRoots) (stamp *timestamp.Timestamp, err error) {
	defer recovered(&err)
	token, err := parseTimestamp(answer)
	if err != nil {
		return nil, err
	}
	if len(token.Certificates) == 0 {
		token.Certificates = trusted
	}
	signer := token.GetOnlySigner()
	if signer == nil {
		return nil, errors.New("it does not have one signer whose certificate is there")
	}
	roots := slices.DeleteFunc(slices.Clone(trusted), func(c *x509.Certificate) bool { return !selfSigned(c) })
	if len(trusted) == 0 {
		roots = TimestampRoots{signer} // any signer
	}
	return verification.VerifyTimestampResponse(answer, bytes.NewReader(signature), verification.VerifyOpts{
		TSACertificate: signer, Intermediates: trusted, Roots: roots,
	})
}

// parseTimestamp returns the token in an answer. It bounds the token's certificates before the library calculates
// with them.
func parseTimestamp(answer []byte) (*pkcs7.PKCS7, error) {
	if len(answer) > MaxTimestamp {
		return nil, fmt.Errorf("it is longer than %d bytes", MaxTimestamp)
	}
	var a struct {
		Status asn1.RawValue
		Token  asn1.RawValue `asn1:"optional"`
	}
	if rest, err := asn1.Unmarshal(answer, &a); err != nil || len(rest) > 0 {
		return nil, errors.New("it is not an answer of a time-stamping authority")
	}
	if len(a.Token.FullBytes) == 0 {
		return nil, errors.New("it is a refusal, without a time stamp")
	}
	token, err := pkcs7.Parse(a.Token.FullBytes)
	if err != nil {
		return nil, err
	}
	if len(token.Certificates) > maxCertificates {
		return nil, fmt.Errorf("there are more than %d certificates", maxCertificates)
	}
	for _, c := range token.Certificates {
		if err := boundCertificate(c); err != nil {
			return nil, err
		}
	}
	return token, nil
}
