// Package certificate has what is the same wherever the operator makes certificates:
// signing one, and reading and writing PEM. Names, lifetimes and who trusts what belong
// to who asks: package webhookcert for the storage driver's webhook, and the login of
// tenant clusters.
package certificate

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
)

// NewKey makes a key: P-256.
func NewKey(random io.Reader) (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), random)
}

// Sign issues a certificate for a public key, with a serial number of its own, and
// returns its DER. A template that is its own parent is self-signed.
func Sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer, random io.Reader) ([]byte, error) {
	serial := make([]byte, 16)
	if _, err := io.ReadFull(random, serial); err != nil {
		return nil, err
	}
	serial[0] = serial[0]&0x7f | 1 // positive, and never zero
	template.SerialNumber = new(big.Int).SetBytes(serial)
	return x509.CreateCertificate(random, template, parent, public, key)
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

// Parse returns the first certificate of PEM data.
func Parse(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("there is no PEM certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// ErrKey is a private key that cannot be read or belongs to another certificate. What is
// wrong with it is not told, since that could quote it.
var ErrKey = errors.New("the private key does not fit the certificate")

// Pair reads a certificate and its private key, PEM both.
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
