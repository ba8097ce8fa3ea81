package keyless_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/testing/data"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust/keyless"
)

const (
	login = "https://login.corp.example"
	who   = "release@corp.example"
)

// store is a Fetcher over bytes in memory.
type store map[digest.Digest][]byte

func (s store) Fetch(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(s[d.Digest])), nil
}

func (s store) add(mediaType string, data []byte, annotations map[string]string) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data)), Annotations: annotations}
	s[d.Digest] = data
	return d
}

func (s store) evidence(t *testing.T, layer ocispec.Descriptor) []trust.Evidence {
	t.Helper()
	manifest, err := json.Marshal(ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Layers: []ocispec.Descriptor{layer}})
	require.NoError(t, err)
	out, err := trust.ReadEvidence(t.Context(), s, s.add(ocispec.MediaTypeImageManifest, manifest, nil))
	require.NoError(t, err)
	return out
}

// works is a sigstore of our own: certificate authority, log and time stamps.
type works struct {
	*ca.VirtualSigstore
	root string
}

func newWorks(t *testing.T) works {
	t.Helper()
	v, err := ca.NewVirtualSigstore()
	require.NoError(t, err)
	logs := v.RekorLogs()
	for id, log := range logs { // the library's stand-in has the id in hex
		log.ID, err = hex.DecodeString(id)
		require.NoError(t, err)
	}
	trusted, err := root.NewTrustedRoot(root.TrustedRootMediaType01, v.FulcioCertificateAuthorities(), v.CTLogs(), v.TimestampingAuthorities(), logs)
	require.NoError(t, err)
	data, err := trusted.MarshalJSON()
	require.NoError(t, err)
	return works{v, string(data)}
}

const header = "apiVersion: vdo.vmware.com/trust/v1\nkind: TrustPolicy\n"

func policyText(rootJSON, more string) string {
	return header + "keyless:\n- id: corp\n  trustedRoot: '" + rootJSON + "'\n" + more
}

func identities(subject, issuer string) string {
	return fmt.Sprintf("  identities:\n  - {subject: %q, issuer: %q}\n", subject, issuer)
}

const noSCT = "  withoutCertificateLog: true\n" // the tests' authority has no certificate log

func (w works) policy(t *testing.T, more string) *trust.Policy {
	t.Helper()
	p, err := trust.ParsePolicy("policy.yaml", []byte(policyText(w.root, more)), nil, trust.WithSigstore(keyless.Open))
	require.NoError(t, err)
	return p
}

func statement(t *testing.T, predicate string, subject image.Digest) []byte {
	t.Helper()
	data, err := json.Marshal(map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": predicate, "predicate": map[string]any{},
		"subject": []any{map[string]any{"name": "x", "digest": map[string]string{"sha256": subject.Hex()}}},
	})
	require.NoError(t, err)
	return data
}

// attested signs a statement keylessly, in a bundle of the new form.
func (w works) attested(t *testing.T, predicate string, subject image.Digest, change func(*protobundle.Bundle)) []trust.Evidence {
	t.Helper()
	payload := statement(t, predicate, subject)
	entity, err := w.AttestAtTime(who, login, payload, time.Now().Add(5*time.Minute), true)
	require.NoError(t, err)
	b := &protobundle.Bundle{MediaType: trust.BundleMediaType, VerificationMaterial: w.material(t, entity)}
	content, err := entity.SignatureContent()
	require.NoError(t, err)
	b.Content = &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
		Payload: payload, PayloadType: "application/vnd.in-toto+json",
		Signatures: []*protodsse.Signature{{Sig: content.Signature()}},
	}}
	if change != nil {
		change(b)
	}
	data, err := protojson.Marshal(b)
	require.NoError(t, err)
	s := store{}
	return s.evidence(t, s.add(trust.BundleMediaType, data, nil))
}

// entries returns the log's entries of a signature, with what the library's stand-in
// for the log leaves out: kind, version and promise.
func (w works) entries(t *testing.T, entity *ca.TestEntity) (out []*protorekor.TransparencyLogEntry) {
	t.Helper()
	entries, err := entity.TlogEntries()
	require.NoError(t, err)
	for _, entry := range entries {
		e := entry.TransparencyLogEntry()
		var kind struct{ Kind, APIVersion string }
		require.NoError(t, json.Unmarshal(e.GetCanonicalizedBody(), &kind))
		e.KindVersion = &protorekor.KindVersion{Kind: kind.Kind, Version: kind.APIVersion}
		promise, err := w.RekorSignPayload(tlog.RekorPayload{
			Body: base64.StdEncoding.EncodeToString(e.GetCanonicalizedBody()), IntegratedTime: e.GetIntegratedTime(),
			LogIndex: e.GetLogIndex(), LogID: hex.EncodeToString(e.GetLogId().GetKeyId()),
		})
		require.NoError(t, err)
		e.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: promise}
		out = append(out, e)
	}
	return out
}

