package trust_test

import (
	"bytes"
	"encoding/json"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

const slsa = "https://slsa.dev/provenance/v1"

// What the acceptance key attests accepts nothing, under whatever tag it is put.
func TestOwnAttestationsAreNoSignatures(t *testing.T) {
	s, blobs := newSigner(t), store{}
	signed, err := s.Attest(subject("root"), "", slsa, []byte(`{"a":1}`), nil)
	require.NoError(t, err)
	require.Equal(t, "sha256-"+subject("root").Hex()+".att", signed.Tag)
	_, err = policy(t, 1, key(t, "k", s, trust.KeyOptions{})).Verify(subject("root"), blobs.evidence(t, blobs.keep(signed)), now)
	requireUntrusted(t, err, "it has no signature")

	// The same layer called a claim, and called a bundle.
	var m ocispec.Manifest
	require.NoError(t, json.Unmarshal(signed.Manifest, &m))
	for _, mediaType := range []string{trust.SimpleSigningMediaType, trust.BundleMediaType} {
		layer := m.Layers[0]
		layer.MediaType = mediaType
		_, err = policy(t, 1, key(t, "k", s, trust.KeyOptions{})).Verify(subject("root"), blobs.evidence(t, blobs.manifest(t, layer)), now)
		requireUntrusted(t, err, "1 signature, none by a key")
	}
}

func TestAttestationsAreAddedToOthers(t *testing.T) {
	s := newSigner(t)
	first, err := s.Attest(subject("root"), "", slsa, []byte(`{"a":1}`), nil)
	require.NoError(t, err)
	second, err := newSigner(t).Attest(subject("root"), "", "https://spdx.dev/Document", []byte(`{}`), first.Manifest)
	require.NoError(t, err)
	var m ocispec.Manifest
	require.NoError(t, json.Unmarshal(second.Manifest, &m))
	require.Len(t, m.Layers, 2)
	require.Equal(t, slsa, m.Layers[0].Annotations[trust.PredicateAnnotation])
	require.Equal(t, "https://spdx.dev/Document", m.Layers[1].Annotations[trust.PredicateAnnotation])
	signature := sign(t, s, subject("root"), nil)
	_, err = s.Attest(subject("root"), "", slsa, []byte(`{}`), signature.Manifest)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err))
}

func TestBadAttestationsAreRefused(t *testing.T) {
	s := newSigner(t)
	for name, c := range map[string]struct {
		subject   image.Digest
		predicate string
		data      []byte
	}{
		"no subject":              {image.Digest{}, slsa, []byte(`{}`)},
		"no type":                 {subject("root"), "", []byte(`{}`)},
		"the type that accepts":   {subject("root"), trust.SignPredicateType, []byte(`{}`)},
		"no JSON":                 {subject("root"), slsa, []byte(`{`)},
		"more than anybody reads": {subject("root"), slsa, append([]byte(`"`), append(bytes.Repeat([]byte("x"), 9<<20), '"')...)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Attest(c.subject, "", c.predicate, c.data, nil)
			require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
		})
	}
}
