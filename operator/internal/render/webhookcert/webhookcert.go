// Package webhookcert issues, stores and renews the certificate of the storage driver's validating
// webhook.
//
// The certificate is a leaf for the webhook's Service. A CA that exists only for it signs it. The
// CA's key is discarded, so that nothing in the cluster can sign another one. The Secret that the
// webhook mounts stores the certificate (see [Certificate.Data]), and [Ensure] reads it there:
//
//	cert, renewed, err := webhookcert.Ensure(secret.Data, registration.CABundle, time.Now())
//
// A renewal makes a new CA and leaf. Clients trust the new CA and, until its leaf expires, the old
// one. So the API server accepts pods with either leaf. The caller must write the CA bundle
// ([Certificate.CA]) first, then the Secret, and roll the pods last.
package webhookcert

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/certificate"
)

// DNSName is the name under which the API server calls the webhook.
const DNSName = "vsphere-webhook-svc.vmware-system-csi.svc"

// Lifetime is the validity of a certificate; it is renewed after two thirds.
const Lifetime = 90 * 24 * time.Hour

// WarnBefore is the remaining time below which a renewal is overdue.
const WarnBefore = 30 * 24 * time.Hour

// caName starts the name of each CA; maxTrusted bounds the CAs copied from clients' trust.
const (
	caName     = "vsphere-webhook-ca "
	maxTrusted = 4
)

// Keys of the Secret.
const (
	KeyCA   = "ca.crt"
	KeyCert = "tls.crt"
	KeyKey  = "tls.key"
)

// Certificate is a serving certificate and its clients' CAs. It does not print.
type Certificate struct {
	certificate.Serving // its CA is for caBundle: the issuer, then earlier ones while they are valid

	leaf *x509.Certificate
}

// String keeps the key out of logs.
func (*Certificate) String() string { return "[certificate of " + DNSName + "]" }

// GoString keeps the key out of logs.
func (c *Certificate) GoString() string { return c.String() }

// Data returns the content of the Secret that the webhook mounts.
func (c *Certificate) Data() map[string][]byte {
	return map[string][]byte{KeyCA: c.CA, KeyCert: c.Cert, KeyKey: c.Key}
}

// Ensure returns the certificate in a Secret's data while it serves, or a new one, and whether it is new. It
// replaces empty or damaged data. Pods may still serve the lost leaf, so valid CAs in trusted, PEM, stay.
func Ensure(data map[string][]byte, trusted []byte, now time.Time) (cert *Certificate, renewed bool, err error) {
	kept, err := Parse(data)
	if err == nil && now.Before(kept.RenewAt()) && !now.Before(kept.leaf.NotBefore) {
		return kept, false, nil
	}
	cert, err = Issue(now)
	if err != nil {
		return nil, false, err
	}
	if kept != nil {
		trusted = slices.Concat(kept.CA, trusted) // pods may serve either leaf
	}
	cert.CA = append(cert.CA, ours(trusted, now)...)
	return cert, true, nil
}

// ours returns the CAs of this package that are still valid.
func ours(bundle []byte, now time.Time) []byte {
	var out []byte
	n := 0
	for block, rest := pem.Decode(bundle); block != nil && n < maxTrusted; block, rest = pem.Decode(rest) {
		ca, err := x509.ParseCertificate(block.Bytes)
		if err == nil && ca.IsCA && strings.HasPrefix(ca.Subject.CommonName, caName) && now.Before(ca.NotAfter) {
			out = append(out, certificate.Encode(block.Bytes)...)
			n++
		}
	}
	return out
}

// Issue makes a new CA and leaf.
func Issue(now time.Time) (*Certificate, error) {
	ca := caName + now.UTC().Format("2006-01-02T15:04:05Z")
	made, err := certificate.IssueServing(ca, nil, DNSName, now, now.Add(Lifetime))
	if err != nil {
		return nil, fault.Errorf(fault.Internal, "make certificate", DNSName, "", "%w", err)
	}
	return Parse((&Certificate{Serving: made}).Data())
}

// Parse reads a certificate from a Secret's data. The leaf must be for [DNSName], fit its key, and be signed by the
// first CA.
func Parse(data map[string][]byte) (*Certificate, error) {
	of := certificate.Serving{CA: data[KeyCA], Cert: data[KeyCert], Key: data[KeyKey]}
	leaf, _, err := certificate.Pair(of.Cert, of.Key)
	if err != nil {
		return nil, err
	}
	issuer, err := certificate.Parse(of.CA)
	if err == nil {
		err = leaf.CheckSignatureFrom(issuer)
	}
	if err = cmp.Or(err, leaf.VerifyHostname(DNSName)); err != nil {
		return nil, err
	}
	return &Certificate{of, leaf}, nil
}

// RenewAt returns the time after two thirds of the certificate's life.
func (c *Certificate) RenewAt() time.Time {
	return c.leaf.NotBefore.Add(c.EndsAt().Sub(c.leaf.NotBefore) * 2 / 3)
}

// EndsAt returns the end of the certificate's life.
func (c *Certificate) EndsAt() time.Time { return c.leaf.NotAfter }
