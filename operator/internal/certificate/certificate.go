// Package certificate issues certificates, and reads and writes PEM. Callers choose names, lifetimes and trust:
// package webhookcert for the storage driver's webhook, and the login of tenant clusters.
package certificate

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"strings"
	"time"
)

// Issued is a certificate with its private key.
type Issued struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// Issue issues a certificate for a new P-256 key, with a random serial number. It is self-signed if by is nil.
func Issue(template *x509.Certificate, by *Issued) (Issued, error) {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // it never fails
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Issued{}, err
	}
	serial[0] = serial[0]&0x7f | 1 // positive, and never zero
	template.SerialNumber, template.BasicConstraintsValid = new(big.Int).SetBytes(serial), true
	if by == nil {
		by = &Issued{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Cert, key.Public(), by.Key)
	if err != nil {
		return Issued{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return Issued{cert, key}, err
}

// Serving is a server's certificate, its key and the CA that clients trust, all PEM.
type Serving struct{ CA, Cert, Key []byte }

// skew is how far the clocks of clients may be behind the one here.
const skew = 24 * time.Hour

// IssueServing issues a certificate for a server's name or IP address. If by is nil, a CA that exists only for it signs
// it, and the CA's key is discarded: nothing can sign another one.
func IssueServing(ca string, by *Issued, host string, now, to time.Time) (Serving, error) {
	from, to := now.Add(-skew).UTC().Truncate(time.Second), to.UTC().Truncate(time.Second)
	if by == nil {
		made, err := Issue(&x509.Certificate{
			Subject: pkix.Name{CommonName: ca}, NotBefore: from, NotAfter: to,
			IsCA: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		}, nil)
		if err != nil {
			return Serving{}, err
		}
		by = &made
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: host[:min(len(host), 64)]}, NotBefore: from, NotAfter: to,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	leaf, err := Issue(template, by)
	if err != nil {
		return Serving{}, err
	}
	key, err := EncodeKey(leaf.Key)
	return Serving{CA: Encode(by.Cert.Raw), Cert: Encode(leaf.Cert.Raw), Key: key}, err
}

// Encode returns the PEM of a certificate's DER.
func Encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// EncodeKey returns the PEM of a private key, PKCS#8.
func EncodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// Parse returns the first certificate of PEM data that [Public] accepts.
func Parse(data []byte) (*x509.Certificate, error) {
	certs, err := parse(data)
	if err != nil {
		return nil, err
	}
	return certs[0], nil
}

// Public returns the certificates of PEM data as PEM without anything else, so that everyone may see it. It drops text
// between them. A block of another kind, such as a private key, or an unreadable one is an error, which quotes
// nothing.
func Public(data []byte) ([]byte, error) {
	certs, err := parse(data)
	var out []byte
	for _, c := range certs {
		out = append(out, Encode(c.Raw)...)
	}
	return out, err
}

func parse(data []byte) ([]*x509.Certificate, error) {
	// Decode skips blocks that it cannot read, so count the blocks by how they begin.
	begun := bytes.Count(data, []byte("-----BEGIN "))
	var out []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if strings.Contains(block.Type, "PRIVATE KEY") {
			return nil, ErrHasKey
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			return nil, errNotCertificates
		}
		out = append(out, cert)
	}
	switch {
	case bytes.Contains(data, []byte("PRIVATE KEY-----")):
		return nil, ErrHasKey
	case begun == 0:
		return nil, errors.New("there is no PEM certificate")
	case begun != len(out):
		return nil, errNotCertificates
	}
	return out, nil
}

// ErrHasKey is the error of a private key in data that everyone may see.
var ErrHasKey = errors.New("there is a private key beside the certificate: take the key out")

var errNotCertificates = errors.New("there is a PEM block that is not a certificate: take it out")

// ErrKey is the error of a private key that is unreadable or of another certificate. It gives no detail, since that
// could quote the key.
var ErrKey = errors.New("the private key does not fit the certificate")

// Pair parses a certificate and its private key, both PEM.
func Pair(cert, key []byte) (*x509.Certificate, crypto.Signer, error) {
	leaf, err := Parse(cert)
	if err != nil {
		return nil, nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, nil, ErrKey
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, ErrKey
	}
	return leaf, signer, nil
}
