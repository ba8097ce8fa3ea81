// Package pki makes private CAs for tests: roots, the certificates that they issue, and RFC 3161 time stamps.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"
)

// Authority is a certificate and its key, of a CA or of a subject.
type Authority struct {
	Certificate *x509.Certificate
	Key         *ecdsa.PrivateKey
}

// Spec is the content of a certificate.
type Spec struct {
	Name                string
	CA                  bool
	Organization        []string
	Email, URI          []string
	DNS                 []string // names of hosts, and IP addresses
	Usage               []x509.ExtKeyUsage
	UnknownUsage        []asn1.ObjectIdentifier
	NotBefore, NotAfter time.Time         // default: 2020 to 2040
	Key                 *ecdsa.PrivateKey // default: a new one
}

// Root makes a root CA.
func Root(t testing.TB, name string) Authority {
	t.Helper()
	return Authority{}.Issue(t, Spec{Name: name, CA: true})
}

// Issue issues a certificate, as [Authority.New] does.
func (a Authority) Issue(t testing.TB, s Spec) Authority {
	t.Helper()
	issued, err := a.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return issued
}

// New issues a certificate; the zero authority issues a self-signed one.
func (a Authority) New(s Spec) (Authority, error) {
	template, err := s.template()
	if err != nil {
		return Authority{}, err
	}
	key := s.Key
	if key == nil {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return Authority{}, err
		}
	}
	parent, signer := template, key
	if a.Certificate != nil {
		parent, signer = a.Certificate, a.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Authority{}, err
	}
	c, err := x509.ParseCertificate(der)
	return Authority{c, key}, err
}

func (s Spec) template() (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: s.Name, Organization: s.Organization},
		NotBefore: s.NotBefore, NotAfter: s.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: s.Usage, UnknownExtKeyUsage: s.UnknownUsage, EmailAddresses: s.Email,
		BasicConstraintsValid: true, IsCA: s.CA,
	}
	if s.CA {
		c.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	}
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if len(s.Usage) == 1 && s.Usage[0] == x509.ExtKeyUsageTimeStamping { // RFC 3161 section 2.3 wants it critical
		value, err := asn1.Marshal([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 8}})
		if err != nil {
			return nil, err
		}
		c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: true, Value: value})
	}
	for _, text := range s.URI {
		u, err := url.Parse(text)
		if err != nil {
			return nil, err
		}
		c.URIs = append(c.URIs, u)
	}
	for _, name := range s.DNS {
		if ip := net.ParseIP(name); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, name)
		}
	}
	return c, nil
}

// PEM returns the certificate.
func (a Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate.Raw})
}

// KeyPEM returns the private key as PKCS #8.
func (a Authority) KeyPEM() []byte {
	der, err := x509.MarshalPKCS8PrivateKey(a.Key)
	if err != nil {
		panic(err) // of an unknown curve
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// PublicPEM returns the public key.
func (a Authority) PublicPEM() []byte {
	der, err := x509.MarshalPKIXPublicKey(&a.Key.PublicKey)
	if err != nil {
		panic(err) // likewise
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// TLS returns the certificate for a server or client.
func (a Authority) TLS() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{a.Certificate.Raw}, PrivateKey: a.Key}
}

// Pool returns a pool that trusts only the certificate.
func (a Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Certificate)
	return pool
}