func (w works) material(t *testing.T, entity *ca.TestEntity) *protobundle.VerificationMaterial {
	t.Helper()
	content, err := entity.VerificationContent()
	require.NoError(t, err)
	m := &protobundle.VerificationMaterial{Content: &protobundle.VerificationMaterial_Certificate{
		Certificate: &protocommon.X509Certificate{RawBytes: content.Certificate().Raw},
	}}
	m.TlogEntries = w.entries(t, entity)
	stamps, err := entity.Timestamps()
	require.NoError(t, err)
	m.TimestampVerificationData = &protobundle.TimestampVerificationData{}
	for _, s := range stamps {
		m.TimestampVerificationData.Rfc3161Timestamps = append(m.TimestampVerificationData.Rfc3161Timestamps,
			&protocommon.RFC3161SignedTimestamp{SignedTimestamp: s})
	}
	return m
}

func requireUntrusted(t *testing.T, err error, want string) {
	t.Helper()
	require.Equal(t, fault.Untrusted, fault.ReasonOf(err), "%v", err)
	require.ErrorContains(t, err, want)
}

func TestKeylessSignaturesOfTheNewForm(t *testing.T) {
	w, subject := newWorks(t), image.DigestOf([]byte("root"))
	now := time.Now().Add(24 * time.Hour) // long after the certificate
	good := identities(who, login) + noSCT
	v, err := w.policy(t, good).Verify(subject, w.attested(t, trust.SignPredicateType, subject, nil), now)
	require.NoError(t, err)
	require.Equal(t, []string{"corp"}, v.Keys())

	for name, c := range map[string]struct {
		policy   *trust.Policy
		evidence []trust.Evidence
		want     string
	}{
		"another digest":      {w.policy(t, good), w.attested(t, trust.SignPredicateType, image.DigestOf([]byte("x")), nil), "of another digest"},
		"another predicate":   {w.policy(t, good), w.attested(t, "https://slsa.dev/provenance/v1", subject, nil), "accepts nothing"},
		"another subject":     {w.policy(t, identities("x"+who, login)+noSCT), w.attested(t, trust.SignPredicateType, subject, nil), "does not accept"},
		"another issuer":      {w.policy(t, identities(who, login+".evil")+noSCT), w.attested(t, trust.SignPredicateType, subject, nil), "does not accept"},
		"another root":        {newWorks(t).policy(t, good), w.attested(t, trust.SignPredicateType, subject, nil), "does not accept"},
		"no certificate log":  {w.policy(t, identities(who, login)), w.attested(t, trust.SignPredicateType, subject, nil), "signed certificate timestamp"},
		"revoked":             {w.policy(t, good+"  revoked: true\n"), w.attested(t, trust.SignPredicateType, subject, nil), "revoked"},
		"no transparency log": {w.policy(t, good), w.attested(t, trust.SignPredicateType, subject, func(b *protobundle.Bundle) { b.VerificationMaterial.TlogEntries = nil }), "does not accept"},
		"the log entry of another": {w.policy(t, good), w.attested(t, trust.SignPredicateType, subject, func(b *protobundle.Bundle) {
			other, err := w.AttestAtTime(who, login, statement(t, trust.SignPredicateType, image.DigestOf([]byte("y"))), time.Now().Add(5*time.Minute), true)
			require.NoError(t, err)
			b.VerificationMaterial.TlogEntries = w.material(t, other).TlogEntries
		}), "does not accept"},
		"a certificate that is no one's": {w.policy(t, good), w.attested(t, trust.SignPredicateType, subject, func(b *protobundle.Bundle) {
			other, err := w.AttestAtTime(who, login, []byte("{}"), time.Now().Add(5*time.Minute), true)
			require.NoError(t, err)
			b.VerificationMaterial.Content = w.material(t, other).Content
		}), "by another key than that of its certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.policy.Verify(subject, c.evidence, now)
			requireUntrusted(t, err, c.want)
		})
	}
}

