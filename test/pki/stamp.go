package pki

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"io"
	"math/big"
	"net/http"
	"testing"
	"time"
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

var (
	oidSHA256        = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}
	oidECDSA         = asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2} // with SHA-256
	oidSignedData    = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}
	oidTSTInfo       = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 1, 4}
	oidContentType   = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 3}
	oidMessageDigest = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 4}
	oidSigningTime   = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 5}

	algorithmSHA256 = pkix.AlgorithmIdentifier{Algorithm: oidSHA256, Parameters: asn1.NullRawValue}
)

type imprint struct {
	Algorithm pkix.AlgorithmIdentifier
	Digest    []byte
}

type stampRequest struct {
	Version      int
	Imprint      imprint
	Policy       asn1.ObjectIdentifier `asn1:"optional"`
	Nonce        *big.Int              `asn1:"optional"`
	Certificates bool                  `asn1:"optional"`
}

type stampInfo struct {
	Version int
	Policy  asn1.ObjectIdentifier
	Imprint imprint
	Serial  *big.Int
	Time    time.Time `asn1:"generalized"`
	Nonce   *big.Int  `asn1:"optional"`
}

type attribute struct {
	Type   asn1.ObjectIdentifier
	Values []any `asn1:"set"`
}

// Answer signs a time stamp, as a time-stamping authority answers.
func (a Authority) Answer(s Stamp) ([]byte, error) {
	info, err := asn1.Marshal(stampInfo{
		Version: 1, Policy: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 2}, Imprint: imprint{algorithmSHA256, s.Digest},
		Serial: big.NewInt(1), Time: s.Time.UTC().Truncate(time.Second), Nonce: s.Nonce,
	})
	if err != nil {
		return nil, err
	}
	signer, err := a.signerInfo(info, s)
	if err != nil {
		return nil, err
	}
	type content struct {
		Type asn1.ObjectIdentifier
		Data []byte `asn1:"explicit,tag:0"`
	}
	type signedData struct {
		Version      int
		Digests      []pkix.AlgorithmIdentifier `asn1:"set"`
		Content      content
		Certificates asn1.RawValue `asn1:"optional"`
		Signers      []any         `asn1:"set"`
	}
	data := signedData{
		Version: 3, Digests: []pkix.AlgorithmIdentifier{algorithmSHA256}, Content: content{oidTSTInfo, info}, Signers: []any{signer},
	}
	if len(s.Certificates) > 0 {
		data.Certificates = asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true}
		for _, c := range s.Certificates {
			data.Certificates.Bytes = append(data.Certificates.Bytes, c.Raw...)
		}
	}
	type token struct {
		Type    asn1.ObjectIdentifier
		Content signedData `asn1:"explicit,tag:0"`
	}
	return asn1.Marshal(struct {
		Status struct{ Status int }
		Token  token
	}{Token: token{oidSignedData, data}})
}

// signerInfo signs the content of a time stamp.
func (a Authority) signerInfo(info []byte, s Stamp) (any, error) {
	digest := sha256.Sum256(info)
	attributes := struct {
		All []attribute `asn1:"set"`
	}{[]attribute{{oidContentType, []any{oidTSTInfo}}, {oidMessageDigest, []any{digest[:]}}}}
	if !s.NoSigningTime {
		attributes.All = append(attributes.All, attribute{oidSigningTime, []any{time.Now().UTC()}})
	}
	der, err := asn1.Marshal(attributes)
	if err != nil {
		return nil, err
	}
	var set struct{ Raw asn1.RawValue }
	if _, err := asn1.Unmarshal(der, &set); err != nil {
		return nil, err
	}
	toSign := sha256.Sum256(set.Raw.FullBytes)
	signature, err := a.Key.Sign(rand.Reader, toSign[:], nil)
	type issuerAndSerial struct {
		Issuer asn1.RawValue
		Serial *big.Int
	}
	return struct {
		Version    int
		Signer     issuerAndSerial
		Digest     pkix.AlgorithmIdentifier
		Attributes asn1.RawValue
		Algorithm  pkix.AlgorithmIdentifier
		Signature  []byte
	}{
		Version: 1, Signer: issuerAndSerial{asn1.RawValue{FullBytes: a.Certificate.RawIssuer}, a.Certificate.SerialNumber}, Digest: algorithmSHA256,
		Attributes: asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: set.Raw.Bytes},
		Algorithm:  pkix.AlgorithmIdentifier{Algorithm: oidECDSA}, Signature: signature,
	}, err
}

// Stamps answers requests for time stamps. change may alter an answer before it is signed, and may be nil.
func (a Authority) Stamps(change func(*Stamp)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		var request stampRequest
		if err == nil {
			_, err = asn1.Unmarshal(body, &request)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		stamp := Stamp{Digest: request.Imprint.Digest, Time: time.Now(), Nonce: request.Nonce}
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
