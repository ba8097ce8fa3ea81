package trust_test

import (
	"encoding/json"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

const slsa, spdx = "https://slsa.dev/provenance/v1", "https://spdx.dev/Document"

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