func TestTimeStampInPlaceOfTheLog(t *testing.T) {
	w, subject := newWorks(t), image.DigestOf([]byte("root"))
	now := time.Now().Add(24 * time.Hour)
	evidence := w.attested(t, trust.SignPredicateType, subject, func(b *protobundle.Bundle) { b.VerificationMaterial.TlogEntries = nil })
	_, err := w.policy(t, identities(who, login)+noSCT+"  withoutTransparencyLog: true\n").Verify(subject, evidence, now)
	require.NoError(t, err)
	bare := w.attested(t, trust.SignPredicateType, subject, func(b *protobundle.Bundle) {
		b.VerificationMaterial.TlogEntries, b.VerificationMaterial.TimestampVerificationData = nil, nil
	})
	_, err = w.policy(t, identities(who, login)+noSCT+"  withoutTransparencyLog: true\n").Verify(subject, bare, now)
	requireUntrusted(t, err, "does not accept")
}

// The form that cosign has written for years: a claim with annotations, and the log's
// promise.
func TestKeylessSignaturesOfTheOldForm(t *testing.T) {
	w, subject := newWorks(t), image.DigestOf([]byte("root"))
	now := time.Now().Add(24 * time.Hour)
	claim := []byte(`{"critical":{"identity":{"docker-reference":"x.test/y"},"image":{"docker-manifest-digest":"` + subject.String() +
		`"},"type":"cosign container image signature"},"optional":null}`)
	entity, err := w.SignAtTime(who, login, claim, time.Now().Add(5*time.Minute))
	require.NoError(t, err)
	content, err := entity.SignatureContent()
	require.NoError(t, err)
	certificate, err := entity.VerificationContent()
	require.NoError(t, err)
	entry := w.entries(t, entity)[0]
	annotations := func() map[string]string {
		return map[string]string{
			trust.SignatureAnnotation:   base64.StdEncoding.EncodeToString(content.Signature()),
			trust.CertificateAnnotation: pemText(certificate.Certificate().Raw),
			trust.LogAnnotation:         logText(t, entry),
		}
	}
	s := store{}
	p := w.policy(t, identities(who, login)+noSCT)
	v, err := p.Verify(subject, s.evidence(t, s.add(trust.SimpleSigningMediaType, claim, annotations())), now)
	require.NoError(t, err)
	require.Equal(t, []string{"corp"}, v.Keys())

	for name, change := range map[string]func(map[string]string){
		"no log entry":        func(a map[string]string) { delete(a, trust.LogAnnotation) },
		"a damaged log entry": func(a map[string]string) { a[trust.LogAnnotation] = "{" },
		"another time": func(a map[string]string) {
			a[trust.LogAnnotation] = strings.Replace(a[trust.LogAnnotation], `"integratedTime":`, `"integratedTime":1`, 1)
		},
		"no certificate": func(a map[string]string) { delete(a, trust.CertificateAnnotation) },
	} {
		t.Run(name, func(t *testing.T) {
			changed := annotations()
			change(changed)
			s := store{}
			_, err := p.Verify(subject, s.evidence(t, s.add(trust.SimpleSigningMediaType, claim, changed)), now)
			require.Equal(t, fault.Untrusted, fault.ReasonOf(err), "%v", err)
		})
	}
}

func pemText(der []byte) string {
	return "-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(der) + "\n-----END CERTIFICATE-----\n"
}

// logText is what cosign keeps in the annotation.
func logText(t *testing.T, e *protorekor.TransparencyLogEntry) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{
		"SignedEntryTimestamp": e.GetInclusionPromise().GetSignedEntryTimestamp(),
		"Payload": map[string]any{
			"body": e.GetCanonicalizedBody(), "integratedTime": e.GetIntegratedTime(), "logIndex": e.GetLogIndex(),
			"logID": hex.EncodeToString(e.GetLogId().GetKeyId()),
		},
	})
	require.NoError(t, err)
	return string(data)
}

