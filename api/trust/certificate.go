package trust

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
)

// Annotations of a claim's layer where the key has a certificate, as cosign
// writes them.
const (
	CertificateAnnotation = "dev.sigstore.cosign/certificate"
	ChainAnnotation       = "dev.sigstore.cosign/chain"
	TimestampAnnotation   = "dev.sigstore.cosign/rfc3161timestamp"
)

const (
	maxCertificates = 16       // in one chain, and in one PEM field of a policy
	maxChainPEM     = 64 << 10 // bytes
	maxCertificate  = 16 << 10 // bytes of one (DER)
	maxNames        = 256      // of one certificate, and of what else it lists
	maxTimestamps   = 8        // of one signature
	maxIdentities   = 64       // of one authority
	maxSerials      = 1024     // of one authority

	// An RSA key of a certificate, whoever has made that: what it costs to look at a
	// signature grows with the square of the bits.
	maxCertificateRSA = 8192
)

func selfSigned(c *x509.Certificate) bool { return bytes.Equal(c.RawSubject, c.RawIssuer) }

func pool(certificates []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certificates {
		p.AddCert(c)
	}
	return p
}

// parseCertificates reads the certificates of a PEM text; nothing at all is none.
func parseCertificates(what string, data []byte) ([]*x509.Certificate, error) {
	if len(data) > maxChainPEM {
		return nil, fmt.Errorf("%s: longer than %d bytes", what, maxChainPEM)
	}
	var out []*x509.Certificate
	for rest := bytes.TrimSpace(data); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil:
			return nil, fmt.Errorf("%s: there is something that is not a PEM block", what)
		case block.Type != "CERTIFICATE":
			return nil, fmt.Errorf("%s: a PEM block of type %.60q is not a certificate", what, block.Type)
		case len(out) == maxCertificates:
			return nil, fmt.Errorf("%s: there are more than %d certificates", what, maxCertificates)
		}
		c, err := parseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		out = append(out, c)
	}
	return out, nil
}

// parseCertificate reads one certificate (DER), and bounds it: in size, since a short one
// may take much memory, and in its key, before anything is calculated with that.
func parseCertificate(der []byte) (*x509.Certificate, error) {
	if len(der) > maxCertificate {
		return nil, fmt.Errorf("a certificate is longer than %d bytes", maxCertificate)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return c, boundCertificate(c)
}

func boundCertificate(c *x509.Certificate) error {
	if len(c.Raw) > maxCertificate {
		return fmt.Errorf("a certificate is longer than %d bytes", maxCertificate)
	}
	for what, n := range map[string]int{
		"subject alternative names": len(c.DNSNames) + len(c.EmailAddresses) + len(c.IPAddresses) + len(c.URIs),
		"parts of its names":        len(c.Subject.Names) + len(c.Issuer.Names),
		"extensions":                len(c.Extensions),
		"extended key usages":       len(c.ExtKeyUsage) + len(c.UnknownExtKeyUsage),
		"policies":                  len(c.Policies) + len(c.PolicyIdentifiers),
	} {
		if n > maxNames {
			return fmt.Errorf("a certificate has more than %d %s", maxNames, what)
		}
	}
	if k, ok := c.PublicKey.(*rsa.PublicKey); ok && k.N.BitLen() > maxCertificateRSA {
		return fmt.Errorf("a certificate has an RSA key of %d bits: more than %d are not supported", k.N.BitLen(), maxCertificateRSA)
	}
	return nil
}

func parseSerials(in []string) ([]*big.Int, error) {
	if len(in) > maxSerials {
		return nil, fmt.Errorf("%d revoked serials are more than %d", len(in), maxSerials)
	}
	out := make([]*big.Int, 0, len(in))
	for _, s := range in {
		n, ok := new(big.Int).SetString(strings.ReplaceAll(s, ":", ""), 16)
		if !ok || len(s) > 64 || n.Sign() < 0 {
			return nil, fmt.Errorf("revokedSerials: %.80q is not a serial number in hex", s)
		}
		out = append(out, n)
	}
	return out, nil
}

func pemOf(certificates ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range certificates {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return out
}

// certified is what comes with a signature whose key has a certificate.
type certified struct {
	leaf       *x509.Certificate
	chain      []*x509.Certificate // between the leaf and a root; nothing in it is trusted
	timestamps [][]byte            // RFC 3161, over the signature
}

// readCertified reads what cosign puts beside a signature; nil where there is none.
func readCertified(leaf, chain []byte, timestamps [][]byte) (*certified, error) {
	if len(bytes.TrimSpace(leaf)) == 0 {
		return nil, nil
	}
	certificates, err := parseCertificates("its certificate", leaf)
	if err != nil {
		return nil, err
	}
	if len(certificates) != 1 {
		return nil, fmt.Errorf("its certificate: there are %d", len(certificates))
	}
	between, err := parseCertificates("its certificate chain", chain)
	if err != nil {
		return nil, err
	}
	return newCertified(certificates[0], between, timestamps)
}

func newCertified(leaf *x509.Certificate, chain []*x509.Certificate, timestamps [][]byte) (*certified, error) {
	if len(chain) > maxCertificates {
		return nil, fmt.Errorf("its certificate chain: there are more than %d certificates", maxCertificates)
	}
	if len(timestamps) > maxTimestamps {
		return nil, fmt.Errorf("there are more than %d time stamps", maxTimestamps)
	}
	for _, t := range timestamps {
		if len(t) > MaxTimestamp {
			return nil, fmt.Errorf("a time stamp is longer than %d bytes", MaxTimestamp)
		}
	}
	return &certified{leaf, chain, timestamps}, nil
}

// key is the key of the certificate.
func (c *certified) key() (Key, error) { return keyOf("", c.leaf.PublicKey) }
