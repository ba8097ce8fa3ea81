package trust

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	cosignbundle "github.com/sigstore/cosign/v2/pkg/cosign/bundle"
	"github.com/sigstore/sigstore/pkg/signature/payload"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// DefaultIdentity names the subject of a claim if the signer does not; only the digest is verified.
const DefaultIdentity = "vdo.vmware.com/bundle"

// Signed is a signature manifest as cosign writes it.
type Signed struct {
	Manifest   []byte
	Descriptor ocispec.Descriptor // of Manifest
	Tag        string             // for the manifest: sha256-HEX.sig
	// Blobs are the new config and claims; the claims of earlier signatures stay in the repository.
	Blobs []Blob
}

// Blob is a blob with its bytes.
type Blob struct {
	Descriptor ocispec.Descriptor
	Data       []byte
}

// Sign signs a digest. identity is the signer's name for it, HOST/PATH or HOST/PATH:TAG ("" for
// [DefaultIdentity]). It keeps the signatures of existing, the tag's manifest or nil, and adds none
// if the key signed the same claim before.
func (s *Signer) Sign(subject image.Digest, identity string, existing []byte) (Signed, error) {
	identity = cmp.Or(identity, DefaultIdentity)
	if _, err := image.ParseReference(identity); err != nil {
		return Signed{}, err
	}
	tag := SignatureTag(subject)
	m, err := existingManifest(subject, tag, existing, SimpleSigningMediaType)
	if err != nil {
		return Signed{}, err
	}
	data, err := json.Marshal(payload.SimpleContainerImage{Critical: payload.Critical{ // the bytes of cosign sign
		Identity: payload.Identity{DockerReference: identity},
		Image:    payload.Image{DockerManifestDigest: subject.String()},
		Type:     payload.CosignSignatureType,
	}})
	if err != nil {
		return Signed{}, err
	}
	claim := blobOf(SimpleSigningMediaType, data)
	if s.isIn(m, claim) {
		manifest := blobOf(ocispec.MediaTypeImageManifest, existing)
		return Signed{Manifest: existing, Descriptor: manifest.Descriptor, Tag: tag}, nil
	}
	raw, err := s.sign(data)
	if err != nil {
		return Signed{}, fmt.Errorf("sign: %w", err)
	}
	text := base64.StdEncoding.EncodeToString(raw)
	return s.seal(m, tag, claim, raw, map[string]string{SignatureAnnotation: text})
}

// isIn reports whether a manifest has the signer's signature of a claim.
func (s *Signer) isIn(m ocispec.Manifest, claim Blob) bool {
	return slices.ContainsFunc(m.Layers, func(l ocispec.Descriptor) bool {
		raw, err := decodeSignature(l.Annotations[SignatureAnnotation])
		return l.Digest == claim.Descriptor.Digest && err == nil && signed(s.key.verifiers, claim.Data, raw) &&
			holdsAll(l.Annotations, s.certificates()) && s.hasStamp(stampsOf(l.Annotations), raw)
	})
}

func holdsAll(annotations, want map[string]string) bool {
	for name, text := range want {
		if annotations[name] != text {
			return false
		}
	}
	return true
}

// Attestations as cosign attest writes them.
const (
	EnvelopeMediaType   = "application/vnd.dsse.envelope.v1+json"
	PredicateAnnotation = "predicateType"

	maxPredicate = 8 << 20 // bytes
)

// AttestationTag returns cosign's tag for the attestations of a digest: sha256-HEX.att.
func AttestationTag(subject image.Digest) string { return image.Attestations.TagOf(subject) }

