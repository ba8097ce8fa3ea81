package trust

import (
	"encoding/json"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	cosignbundle "github.com/sigstore/cosign/v2/pkg/cosign/bundle"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Annotations of a manifest with a sigstore bundle, as cosign writes them.
const (
	bundleContentAnnotation   = "dev.sigstore.bundle.content"
	bundlePredicateAnnotation = "dev.sigstore.bundle.predicateType"
)

// SignBundle signs what a descriptor names in the form that cosign 3 writes: a manifest
// that refers to it, with a sigstore bundle. The result has no tag. A sigstore bundle has
// room for the signer's certificate alone: who verifies has to have those between it and
// the root.
func (s *Signer) SignBundle(subject ocispec.Descriptor) (Signed, error) {
	return s.refer(subject, "", SignPredicateType, nil)
}

// AttestBundle is [Signer.Attest] in the form that cosign 3 writes.
func (s *Signer) AttestBundle(subject ocispec.Descriptor, identity, predicateType string, predicate []byte) (Signed, error) {
	if err := checkStatement(predicateType, predicate); err != nil {
		return Signed{}, fault.Errorf(fault.InvalidInput, "attest", subject.Digest.String(), "", "%w", err)
	}
	return s.refer(subject, identity, predicateType, predicate)
}

// refer signs a statement about a subject, as a referrer.
func (s *Signer) refer(subject ocispec.Descriptor, name, predicateType string, predicate []byte) (Signed, error) {
	digest, err := image.ParseDigest(subject.Digest.String())
	if err != nil {
		return Signed{}, fault.Errorf(fault.InvalidInput, "sign", "", "", "there is no digest to sign")
	}
	payload, err := statementOf(digest, name, predicateType, predicate)
	if err != nil {
		return Signed{}, err
	}
	text, err := s.bundled(payload)
	if err != nil {
		return Signed{}, err
	}
	config, layer := blobOf(ocispec.MediaTypeEmptyJSON, []byte("{}")), blobOf(BundleMediaType, text)
	data, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: BundleMediaType,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{layer.Descriptor},
		Subject: &ocispec.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size},
		Annotations: map[string]string{
			bundleContentAnnotation: "dsse-envelope", bundlePredicateAnnotation: predicateType,
		},
	})
	manifest := blobOf(ocispec.MediaTypeImageManifest, data).Descriptor
	manifest.ArtifactType = BundleMediaType
	return Signed{Manifest: data, Descriptor: manifest, Blobs: []Blob{config, layer}}, err
}

// bundled signs a statement, and returns the sigstore bundle, in one line.
func (s *Signer) bundled(payload []byte) ([]byte, error) {
	envelope, err := s.sealEnvelope(payload)
	if err != nil {
		return nil, err
	}
	var signed dsse.Envelope
	if err := json.Unmarshal(envelope, &signed); err != nil {
		return nil, err
	}
	raw, err := decodeSignature(signed.Signatures[0].Sig)
	if err != nil {
		return nil, err
	}
	var certificate, stamp []byte
	if s.certified != nil {
		certificate = pemOf(s.certified.leaf)
	}
	if s.stamp != nil {
		if stamp, err = s.stamped(raw); err != nil {
			return nil, err
		}
	}
	return oneLine(cosignbundle.MakeNewBundle(s.key.public, nil, payload, envelope, certificate, stamp))
}

// HasSigned reports whether there is a signature by the signer of a subject among the
// evidence, in a sigstore bundle: with its certificate and a time stamp, where it signs
// with those.
func (s *Signer) HasSigned(subject image.Digest, evidence []Evidence) bool {
	for _, e := range evidence {
		switch {
		case e.problem != "" || e.candidate.form != statementForm || !e.candidate.madeBy(s.key.verifiers, subject):
		case s.certified != nil && (e.holder == nil || !e.holder.leaf.Equal(s.certified.leaf)):
		case s.stamp != nil && (e.holder == nil || !s.hasStamp(e.holder.timestamps, e.stamped)):
		default:
			return true
		}
	}
	return false
}
