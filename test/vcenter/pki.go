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
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"time"
)

// certificate is a serving certificate and the authority that it is from.
type certificate struct {
	serving      tls.Certificate
	ca           []byte
	sha1, sha256 string
}

func issue(o Options) (certificate, error) {
	var c certificate
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	now := time.Now()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "vcsim CA"},
		NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(240 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER, err := x509.CreateCertificate(rand.Reader, authority, authority, &caKey.PublicKey, caKey)
	if err != nil {
		return c, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf(o, now), authority, &key.PublicKey, caKey)
	if err != nil {
		return c, err
	}
	one, two := sha1.Sum(der), sha256.Sum256(der) //nolint:gosec // as above
	return certificate{
		serving: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		ca:      pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}),
		sha1:    pairs(one[:]), sha256: pairs(two[:]),
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

func pairs(b []byte) string {
	out := make([]string, len(b))
	for i := range b {
		out[i] = strings.ToUpper(hex.EncodeToString(b[i : i+1]))
	}
	return strings.Join(out, ":")
}
