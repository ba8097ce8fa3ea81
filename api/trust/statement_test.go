package trust_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

// attested has signers state something about a subject, each under the same tag.
func attested(t *testing.T, blobs store, about, predicate string, by ...*trust.Signer) ocispec.Descriptor {
	t.Helper()
	var existing bundle.Referrer
	var d ocispec.Descriptor
	for _, s := range by {
		existing = must(s.Attest(subject(about), "", slsa, []byte(predicate), existing))(t)
		d = blobs.keep(existing)
	}
	return d
}

func statements(t *testing.T, blobs store, manifests ...ocispec.Descriptor) []trust.Statement {
	t.Helper()
	return must(trust.ReadStatements(t.Context(), blobs, manifests, slsa))(t)
}

func TestStatementsAreHeldAgainstThePolicy(t *testing.T) {
	a, b, stranger := newSigner(t), newSigner(t), newSigner(t)
	one := policy(t, 1, key(t, "a", a), key(t, "b", b))
	two := policy(t, 2, key(t, "a", a), key(t, "b", b))
	blobs := store{}

	v, predicate, err := one.VerifyStatement(subject("root"), statements(t, blobs, attested(t, blobs, "root", `{"x":1}`, stranger, a)), now)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, v.Keys())
	require.JSONEq(t, `{"x":1}`, string(predicate))

	refused := func(p *trust.Policy, about string, s []trust.Statement, want ...string) {
		v, predicate, err := p.VerifyStatement(subject(about), s, now)
		requireUntrusted(t, err, want...)
		require.Empty(t, v.Keys())
		require.Nil(t, predicate)
	}
	refused(one, "root", nil, "there is no such statement")
	refused(nil, "root", statements(t, blobs, attested(t, blobs, "root", `{}`, a)), "the trust policy is empty")
	refused(one, "root", statements(t, blobs, attested(t, blobs, "root", `{}`, stranger)), "by none of these keys")
	refused(one, "root", statements(t, blobs, attested(t, blobs, "other", `{}`, a)), "of another digest, "+subject("other").String())
	refused(one.WithRevokedDigests(subject("root")), "root", statements(t, blobs, attested(t, blobs, "root", `{}`, a)), "revoked this digest")
	refused(policy(t, 1, key(t, "a", a, trust.Entry{Revoked: true})), "root", statements(t, blobs, attested(t, blobs, "root", `{}`, a)), "by the key a, revoked")

	// A manifest that is listed and not there hides no other.
	gone := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString("gone"), Size: 4}
	listed := []ocispec.Descriptor{gone, attested(t, blobs, "root", `{}`, a)}
	_, _, err = one.VerifyStatement(subject("root"), statements(t, blobs, listed...), now)
	require.NoError(t, err)

	// A threshold counts those who state the same.
	v, _, err = two.VerifyStatement(subject("root"), statements(t, blobs, attested(t, blobs, "root", `{"x":1}`, a, b)), now)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, v.Keys())
	both := statements(t, blobs, attested(t, blobs, "root", `{"x":1}`, a), attested(t, blobs, "root", `{"x":2}`, b))
	refused(two, "root", both, "signed by 1 distinct key", "where the policy wants 2")
	refused(two, "root", statements(t, blobs, attested(t, blobs, "root", `{"x":1}`, a, a)), "signed by 1 distinct key (a)")
	_, _, err = one.VerifyStatement(subject("root"), both, now)
	require.NoError(t, err)
	_, _, err = two.VerifyStatement(subject("root"), both, now)
	require.Contains(t, fault.HintOf(err), "a policy of threshold 1")
}

func TestStatementsOfCertificatesAndTheirTimeStamps(t *testing.T) {
	o := newOffice(t)
	tsaRoot := pki.Root(t, "Time")
	tsa := tsaRoot.Issue(t, stamping)
	before := now.Add(-2 * time.Hour)
	leaf := o.issuer.Issue(t, pki.Spec{Name: "signer", Email: []string{"release@corp.example"}, Usage: codeSigning, NotAfter: now.Add(-time.Hour)})
	s := must(signer(t, leaf.Key).WithCertificate("signer.crt", leaf.PEM(), o.issuer.PEM(), before))(t)
	stamped := s.WithTimestamps(stampsBy(t, tsa, before), anybody)
	p := certificates(t, 1, o.ca(t, trust.CA{TimestampRoots: tsaRoot.PEM()}))
	blobs := store{}
	v, _, err := p.VerifyStatement(subject("root"), statements(t, blobs, attested(t, blobs, "root", "{}", stamped)), now)
	require.NoError(t, err)
	require.Equal(t, []string{"corp"}, v.Keys())
	_, _, err = p.VerifyStatement(subject("root"), statements(t, blobs, attested(t, blobs, "root", "{}", s)), now)
	requireUntrusted(t, err, "the signature has no time stamp")
	_, _, err = p.VerifyStatement(subject("root"), statements(t, blobs, attested(t, blobs, "root", "{}", s)), before)
	require.NoError(t, err)
}

// A statement that accepts is no statement to be told; the other way round: TestOwnAttestationsAreNoSignatures.
func TestStatementsAndSignaturesAreNotMistakenForEachOther(t *testing.T) {
	s, blobs := newSigner(t), store{}
	signature := blobs.keep(sign(t, s, subject("root"), nil))
	require.Empty(t, statements(t, blobs, signature))
	attestation := attested(t, blobs, "root", "{}", s)

	var m ocispec.Manifest
	require.NoError(t, json.Unmarshal(blobs[attestation.Digest.String()], &m))
	for kind, want := range map[string]string{slsa: "", spdx: "left out"} {
		layer := m.Layers[0]
		layer.Annotations = map[string]string{trust.PredicateAnnotation: kind}
		found := statements(t, blobs, blobs.manifest(t, layer))
		require.Equal(t, want == "", len(found) == 1)
	}
	other := must(s.Attest(subject("root"), "", spdx, []byte("{}"), bundle.Referrer{}))(t)
	require.NoError(t, json.Unmarshal(other.Node.Data, &m))
	blobs.keep(other)
	m.Layers[0].Annotations[trust.PredicateAnnotation] = slsa
	require.Empty(t, statements(t, blobs, blobs.manifest(t, m.Layers[0])), "the statement's own type counts")
}

