package trust_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"log"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/sigstore"
)

// stampKeylessly signs a subject in both forms, with the stamp that make returns for a
// time at which the certificate is valid.
func stampKeylessly(t *testing.T, w sigstore.Sigstore, subject image.Digest, make func(signature []byte, at time.Time) []byte) map[string][]trust.Evidence {
	t.Helper()
	b := keylessly(t, w, trust.SignPredicateType, subject, func(b *protobundle.Bundle) {
		leaf := must(x509.ParseCertificate(b.GetVerificationMaterial().GetCertificate().GetRawBytes()))(t)
		stamp := make(b.GetDsseEnvelope().GetSignatures()[0].GetSig(), leaf.NotBefore.Add(time.Second))
		b.VerificationMaterial.TimestampVerificationData.Rfc3161Timestamps[0].SignedTimestamp = stamp
		b.VerificationMaterial.TlogEntries = nil
	})
	claim := sigstore.Claim(subject)
	a := w.SignClaim(t, claim, who, login)
	block, _ := pem.Decode([]byte(a[trust.CertificateAnnotation]))
	leaf := must(x509.ParseCertificate(block.Bytes))(t)
	raw := must(base64.StdEncoding.DecodeString(a[trust.SignatureAnnotation]))(t)
	text := must(json.Marshal(map[string]any{"SignedRFC3161Timestamp": make(raw, leaf.NotBefore.Add(time.Second))}))(t)
	a[trust.TimestampAnnotation] = string(text)
	delete(a, trust.LogAnnotation)
	return map[string][]trust.Evidence{"bundle": b, "claim": layered(t, trust.SimpleSigningMediaType, claim, a)}
}

// quietly fails where anything is printed meanwhile: what a stranger has put into a
// registry must not get onto the standard error of who looks at it.
func quietly(t *testing.T, do func()) {
	f := must(os.Create(filepath.Join(t.TempDir(), "stderr")))(t)
	stderr, was := os.Stderr, log.Writer()
	os.Stderr = f
	log.SetOutput(f)
	defer func() {
		os.Stderr = stderr
		log.SetOutput(was)
		require.NoError(t, f.Close())
		text := must(os.ReadFile(f.Name()))(t)
		require.Empty(t, string(text))
	}()
	do()
}

