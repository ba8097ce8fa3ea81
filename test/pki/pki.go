// Package pki makes private certificate authorities for tests: roots, what they
// issue, and RFC 3161 time stamps.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/digitorus/pkcs7"
	"github.com/digitorus/timestamp"
	"github.com/stretchr/testify/require"
)

// Authority is a certificate and its key: of an authority, or of who it issued for.
type Authority struct {
	Certificate *x509.Certificate
	Key         *ecdsa.PrivateKey
}

// Spec is what a certificate says.
type Spec struct {
	Name                string
	CA                  bool
	Email, URI, DNS     []string
	Usage               []x509.ExtKeyUsage
	UnknownUsage        []asn1.ObjectIdentifier
	NotBefore, NotAfter time.Time         // default: 2020 to 2040
	Key                 *ecdsa.PrivateKey // default: a new one
}

// Root makes a root.
func Root(t testing.TB, name string) Authority {
	t.Helper()
	return Authority{}.Issue(t, Spec{Name: name, CA: true})
}

// Issue issues a certificate; the zero authority issues a self-signed one.
func (a Authority) Issue(t testing.TB, s Spec) Authority {
	t.Helper()
	key := s.Key
	if key == nil {
		var err error
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
	}
	template := s.template(t)
	parent, signer := template, key
	if a.Certificate != nil {
		parent, signer = a.Certificate, a.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	c, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return Authority{c, key}
}

func (s Spec) template(t testing.TB) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	require.NoError(t, err)
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: s.Name},
		NotBefore: s.NotBefore, NotAfter: s.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: s.Usage, UnknownExtKeyUsage: s.UnknownUsage, EmailAddresses: s.Email, DNSNames: s.DNS,
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
		require.NoError(t, err)
		c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: true, Value: value})
	}
	for _, text := range s.URI {
		u, err := url.Parse(text)
		require.NoError(t, err)
		c.URIs = append(c.URIs, u)
	}
	return c
}

// PEM returns the certificate.
func (a Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate.Raw})
}

// KeyPEM returns the private key as PKCS #8.
func (a Authority) KeyPEM(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(a.Key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Stamp makes a time stamp over data, as the answer of a time-stamping authority; the
// signer's certificate goes along.
func (a Authority) Stamp(t testing.TB, data []byte, at time.Time) []byte {
	t.Helper()
	request, err := timestamp.CreateRequest(bytes.NewReader(data), &timestamp.RequestOptions{Hash: crypto.SHA256})
	require.NoError(t, err)
	r, err := timestamp.ParseRequest(request)
	require.NoError(t, err)
	stamp := timestamp.Timestamp{
		HashAlgorithm: r.HashAlgorithm, HashedMessage: r.HashedMessage, Time: at, SerialNumber: big.NewInt(1),
		Policy: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 2}, AddTSACertificate: true,
	}
	out, err := stamp.CreateResponseWithOpts(a.Certificate, a.Key, crypto.SHA256)
	require.NoError(t, err)
	return out
}

// StampBehind makes a time stamp that has the certificate of another in front of that
// of its signer.
func (a Authority) StampBehind(t testing.TB, data []byte, at time.Time, front Authority) []byte {
	t.Helper()
	honest, err := timestamp.ParseResponse(a.Stamp(t, data, at))
	require.NoError(t, err)
	token, err := pkcs7.Parse(honest.RawToken)
	require.NoError(t, err)
	forged, err := pkcs7.NewSignedData(token.Content)
	require.NoError(t, err)
	forged.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	forged.SetContentType(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 1, 4})
	forged.AddCertificate(front.Certificate)
	require.NoError(t, forged.AddSigner(a.Certificate, a.Key, pkcs7.SignerInfoConfig{}))
	signed, err := forged.Finish()
	require.NoError(t, err)
	out, err := asn1.Marshal(struct {
		Status struct{ Status int }
		Token  asn1.RawValue
	}{Token: asn1.RawValue{FullBytes: signed}})
	require.NoError(t, err)
	return out
}

// ServeStamps answers requests for time stamps (RFC 3161 over HTTP) and returns the
// server's URL.
func (a Authority) ServeStamps(t testing.TB) string {
	t.Helper()
	server := httptest.NewServer(a.Stamps(nil))
	t.Cleanup(server.Close)
	return server.URL
}

// Stamps answers requests for time stamps. change, where there is one, may alter an
// answer before it is signed.
func (a Authority) Stamps(change func(*timestamp.Timestamp)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		request, err := timestamp.ParseRequest(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		stamp := timestamp.Timestamp{
			HashAlgorithm: request.HashAlgorithm, HashedMessage: request.HashedMessage, Time: time.Now(), Nonce: request.Nonce,
			Policy: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 2}, AddTSACertificate: request.Certificates,
		}
		if change != nil {
			change(&stamp)
		}
		answer, err := stamp.CreateResponseWithOpts(a.Certificate, a.Key, crypto.SHA256)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/timestamp-reply")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(answer)
	})
}