func TestStatementsAreBounded(t *testing.T) {
	blobs := store{}
	data := []byte(strings.Repeat("x", 1<<20))
	layer := blobs.add(trust.EnvelopeMediaType, data)
	var layers []ocispec.Descriptor
	for range 17 {
		layers = append(layers, layer)
	}
	_, err := trust.ReadStatements(t.Context(), blobs, []ocispec.Descriptor{blobs.manifest(t, layers...)}, slsa)
	require.ErrorContains(t, err, "there are more than 256, or more than 16777216 bytes of them")
	require.Equal(t, fault.Untrusted, fault.ReasonOf(err))
	other := must(json.Marshal(ocispec.Manifest{
		Layers: layers, Annotations: map[string]string{"dev.sigstore.bundle.predicateType": spdx},
	}))(t)
	large := blobs.add(ocispec.MediaTypeImageManifest, other)
	require.Empty(t, statements(t, blobs, large), "an SBOM takes no room")
	small := blobs.add(trust.EnvelopeMediaType, []byte("{}"))
	layers = layers[:0]
	for range 200 {
		layers = append(layers, small)
	}
	m := blobs.manifest(t, layers...)
	fails(trust.ReadStatements(t.Context(), blobs, []ocispec.Descriptor{m, m}, slsa))(t, "", "there are more than 256")

	p := policy(t, 1, key(t, "k", newSigner(t)))
	for text, want := range map[string]string{
		"": "damaged: not an envelope", "[]": "damaged: not an envelope", "{}": `of a payload of type ""`,
		`{"payloadType":"application/vnd.in-toto+json","payload":"e30="}`: "of a statement of type",
	} {
		found := statements(t, blobs, blobs.manifest(t, blobs.add(trust.EnvelopeMediaType, []byte(text))))
		_, _, err := p.VerifyStatement(subject("root"), found, now)
		requireUntrusted(t, err, want)
	}
}

const slsa, spdx = "https://slsa.dev/provenance/v1", "https://spdx.dev/Document"

func TestAnEnvelopeMayHaveTheSignaturesOfSeveralKeys(t *testing.T) {
	a, b, blobs := newSigner(t), newSigner(t), store{}
	var both dsse.Envelope
	for _, s := range []*trust.Signer{a, b} {
		signed := must(s.Attest(subject("root"), "", slsa, []byte(`{"a":1}`), bundle.Referrer{}))(t)
		at := slices.IndexFunc(signed.Blobs, func(d ocispec.Descriptor) bool {
			return d.MediaType == trust.EnvelopeMediaType
		})
		before := slices.Clone(both.Signatures)
		require.NoError(t, json.Unmarshal(signed.Blobs[at].Data, &both))
		both.Signatures = append(before, both.Signatures...)
	}
	layer := blobs.add(trust.EnvelopeMediaType, must(json.Marshal(both))(t))
	p := policy(t, 2, key(t, "a", a), key(t, "b", b))
	_, _, err := p.VerifyStatement(subject("root"), statements(t, blobs, blobs.manifest(t, layer)), now)
	require.NoError(t, err)
}

// What the acceptance key attests accepts nothing, under whatever tag it is put.
func TestOwnAttestationsAreNoSignatures(t *testing.T) {
	s, blobs := newSigner(t), store{}
	signed := must(s.Attest(subject("root"), "", slsa, []byte(`{"a":1}`), bundle.Referrer{}))(t)
	require.Equal(t, "sha256-"+subject("root").Hex()+".att", signed.Tag)
	p := policy(t, 1, key(t, "k", s))
	untrusted(verify(p, blobs.evidence(t, blobs.keep(signed))))(t, "it has no signature")

	// The same layer called a claim, and called a bundle.
	var m ocispec.Manifest
	require.NoError(t, json.Unmarshal(signed.Node.Data, &m))
	for _, mediaType := range []string{trust.SimpleSigningMediaType, trust.BundleMediaType} {
		layer := m.Layers[0]
		layer.MediaType = mediaType
		untrusted(verify(p, blobs.evidence(t, blobs.manifest(t, layer))))(t, "no trusted signature: 1 found")
	}
}

func TestAttestationsAreAddedToOthers(t *testing.T) {
	s := newSigner(t)
	first := must(s.Attest(subject("root"), "", slsa, []byte(`{"a":1}`), bundle.Referrer{}))(t)
	second := must(newSigner(t).Attest(subject("root"), "", spdx, []byte(`{}`), first))(t)
	var m ocispec.Manifest
	require.NoError(t, json.Unmarshal(second.Node.Data, &m))
	require.Len(t, m.Layers, 2)
	require.Equal(t, slsa, m.Layers[0].Annotations[trust.PredicateAnnotation])
	require.Equal(t, spdx, m.Layers[1].Annotations[trust.PredicateAnnotation])
	signature := sign(t, s, subject("root"), nil)
	fails(s.Attest(subject("root"), "", slsa, []byte(`{}`), signature))(t, fault.Conflict)
	fails(s.Attest(image.Digest{}, "", slsa, []byte(`{}`), bundle.Referrer{}))(t, fault.InvalidInput)
}
