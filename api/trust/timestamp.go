package trust

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/digitorus/pkcs7"
	"github.com/digitorus/timestamp"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// MaxTimestamp is the longest answer of a time-stamping authority that counts, in
// bytes.
const MaxTimestamp = 64 << 10

// TimestampRoots are time-stamping authorities that are trusted. The zero value is
// nobody in particular; see [CheckTimestamp].
type TimestampRoots struct{ certificates []*x509.Certificate }

// ParseTimestampRoots reads certificates in PEM, roots and intermediates, as the
// field timestampRoots of a policy has them. name is the file's, for messages.
func ParseTimestampRoots(name string, data []byte) (TimestampRoots, error) {
	all, err := parseCertificates("it", data)
	if err == nil && !slices.ContainsFunc(all, selfSigned) {
		err = errors.New("none of its certificates is self-signed")
	}
	if err != nil {
		return TimestampRoots{}, &fault.Error{
			Reason: fault.InvalidInput, Op: "read time-stamp roots", Subject: name, Err: err,
			Hint: "give the certificates of the time-stamping authority in PEM, its root among them",
		}
	}
	return TimestampRoots{all}, nil
}

// CheckTimestamp verifies the answer of a time-stamping authority (RFC 3161) as
// [Policy.Verify] does, and returns the time that it gives: it is of this signature, it
// is signed by a certificate for time stamps and nothing else, and that leads to one
// of the roots. Where there are none, who has signed it is not looked at, but the
// answer has to have its certificate along.
func CheckTimestamp(answer, signature []byte, roots TimestampRoots) (time.Time, error) {
	if len(answer) > MaxTimestamp {
		return time.Time{}, fmt.Errorf("it is longer than %d bytes", MaxTimestamp)
	}
	return stampTime(answer, signature, roots.certificates)
}

// stampTime verifies a time stamp over a signature. Without roots, whose it is is not
// looked at.
func stampTime(stamp, signature []byte, trusted []*x509.Certificate) (at time.Time, err error) {
	defer func() {
		if p := recover(); p != nil { // the parser below is not ours
			at, err = time.Time{}, fmt.Errorf("damaged time stamp: %v", p)
		}
	}()
	ts, err := timestamp.ParseResponse(stamp)
	if err != nil {
		return at, err
	}
	token, err := pkcs7.Parse(ts.RawToken)
	if err != nil {
		return at, err
	}
	if len(token.Certificates) == 0 {
		token.Certificates = trusted // a stamp may leave it to the reader to have its signer's
	}
	if !slices.Contains([]crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512}, ts.HashAlgorithm) ||
		!bytes.Equal(ts.HashedMessage, sum(ts.HashAlgorithm, signature)) {
		return at, errors.New("it is of something else")
	}
	return ts.Time, stamped(token, ts.Time, trusted)
}

// stamped checks who signed a time stamp. What is looked at is the certificate that
// verifies the signature, not the first of those that lie beside it: of an authority
// that issues for several uses, another leaf could otherwise hide behind one for
// time stamps.
func stamped(token *pkcs7.PKCS7, at time.Time, trusted []*x509.Certificate) error {
	signer := token.GetOnlySigner()
	switch {
	case signer == nil:
		return errors.New("it does not have one signer whose certificate is there")
	case signer.IsCA || len(signer.ExtKeyUsage) != 1 || signer.ExtKeyUsage[0] != x509.ExtKeyUsageTimeStamping || len(signer.UnknownExtKeyUsage) > 0:
		return errors.New("its signer may do other things than time stamps")
	case len(trusted) == 0:
		return token.Verify()
	}
	var roots, between []*x509.Certificate
	for _, c := range trusted {
		if selfSigned(c) {
			roots = append(roots, c)
		} else {
			between = append(between, c)
		}
	}
	between = append(between, token.Certificates[:min(len(token.Certificates), maxCertificates)]...)
	return token.VerifyWithOpts(x509.VerifyOptions{
		Roots: pool(roots), Intermediates: pool(between), CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping},
	})
}