// Attest signs a statement about a digest (in-toto, in a DSSE envelope), as cosign attest does. A statement
// never makes its subject acceptable. It keeps the attestations of existing, the tag's manifest or nil.
func (s *Signer) Attest(subject image.Digest, identity, predicateType string, predicate, existing []byte) (Signed, error) {
	tag := AttestationTag(subject)
	m, err := existingManifest(subject, tag, existing, EnvelopeMediaType)
	if err = cmp.Or(checkStatement(predicateType, predicate), err); err != nil {
		return Signed{}, err
	}
	envelope, err := s.sealEnvelope(subject, cmp.Or(identity, DefaultIdentity), predicateType, predicate)
	if err != nil {
		return Signed{}, err
	}
	data, err := json.Marshal(envelope)
	if err != nil {
		return Signed{}, err
	}
	// cosign stamps the whole envelope in this form
	return s.seal(m, tag, blobOf(EnvelopeMediaType, data), data,
		map[string]string{SignatureAnnotation: "", PredicateAnnotation: predicateType})
}

// checkStatement refuses predicates that are not JSON, and types that would accept the subject.
func checkStatement(predicateType string, predicate []byte) error {
	switch {
	case predicateType == "" || predicateType == SignPredicateType:
		return fault.Errorf(fault.InvalidInput, "attest", predicateType, "sign it to accept it", "it is not a type of a statement")
	case len(predicate) > maxPredicate || !json.Valid(predicate):
		return fault.Errorf(fault.InvalidInput, "attest", predicateType, "", "the predicate is not JSON of at most %d bytes", maxPredicate)
	}
	return nil
}

type statement struct {
	Type          string             `json:"_type"`
	Subject       []statementSubject `json:"subject"`
	PredicateType string             `json:"predicateType"`
	Predicate     json.RawMessage    `json:"predicate,omitempty"`
}

type statementSubject struct {
	Name   string            `json:"name,omitempty"`
	Digest map[string]string `json:"digest"`
}

func (s *Signer) sealEnvelope(subject image.Digest, name, predicateType string, predicate []byte) (*dsse.Envelope, error) {
	text, err := json.Marshal(statement{
		Type: statementV1, PredicateType: predicateType, Predicate: predicate,
		Subject: []statementSubject{{Name: name, Digest: map[string]string{"sha256": subject.Hex()}}},
	})
	if err != nil {
		return nil, err
	}
	raw, err := s.sign(dsse.PAE(inTotoPayload, text))
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return &dsse.Envelope{
		PayloadType: inTotoPayload, Payload: base64.StdEncoding.EncodeToString(text),
		Signatures: []dsse.Signature{{Sig: base64.StdEncoding.EncodeToString(raw)}}, // without a key id, as cosign writes it
	}, nil
}

// existingManifest returns the manifest under a subject's tag to add to: empty, or that of data,
// whose layers all have one type.
func existingManifest(subject image.Digest, tag string, data []byte, mediaType string) (m ocispec.Manifest, err error) {
	bad := func(reason fault.Reason, hint, format string, args ...any) (ocispec.Manifest, error) {
		return m, fault.Errorf(reason, "add a signature to", tag, hint, format, args...)
	}
	if subject.IsZero() {
		return bad(fault.InvalidInput, "", "there is no digest to sign")
	}
	if data != nil {
		if len(data) > maxManifest {
			return bad(fault.Conflict, "remove what is under this tag", "its manifest is longer than %d bytes", maxManifest)
		}
		if err := json.Unmarshal(data, &m); err != nil {
			return bad(fault.Conflict, "remove what is under this tag", "it is not an image manifest: %w", err)
		}
	}
	for _, l := range m.Layers {
		if l.MediaType != mediaType {
			return bad(fault.Conflict, "remove what is under this tag", "it has a layer of type %q, which is not %s", l.MediaType, mediaType)
		}
	}
	if len(m.Layers) >= maxSignatures {
		return bad(fault.Refused, "remove signatures that are out of use", "there are %d already", len(m.Layers))
	}
	m.SchemaVersion, m.MediaType = 2, ocispec.MediaTypeImageManifest
	return m, nil
}