// The root of a time-stamping authority may have issued other certificates: these are no
// clocks, wherever the right one's certificate is put.
func TestStampsOfATrustedRootAreOfItsAuthorities(t *testing.T) {
	stampRoot := pki.Root(t, "corp root")
	tsa, second := stampRoot.Issue(t, stamping), stampRoot.Issue(t, stamping)
	server := stampRoot.Issue(t, pki.Spec{Name: "www", DNS: []string{"www.corp.example"}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	w, subject := sigstore.New(t).StampedBy(t, stampRoot.Certificate, tsa.Certificate), image.DigestOf([]byte("root"))
	p := keyless(t, w, identities(who, login)+noSCT+byStamp)
	later := time.Now().Add(10 * 24 * time.Hour)

	for _, c := range []struct {
		name  string
		stamp func(signature []byte, at time.Time) []byte
		want  string // "" is accepted
	}{
		{"the authority's", func(s []byte, at time.Time) []byte { return tsa.Stamp(t, s, at) }, ""},
		{"the authority's, without its certificate", func(s []byte, at time.Time) []byte { return tsa.StampWith(t, s, at) }, ""},
		{"a server's", func(s []byte, at time.Time) []byte { return server.Stamp(t, s, at) }, "its time stamp does not hold"},
		{"a server's behind the authority's", func(s []byte, at time.Time) []byte { return server.StampWith(t, s, at, tsa, server) }, "its time stamp does not hold"},
		{"a server's in front of the authority's", func(s []byte, at time.Time) []byte { return server.StampWith(t, s, at, server, tsa) }, "its time stamp does not hold"},
		{"another authority's of the same root", func(s []byte, at time.Time) []byte { return second.StampWith(t, s, at, tsa, second) }, "does not match the provided TSA certificate"},
		{"of another signature", func(_ []byte, at time.Time) []byte { return tsa.Stamp(t, []byte("x"), at) }, "its time stamp does not hold"},
		{"when the certificate had expired", func(s []byte, at time.Time) []byte { return tsa.Stamp(t, s, at.Add(time.Hour)) }, "does not accept"},
		{"with too many certificates", func(s []byte, at time.Time) []byte {
			return tsa.StampWith(t, s, at, slices.Repeat([]pki.Authority{tsa}, 17)...)
		}, "more than 16 certificates"},
		{"damaged", func([]byte, time.Time) []byte { return []byte{0x30, 0x80, 0x30, 0x80} }, "its time stamp does not hold"},
	} {
		for form, evidence := range stampKeylessly(t, w, subject, c.stamp) {
			t.Run(c.name+"/"+form, func(t *testing.T) {
				var err error
				quietly(t, func() { _, err = p.Verify(subject, evidence, later) })
				if c.want == "" {
					require.NoError(t, err)
					return
				}
				requireUntrusted(t, err, c.want)
				require.NotContains(t, err.Error(), "runtime error")
			})
		}
	}
	good := func(s []byte, at time.Time) []byte { return tsa.Stamp(t, s, at) }
	for form, evidence := range stampKeylessly(t, w, subject, good) {
		t.Run("in the future/"+form, func(t *testing.T) {
			untrusted(p.Verify(subject, evidence, time.Now().Add(-24*time.Hour)))(t, "which is to come")
		})
	}
}

// anybody's time stamps are taken without roots.
var anybody trust.TimestampRoots

func stampsBy(t *testing.T, a pki.Authority, at time.Time) func([]byte) ([]byte, error) {
	return func(signature []byte) ([]byte, error) { return a.Stamp(t, signature, at), nil }
}

// A signature with a time stamp that proves nothing is made again, or it would end with
// its certificate.
func TestASignatureWithoutAGoodTimestampIsMadeAgain(t *testing.T) {
	o := newOffice(t)
	stampRoot, other := pki.Root(t, "TSA Root"), pki.Root(t, "Other Root")
	tsa, stranger := stampRoot.Issue(t, stamping), other.Issue(t, stamping)
	leaf := o.issuer.Issue(t, pki.Spec{Email: []string{"release@corp.example"}, Usage: codeSigning})
	certified := must(signer(t, leaf.Key).WithCertificate("release.crt", leaf.PEM(), o.issuer.PEM(), time.Now()))(t)
	roots := must(trust.ParseTimestampRoots("tsa.pem", stampRoot.PEM()))(t)
	s := certified.WithTimestamps(stampsBy(t, tsa, time.Now()), roots)
	text := func(stamp []byte) string {
		return `{"SignedRFC3161Timestamp":"` + base64.StdEncoding.EncodeToString(stamp) + `"}`
	}
	root := subject("bundle")
	for name, c := range map[string]struct {
		change func(string) string
		layers int
	}{
		"good":                 {func(stamp string) string { return stamp }, 1},
		"text":                 {func(string) string { return "garbage" }, 2},
		"garbage":              {func(string) string { return text([]byte("garbage")) }, 2},
		"of another signature": {func(string) string { return text(tsa.Stamp(t, []byte("other"), time.Now())) }, 2},
		"none":                 {func(string) string { return "" }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var m ocispec.Manifest
			require.NoError(t, json.Unmarshal(sign(t, s, root, nil).Node.Data, &m))
			annotations := m.Layers[0].Annotations
			annotations[trust.TimestampAnnotation] = c.change(annotations[trust.TimestampAnnotation])
			existing := must(json.Marshal(m))(t)
			require.NoError(t, json.Unmarshal(sign(t, s, root, existing).Node.Data, &m))
			require.Len(t, m.Layers, c.layers)
		})
	}
	foreign := certified.WithTimestamps(stampsBy(t, stranger, time.Now()), anybody)
	others := sign(t, foreign, root, nil)
	var m ocispec.Manifest
	require.NoError(t, json.Unmarshal(sign(t, s, root, others.Node.Data).Node.Data, &m))
	require.Len(t, m.Layers, 2, "by an authority that was not asked for")

	bare := must(signer(t, leaf.Key).WithCertificate("release.crt", leaf.PEM(), nil, time.Now()))(t)
	unchained := sign(t, bare, root, nil)
	chained := sign(t, certified, root, unchained.Node.Data)
	require.NoError(t, json.Unmarshal(chained.Node.Data, &m))
	require.Len(t, m.Layers, 2, "the chain was forgotten at first")
	require.Equal(t, chained.Node.Data, sign(t, bare, root, chained.Node.Data).Node.Data)

	r := repoWith(t, true)
	pushed := r.push(t)
	signed := must(foreign.SignBundle(r.subject(t, pushed)))(t)
	r.put(t, signed)
	require.True(t, certified.HasSigned(pushed, r.evidence(t, pushed)))
	require.False(t, s.HasSigned(pushed, r.evidence(t, pushed)))
}
