package vcenter

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // vCenters name certificates so
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"
)

// certificate is a serving certificate and the authority that it is from.
type certificate struct {
	serving      tls.Certificate
	ca           []byte
	sha1, sha256 string
}

func issue(o Options) (certificate, error) {
	now := time.Now()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certificate{}, err
	}
	of := cert.Config{CommonName: "vcsim CA", NotBefore: now.Add(-48 * time.Hour)}
	authority, err := cert.NewSelfSignedCACert(of, caKey)
	if err != nil {
		return certificate{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certificate{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf(o, now), authority, &key.PublicKey, caKey)
	if err != nil {
		return certificate{}, err
	}
	return certificate{
		serving: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		ca:      pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw}),
		sha1:    pairs(sha1.Sum(der)), //nolint:gosec // as above
		sha256:  pairs(sha256.Sum256(der)),
	}, nil
}

func leaf(o Options, now time.Time) *x509.Certificate {
	c := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "vcsim"},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if o.Expired {
		c.NotAfter = now.Add(-time.Hour)
	}
	for _, n := range o.Names {
		if ip := net.ParseIP(n); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, n)
		}
	}
	return c
}

func pairs[B [sha1.Size]byte | [sha256.Size]byte](b B) string {
	return strings.ReplaceAll(strings.ToUpper(fmt.Sprintf("% x", b)), " ", ":")
}