// seal adds a layer to a manifest, with the annotations of a signature over the stamped bytes. It
// writes the config as cosign does, and the manifest.
func (s *Signer) seal(
	m ocispec.Manifest, tag string, added Blob, stamped []byte, annotations map[string]string,
) (Signed, error) {
	carried, err := s.carried(stamped)
	if err != nil {
		return Signed{}, err
	}
	layer := added.Descriptor
	layer.Annotations = annotations
	maps.Copy(layer.Annotations, carried)
	m.Layers = append(m.Layers, layer)
	config, err := configOf(m.Layers)
	if err != nil {
		return Signed{}, err
	}
	blob := blobOf(ocispec.MediaTypeImageConfig, config)
	m.Config = blob.Descriptor
	data, err := json.Marshal(m)
	manifest := blobOf(ocispec.MediaTypeImageManifest, data)
	return Signed{Manifest: data, Descriptor: manifest.Descriptor, Tag: tag, Blobs: []Blob{blob, added}}, err
}

// configOf returns an image config with layers only: time zero and no platform, as in cosign, so
// that signing is reproducible.
func configOf(layers []ocispec.Descriptor) ([]byte, error) {
	c := v1.ConfigFile{RootFS: v1.RootFS{Type: "layers"}}
	for _, l := range layers {
		h, err := v1.NewHash(l.Digest.String())
		if err != nil {
			return nil, err
		}
		c.History, c.RootFS.DiffIDs = append(c.History, v1.History{}), append(c.RootFS.DiffIDs, h)
	}
	return json.Marshal(c)
}

func blobOf(mediaType string, data []byte) Blob {
	return Blob{ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}, data}
}

// Annotations of a manifest with a sigstore bundle, as cosign writes them.
const (
	bundleContentAnnotation   = "dev.sigstore.bundle.content"
	bundlePredicateAnnotation = "dev.sigstore.bundle.predicateType"
)

// SignBundle signs a descriptor's content in the form of cosign 3: a referrer with a sigstore bundle, without a
// tag. The bundle has room for the signer's certificate only, so verifiers need the intermediates.
func (s *Signer) SignBundle(subject ocispec.Descriptor) (Signed, error) {
	return s.refer(subject, "", SignPredicateType, nil)
}

// AttestBundle is [Signer.Attest] in the form of cosign 3.
func (s *Signer) AttestBundle(subject ocispec.Descriptor, identity, predicateType string, predicate []byte) (Signed, error) {
	if err := checkStatement(predicateType, predicate); err != nil {
		return Signed{}, err
	}
	return s.refer(subject, identity, predicateType, predicate)
}

// refer signs a statement about a subject, as a referrer.
func (s *Signer) refer(subject ocispec.Descriptor, name, predicateType string, predicate []byte) (Signed, error) {
	digest, err := image.ParseDigest(subject.Digest.String())
	if err != nil {
		return Signed{}, fault.Errorf(fault.InvalidInput, "sign", "", "", "there is no digest to sign")
	}
	text, err := s.bundled(digest, name, predicateType, predicate)
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

// bundled signs a statement and returns the sigstore bundle, in one line.
func (s *Signer) bundled(subject image.Digest, name, predicateType string, predicate []byte) ([]byte, error) {
	envelope, err := s.sealEnvelope(subject, name, predicateType, predicate)
	if err != nil {
		return nil, err
	}
	payload, err := envelope.DecodeB64Payload()
	raw, rawErr := decodeSignature(envelope.Signatures[0].Sig)
	sealed, sealErr := json.Marshal(envelope)
	if err := errors.Join(err, rawErr, sealErr); err != nil {
		return nil, err
	}
	var certificate []byte
	if s.certified != nil {
		certificate = pemOf(s.certified.leaf)
	}
	stamp, err := s.stamped(raw)
	if err != nil {
		return nil, err
	}
	return oneLine(cosignbundle.MakeNewBundle(s.key.public, nil, payload, sealed, certificate, stamp))
}

// HasSigned reports whether the evidence has the signer's sigstore bundle for a subject. The bundle
// needs the certificate and a time stamp if the signer uses them.
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