// A signature of the public sigstore, with certificate log and transparency log, is
// checked without a network and with nothing left out.
func TestPublicSignatureIsCheckedInFull(t *testing.T) {
	trusted, err := data.TrustedRoot(t, "public-good.json").MarshalJSON()
	require.NoError(t, err)
	s, err := keyless.Open(trusted, trust.SigstoreOptions{})
	require.NoError(t, err)
	b := data.Bundle(t, "sigstore.js@2.0.0-provenance.sigstore.json").Bundle
	sha512 := b.GetDsseEnvelope().GetPayload()
	require.Contains(t, string(sha512), "sha512") // it names no sha256, so that no image can be meant
	err = s.Verify(b, nil, image.DigestOf([]byte("x")), []trust.KeylessIdentity{{
		Issuer: "https://token.actions.githubusercontent.com", Subject: "https://github.com/sigstore/sigstore-js/.github/workflows/release.yml@refs/heads/main",
	}})
	require.ErrorContains(t, err, "digest", "everything but the digest is right")
	err = s.Verify(b, nil, image.DigestOf([]byte("x")), nil)
	require.ErrorContains(t, err, "no identity")
}

// Roots, log keys and time-stamping authorities are those of the file; neither the
// public sigstore nor anybody else is asked.
func TestNoNetwork(t *testing.T) {
	transport, ok := http.DefaultTransport.(*http.Transport)
	require.True(t, ok)
	dial := func(_ context.Context, _, to string) (net.Conn, error) {
		t.Errorf("this package dialled %s", to)
		return nil, errors.New("no network")
	}
	oldDial, oldResolver := transport.DialContext, net.DefaultResolver
	transport.DialContext = dial
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: dial}
	t.Cleanup(func() { transport.DialContext, net.DefaultResolver = oldDial, oldResolver })
	t.Setenv("TUF_ROOT", filepath.Join(t.TempDir(), "none"))

	w, subject := newWorks(t), image.DigestOf([]byte("root"))
	evidence := w.attested(t, trust.SignPredicateType, subject, nil)
	_, err := w.policy(t, identities(who, login)+noSCT).Verify(subject, evidence, time.Now())
	require.NoError(t, err)
	_, err = newWorks(t).policy(t, identities(who, login)).Verify(subject, evidence, time.Now())
	requireUntrusted(t, err, "does not accept")
	_, err = os.Stat(os.Getenv("TUF_ROOT"))
	require.ErrorIs(t, err, os.ErrNotExist, "trust roots were sought on the disk")
}

func TestBadKeylessEntriesAreExplained(t *testing.T) {
	w := newWorks(t)
	for text, want := range map[string]string{
		policyText(w.root, ""):                                              "everyone with a login would be accepted",
		policyText(w.root, "  identities: []\n"):                            "everyone with a login would be accepted",
		policyText(w.root, identities("", login)):                           "both issuer and subject",
		policyText(w.root, identities(who, "")):                             "both issuer and subject",
		policyText(w.root, identities("*@corp.example", login)):             "no exact name",
		policyText("", identities(who, login)):                              "never fetched",
		policyText("{}", identities(who, login)):                            "trusted root",
		policyText("x", identities(who, login)):                             "read trusted root",
		policyText(w.root, identities(who, login)+"  trustedRootFile: x\n"): "not both",
		policyText(w.root, identities(who, login)) + "threshold: 2\n":       "can never be met",
		policyText(w.root, identities(who, login)+"  issuerRegexp: x\n"):    "issuerRegexp is not known",
		policyText(w.root, identities(who, login)) + "- id: b\n  trustedRoot: '" + w.root + "'\n" + identities(who, login): "in two entries",
	} {
		_, err := trust.ParsePolicy("policy.yaml", []byte(text), nil, trust.WithSigstore(keyless.Open))
		require.ErrorContains(t, err, want)
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
	}
	_, err := trust.ParsePolicy("policy.yaml", []byte(policyText(w.root, identities(who, login))), nil)
	require.ErrorContains(t, err, "does not verify keyless signatures")

	p := w.policy(t, identities(who, login)+noSCT)
	once, err := p.YAML()
	require.NoError(t, err)
	again, err := trust.ParsePolicy("policy.yaml", once, nil, trust.WithSigstore(keyless.Open))
	require.NoError(t, err)
	twice, err := again.YAML()
	require.NoError(t, err)
	require.Equal(t, string(once), string(twice))
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1","certificateAuthorities":[{}],"tlogs":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := keyless.Open(data, trust.SigstoreOptions{})
		if err == nil {
			require.Error(t, s.Verify(&protobundle.Bundle{}, nil, image.DigestOf(nil), []trust.KeylessIdentity{{Issuer: "a", Subject: "b"}}))
		}
	})
}
