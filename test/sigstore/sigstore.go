// Package sigstore is a sigstore for tests, without a certificate log. It has a CA for short-lived certificates, a
// transparency log, time stamps and their trusted root.
package sigstore

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"testing"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Sigstore is one sigstore.
type Sigstore struct {
	*ca.VirtualSigstore
	Root []byte // its trusted_root.json
}

// New makes a sigstore.
func New(t testing.TB) Sigstore {
	v, err := ca.NewVirtualSigstore()
	require.NoError(t, err)
	return Sigstore{v, trustedRoot(t, v, v.TimestampingAuthorities())}
}

// StampedBy returns the sigstore with another time-stamping authority in its trusted root. Its own authority still
// stamps its signatures.
func (s Sigstore) StampedBy(t testing.TB, stampRoot, signer *x509.Certificate) Sigstore {
	t.Helper()
	other := &root.SigstoreTimestampingAuthority{Root: stampRoot, Leaf: signer, ValidityPeriodStart: signer.NotBefore}
	return Sigstore{s.VirtualSigstore, trustedRoot(t, s.VirtualSigstore, []root.TimestampingAuthority{other})}
}

func trustedRoot(t testing.TB, v *ca.VirtualSigstore, stampers []root.TimestampingAuthority) []byte {
	logs := v.RekorLogs()
	for id, log := range logs { // the library's stand-in has the id in hex
		raw, err := hex.DecodeString(id)
		require.NoError(t, err)
		log.ID = raw
	}
	trusted, err := root.NewTrustedRoot(root.TrustedRootMediaType01, v.FulcioCertificateAuthorities(), v.CTLogs(), stampers, logs)
	require.NoError(t, err)
	data, err := trusted.MarshalJSON()
	require.NoError(t, err)
	return data
}

// soon is the time of signatures: the certificates of the library's stand-in begin a little later than now.
func soon() time.Time { return time.Now().Add(5 * time.Minute) }

// Claim returns the simple-signing claim about a digest.
func Claim(subject image.Digest) []byte {
	return []byte(`{"critical":{"identity":{"docker-reference":"x.test/y"},"image":{"docker-manifest-digest":"` + subject.String() +
		`"},"type":"cosign container image signature"},"optional":null}`)
}

// Statement returns an in-toto statement about a digest.
func Statement(predicate string, subject image.Digest) []byte {
	return fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","predicateType":%q,"predicate":{},`+
		`"subject":[{"name":"x","digest":{"sha256":%q}}]}`, predicate, subject.Hex())
}

// SignClaim signs a claim as the owner of a login. It returns the annotations of its layer in cosign's old format:
// with the log's entry and promise.
func (s Sigstore) SignClaim(t testing.TB, claim []byte, subject, issuer string) map[string]string {
	entity, err := s.SignAtTime(subject, issuer, claim, soon())
	require.NoError(t, err)
	content, err := entity.SignatureContent()
	require.NoError(t, err)
	certificate, err := entity.VerificationContent()
	require.NoError(t, err)
	e := s.entries(t, entity)[0]
	log, err := json.Marshal(map[string]any{
		"SignedEntryTimestamp": e.GetInclusionPromise().GetSignedEntryTimestamp(),
		"Payload": map[string]any{
			"body": e.GetCanonicalizedBody(), "integratedTime": e.GetIntegratedTime(), "logIndex": e.GetLogIndex(),
			"logID": hex.EncodeToString(e.GetLogId().GetKeyId()),
		},
	})
	require.NoError(t, err)
	stamps, err := entity.Timestamps()
	require.NoError(t, err)
	require.NotEmpty(t, stamps)
	stamp, err := json.Marshal(map[string]any{"SignedRFC3161Timestamp": stamps[0]})
	require.NoError(t, err)
	return map[string]string{
		"dev.cosignproject.cosign/signature":   base64.StdEncoding.EncodeToString(content.Signature()),
		"dev.sigstore.cosign/certificate":      string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate().Raw})),
		"dev.sigstore.cosign/bundle":           string(log),
		"dev.sigstore.cosign/rfc3161timestamp": string(stamp),
	}
}

// SignStatement signs a statement as the owner of a login, in a sigstore bundle.
func (s Sigstore) SignStatement(t testing.TB, statement []byte, subject, issuer string) *protobundle.Bundle {
	entity, err := s.AttestAtTime(subject, issuer, statement, soon(), true)
	require.NoError(t, err)
	content, err := entity.SignatureContent()
	require.NoError(t, err)
	return &protobundle.Bundle{
		MediaType: "application/vnd.dev.sigstore.bundle.v0.3+json", VerificationMaterial: s.material(t, entity),
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
			Payload: statement, PayloadType: "application/vnd.in-toto+json",
			Signatures: []*protodsse.Signature{{Sig: content.Signature()}},
		}},
	}
}

// entries returns the log's entries of a signature, and adds kind, version and promise, which the library's stand-in
// for the log omits.
func (s Sigstore) entries(t testing.TB, entity *ca.TestEntity) (out []*protorekor.TransparencyLogEntry) {
	entries, err := entity.TlogEntries()
	require.NoError(t, err)
	for _, entry := range entries {
		e := entry.TransparencyLogEntry()
		var kind struct{ Kind, APIVersion string }
		require.NoError(t, json.Unmarshal(e.GetCanonicalizedBody(), &kind))
		e.KindVersion = &protorekor.KindVersion{Kind: kind.Kind, Version: kind.APIVersion}
		promise, err := s.RekorSignPayload(tlog.RekorPayload{
			Body: base64.StdEncoding.EncodeToString(e.GetCanonicalizedBody()), IntegratedTime: e.GetIntegratedTime(),
			LogIndex: e.GetLogIndex(), LogID: hex.EncodeToString(e.GetLogId().GetKeyId()),
		})
		require.NoError(t, err)
		e.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: promise}
		out = append(out, e)
	}
	return out
}

func (s Sigstore) material(t testing.TB, entity *ca.TestEntity) *protobundle.VerificationMaterial {
	content, err := entity.VerificationContent()
	require.NoError(t, err)
	m := &protobundle.VerificationMaterial{Content: &protobundle.VerificationMaterial_Certificate{
		Certificate: &protocommon.X509Certificate{RawBytes: content.Certificate().Raw},
	}}
	m.TlogEntries = s.entries(t, entity)
	stamps, err := entity.Timestamps()
	require.NoError(t, err)
	m.TimestampVerificationData = &protobundle.TimestampVerificationData{}
	for _, stamp := range stamps {
		m.TimestampVerificationData.Rfc3161Timestamps = append(m.TimestampVerificationData.Rfc3161Timestamps,
			&protocommon.RFC3161SignedTimestamp{SignedTimestamp: stamp})
	}
	return m
}
