package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"io"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/digitorus/pkcs7"
	"github.com/digitorus/timestamp"
)

// Stamp is the content of a time stamp (RFC 3161) and its accompanying data.
type Stamp struct {
	Digest        []byte // SHA-256 of the stamped data
	Nonce         *big.Int
	Time          time.Time
	Certificates  []*x509.Certificate // included, in this order
	NoSigningTime bool                // the signature has no signing time of its own
}

// Stamp makes a time stamp over data, as a time-stamping authority answers. It includes the signer's certificate.
func (a Authority) Stamp(t testing.TB, data []byte, at time.Time) []byte {
	t.Helper()
	return a.StampWith(t, data, at, a)
}

// StampWith makes a time stamp that includes certificates.
func (a Authority) StampWith(t testing.TB, data []byte, at time.Time, along ...Authority) []byte {
	t.Helper()
	digest := sha256.Sum256(data)
	s := Stamp{Digest: digest[:], Time: at}
	for _, c := range along {
		s.Certificates = append(s.Certificates, c.Certificate)
	}
	answer, err := a.Answer(s)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

type imprint struct {
	Algorithm pkix.AlgorithmIdentifier
	Digest    []byte
}

type stampInfo struct {
	Version int
	Policy  asn1.ObjectIdentifier
	Imprint imprint
	Serial  *big.Int
	Time    time.Time `asn1:"generalized"`
	Nonce   *big.Int  `asn1:"optional"`
}

// Answer signs a time stamp, as a time-stamping authority answers. Package timestamp makes none with certificates that
// do not belong together.
func (a Authority) Answer(s Stamp) ([]byte, error) {
	sha := pkix.AlgorithmIdentifier{Algorithm: pkcs7.OIDDigestAlgorithmSHA256, Parameters: asn1.NullRawValue}
	info, err := asn1.Marshal(stampInfo{
		Version: 1, Policy: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 2}, Imprint: imprint{sha, s.Digest},
		Serial: big.NewInt(1), Time: s.Time.UTC().Truncate(time.Second), Nonce: s.Nonce,
	})
	if err != nil {
		return nil, err
	}
	signed, err := pkcs7.NewSignedData(info)
	if err != nil {
		return nil, err
	}
	signed.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	signed.SetContentType(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 1, 4}) // a time stamp's content
	signed.GetSignedData().Version = 3
	for _, c := range s.Certificates {
		signed.AddCertificate(c)
	}
	sign := signed.AddSigner
	if s.NoSigningTime {
		sign = signed.SignWithoutAttr
	}
	err = sign(a.Certificate, a.Key, pkcs7.SignerInfoConfig{SkipCertificates: true})
	token, finishErr := signed.Finish()
	if err := errors.Join(err, finishErr); err != nil {
		return nil, err
	}
	return asn1.Marshal(struct {
		Status struct{ Status int }
		Token  asn1.RawValue
	}{Token: asn1.RawValue{FullBytes: token}})
}

// Stamps answers requests for time stamps. change may alter an answer before it is signed, and may be nil.
func (a Authority) Stamps(change func(*Stamp)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		var request *timestamp.Request
		if err == nil {
			request, err = timestamp.ParseRequest(body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		stamp := Stamp{Digest: request.HashedMessage, Time: time.Now(), Nonce: request.Nonce}
		if request.Certificates {
			stamp.Certificates = []*x509.Certificate{a.Certificate}
		}
		if change != nil {
			change(&stamp)
		}
		answer, err := a.Answer(stamp)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/timestamp-reply")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(answer)
	})
}
