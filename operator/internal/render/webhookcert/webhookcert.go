// Package webhookcert makes, keeps and renews the certificate of the storage
// driver's validating webhook.
//
// The certificate is a leaf for the webhook's Service, signed by a CA that exists
// for that one signature: the CA's key is thrown away, so that nothing in the
// cluster can sign another one. It is kept in the Secret that the webhook mounts
// (see [Certificate.Data]) and read back from there:
//
//	cert, renewed, err := webhookcert.Ensure(secret.Data, registration.CABundle, time.Now(), rand.Reader)
//
// A renewal makes a new CA and leaf. What clients trust then holds the new CA and,
// until its leaf expires, the old one, so that the API server accepts both the
// pods that still serve the old leaf and those that serve the new one. That holds at
// every moment where what clients trust ([Certificate.CA]) is written first, the
// Secret next, and the pods are rolled last.
package webhookcert

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/certificate"
)

// DNSName is the name that the API server calls the webhook by.
const DNSName = "vsphere-webhook-svc.vmware-system-csi.svc"

// Lifetime is how long a certificate counts; it is renewed after two thirds.
const Lifetime = 90 * 24 * time.Hour

// WarnBefore its end a certificate should have been renewed: one that is as near to
// its end was to be renewed and was not.
const WarnBefore = 30 * 24 * time.Hour

// caName starts the name of each CA; maxTrusted bounds how many are adopted from
// what clients trust.
const (
	caName     = "vsphere-webhook-ca "
	maxTrusted = 4
)

// skew is how far a node's clock may be behind ours.
const skew = 5 * time.Minute

// Keys of the Secret.
const (
	KeyCA   = "ca.crt"
	KeyCert = "tls.crt"
	KeyKey  = "tls.key"
)

// Certificate is a serving certificate and what its clients trust. It does not
// print.
type Certificate struct {
	CA   []byte // PEM; what caBundle holds: the issuer, then those before it while they count
	Cert []byte // PEM of the leaf
	Key  []byte // PEM of the leaf's key, PKCS#8
}

// String keeps the key out of logs.
func (*Certificate) String() string { return "[certificate of " + DNSName + "]" }

// GoString keeps the key out of logs.
func (c *Certificate) GoString() string { return c.String() }

// Data is what is kept of the certificate in the Secret that the webhook mounts.
func (c *Certificate) Data() map[string][]byte {
	return map[string][]byte{KeyCA: c.CA, KeyCert: c.Cert, KeyKey: c.Key}
}

// Ensure returns the certificate kept in a Secret's data while it serves, or a new
// one, and whether it is new. Data that is empty or damaged gives a new one; the pods
// may then still serve what is lost, so that the CAs that clients trust so far, PEM,
// stay trusted.
func Ensure(data map[string][]byte, trusted []byte, now time.Time, random io.Reader) (cert *Certificate, renewed bool, err error) {
	kept, err := Parse(data)
	if err == nil && now.Before(kept.RenewAt()) && kept.serves(now) {
		return kept, false, nil
	}
	cert, err = Issue(now, random)
	if err != nil {
		return nil, false, err
	}
	if kept != nil {
		trusted = slices.Concat(kept.CA, trusted) // pods may serve by either
	}
	cert.CA = append(cert.CA, ours(trusted, now)...)
	return cert, true, nil
}

// ours returns those of the CAs that were made here and still count.
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

// Issue makes a certificate from scratch.
func Issue(now time.Time, random io.Reader) (*Certificate, error) {
	notBefore, notAfter := now.Add(-skew).UTC().Truncate(time.Second), now.Add(Lifetime).UTC().Truncate(time.Second)
	leaf, keyPEM := certificate.Issued{}, []byte(nil)
	ca, err := certificate.Issue(&x509.Certificate{
		Subject:   pkix.Name{CommonName: caName + now.UTC().Format("2006-01-02T15:04:05Z")},
		NotBefore: notBefore, NotAfter: notAfter,
		IsCA: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, random)
	if err == nil {
		leaf, err = certificate.Issue(&x509.Certificate{
			Subject:   pkix.Name{CommonName: DNSName},
			DNSNames:  []string{DNSName},
			NotBefore: notBefore, NotAfter: notAfter,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}, &ca, random)
	}
	if err == nil {
		keyPEM, err = certificate.EncodeKey(leaf.Key)
	}
	if err != nil {
		return nil, fault.Errorf(fault.Internal, "make certificate", DNSName, "", "%w", err)
	}
	return &Certificate{
		CA: certificate.Encode(ca.Cert.Raw), Cert: certificate.Encode(leaf.Cert.Raw), Key: keyPEM,
	}, nil
}

// Parse reads a certificate from a Secret's data. The leaf must be for [DNSName],
// fit its key, and be signed by the first CA.
func Parse(data map[string][]byte) (*Certificate, error) {
	c := &Certificate{CA: data[KeyCA], Cert: data[KeyCert], Key: data[KeyKey]}
	if err := c.check(); err != nil {
		return nil, fault.Errorf(fault.Corrupt, "read certificate", DNSName,
			"delete the Secret vmware-system-csi/vsphere-webhook-certs: it is made again", "%w", err)
	}
	return c, nil
}

func (c *Certificate) check() error {
	leaf, err := certificate.Parse(c.Cert)
	if err != nil {
		return fmt.Errorf("%s: %w", KeyCert, err)
	}
	issuer, err := certificate.Parse(c.CA)
	if err != nil {
		return fmt.Errorf("%s: %w", KeyCA, err)
	}
	if _, _, err := certificate.Pair(c.Cert, c.Key); err != nil {
		return fmt.Errorf("%s does not fit %s", KeyKey, KeyCert)
	}
	if err := leaf.VerifyHostname(DNSName); err != nil {
		return err
	}
	return leaf.CheckSignatureFrom(issuer)
}

// RenewAt is when two thirds of the certificate's life are over. The zero time is
// returned for a certificate that cannot be read.
func (c *Certificate) RenewAt() time.Time {
	from, to := c.life()
	return from.Add(to.Sub(from) * 2 / 3)
}

// EndsAt is when the certificate's life is over; the zero time for one that cannot be
// read.
func (c *Certificate) EndsAt() time.Time {
	_, to := c.life()
	return to
}

// serves reports whether the leaf counts now.
func (c *Certificate) serves(now time.Time) bool {
	from, to := c.life()
	return !now.Before(from) && now.Before(to)
}

// life is the time in which the leaf counts; none of one that cannot be read.
func (c *Certificate) life() (from, to time.Time) {
	if leaf, err := certificate.Parse(c.Cert); err == nil {
		from, to = leaf.NotBefore, leaf.NotAfter
	}
	return from, to
}
