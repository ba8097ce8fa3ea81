package trust

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	cosignbundle "github.com/sigstore/cosign/v2/pkg/cosign/bundle"
	"github.com/sigstore/sigstore/pkg/signature/payload"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// DefaultIdentity names the subject of a claim if the signer does not; only the digest is verified.
const DefaultIdentity = "vdo.vmware.com/bundle"

// Sign signs a digest. identity is the signer's name for it, HOST/PATH or HOST/PATH:TAG ("" for
// [DefaultIdentity]). It keeps the signatures of existing, what is under the tag or zero, and adds none
// if the key signed the same claim before. The result has the bytes of what is new.
func (s *Signer) Sign(subject image.Digest, identity string, existing bundle.Referrer) (bundle.Referrer, error) {
	identity = cmp.Or(identity, DefaultIdentity)
	if _, err := image.ParseReference(identity); err != nil {
		return bundle.Referrer{}, err
	}
	existing.Subject, existing.Tag = subject, image.Signatures.TagOf(subject)
	m, err := manifestOf(existing, SimpleSigningMediaType)
	if err != nil {
		return bundle.Referrer{}, err
	}
	data, err := json.Marshal(payload.SimpleContainerImage{Critical: payload.Critical{ // the bytes of cosign sign
		Identity: payload.Identity{DockerReference: identity},
		Image:    payload.Image{DockerManifestDigest: subject.String()},
		Type:     payload.CosignSignatureType,
	}})
	if err != nil {
		return bundle.Referrer{}, err
	}
	claim := bundle.Blob(SimpleSigningMediaType, data)
	if s.isIn(m, subject, claim) {
		return existing, nil
	}
	raw, err := s.sign(data)
	if err != nil {
		return bundle.Referrer{}, err
	}
	claim.Annotations = map[string]string{SignatureAnnotation: base64.StdEncoding.EncodeToString(raw)}
	return s.seal(existing, m, claim, raw)
}

// isIn reports whether a manifest has the signer's signature of a claim, with the same certificate and chain.
func (s *Signer) isIn(m ocispec.Manifest, subject image.Digest, claim ocispec.Descriptor) bool {
	return slices.ContainsFunc(m.Layers, func(l ocispec.Descriptor) bool {
		certified := maps.Collect(maps.All(l.Annotations)) // never nil
		maps.Copy(certified, s.certificates())
		return l.Digest == claim.Digest && maps.Equal(certified, l.Annotations) &&
			s.made(layer{Descriptor: l, data: claim.Data}.evidence(), subject)
	})
}

// Attestations as cosign attest writes them.
const (
	EnvelopeMediaType   = "application/vnd.dsse.envelope.v1+json"
	PredicateAnnotation = "predicateType"
)

// Attest signs a statement about a digest (in-toto, in a DSSE envelope), as cosign attest does. A statement
// in this form never accepts its subject. It keeps the attestations of existing, what is under the tag or zero.
func (s *Signer) Attest(
	subject image.Digest, identity, predicateType string, predicate []byte, existing bundle.Referrer,
) (bundle.Referrer, error) {
	existing.Subject, existing.Tag = subject, image.Attestations.TagOf(subject)
	m, err := manifestOf(existing, EnvelopeMediaType)
	if err != nil {
		return bundle.Referrer{}, err
	}
	_, _, data, err := s.sealEnvelope(subject, cmp.Or(identity, DefaultIdentity), predicateType, predicate)
	if err != nil {
		return bundle.Referrer{}, err
	}
	layer := bundle.Blob(EnvelopeMediaType, data)
	layer.Annotations = map[string]string{SignatureAnnotation: "", PredicateAnnotation: predicateType}
	return s.seal(existing, m, layer, data) // cosign stamps the whole envelope in this form
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

// sealEnvelope signs a statement, and returns it with its signature and the envelope of both.
func (s *Signer) sealEnvelope(
	subject image.Digest, name, predicateType string, predicate []byte,
) (text, raw, envelope []byte, err error) {
	text, err = json.Marshal(statement{
		Type: statementV1, PredicateType: predicateType, Predicate: predicate,
		Subject: []statementSubject{{Name: name, Digest: map[string]string{"sha256": subject.Hex()}}},
	})
	if err != nil {
		return nil, nil, nil, err
	}
	if raw, err = s.sign(dsse.PAE(inTotoPayload, text)); err != nil {
		return nil, nil, nil, err
	}
	envelope, err = json.Marshal(dsse.Envelope{
		PayloadType: inTotoPayload, Payload: base64.StdEncoding.EncodeToString(text),
		Signatures: []dsse.Signature{{Sig: base64.StdEncoding.EncodeToString(raw)}}, // without a key id, as cosign writes it
	})
	return text, raw, envelope, err
}

// manifestOf returns the manifest to add to: that under a subject's tag, whose layers all have one type, or empty.
func manifestOf(existing bundle.Referrer, mediaType string) (m ocispec.Manifest, err error) {
	bad := func(reason fault.Reason, hint, format string, args ...any) (ocispec.Manifest, error) {
		return m, fault.Errorf(reason, "add a signature to", existing.Tag, hint, format, args...)
	}
	if existing.Subject.IsZero() {
		return bad(fault.InvalidInput, "", "there is no digest to sign")
	}
	if data := existing.Node.Data; data != nil {
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
	if len(m.Layers) >= MaxSignatures {
		return bad(fault.Refused, "remove signatures that are out of use", "there are %d already", len(m.Layers))
	}
	m.MediaType = ocispec.MediaTypeImageManifest
	return m, nil
}

// seal adds a layer with a signature over the stamped bytes to a manifest. It writes the config as cosign does,
// and the manifest.
func (s *Signer) seal(
	to bundle.Referrer, m ocispec.Manifest, layer ocispec.Descriptor, stamped []byte,
) (bundle.Referrer, error) {
	carried, err := s.carried(stamped)
	if err != nil {
		return bundle.Referrer{}, err
	}
	maps.Copy(layer.Annotations, carried)
	blobs := append(slices.Clone(to.Blobs), layer)
	layer.Data = nil
	m.Layers = append(m.Layers, layer)
	config, err := Config(m.Layers)
	if err != nil {
		return bundle.Referrer{}, err
	}
	m.Config = bundle.Plain(config)
	return bundle.NewReferrer(to.Subject, to.Tag, bundle.NewManifest(m), append(blobs, config)...)
}

// Config returns the config of a manifest of signatures, with its data. It has only layers, time zero and
// no platform, as cosign's has, so that signing is reproducible.
func Config(layers []ocispec.Descriptor) (ocispec.Descriptor, error) {
	c := v1.ConfigFile{RootFS: v1.RootFS{Type: "layers"}}
	for _, l := range layers {
		algorithm, hex, _ := strings.Cut(l.Digest.String(), ":")
		c.History = append(c.History, v1.History{})
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, v1.Hash{Algorithm: algorithm, Hex: hex})
	}
	data, err := json.Marshal(c)
	return bundle.Blob(ocispec.MediaTypeImageConfig, data), err
}

// Annotations of a manifest with a sigstore bundle, as cosign writes them.
const (
	bundleContentAnnotation   = "dev.sigstore.bundle.content"
	bundlePredicateAnnotation = "dev.sigstore.bundle.predicateType"
)

// SignBundle signs a descriptor's content in the form of cosign 3: a referrer with a sigstore bundle, without a
// tag. The bundle has room for the signer's certificate only, so verifiers need the intermediates.
func (s *Signer) SignBundle(subject ocispec.Descriptor) (bundle.Referrer, error) {
	return s.AttestBundle(subject, "", SignPredicateType, nil)
}

// AttestBundle is [Signer.Attest] in the form of cosign 3. A statement of [SignPredicateType] accepts its subject.
func (s *Signer) AttestBundle(
	subject ocispec.Descriptor, name, predicateType string, predicate []byte,
) (bundle.Referrer, error) {
	digest, err := image.ParseDigest(subject.Digest.String())
	if err != nil {
		return bundle.Referrer{}, fault.Errorf(fault.InvalidInput, "sign", "", "", "there is no digest to sign")
	}
	text, raw, envelope, err := s.sealEnvelope(digest, name, predicateType, predicate)
	if err != nil {
		return bundle.Referrer{}, err
	}
	var certificate []byte
	if s.certified != nil {
		certificate = pemOf(s.certified.leaf)
	}
	stamp, err := s.stamped(raw)
	if err != nil {
		return bundle.Referrer{}, err
	}
	data, err := oneLine(cosignbundle.MakeNewBundle(s.key.public, nil, text, envelope, certificate, stamp))
	if err != nil {
		return bundle.Referrer{}, err
	}
	config, layer := bundle.Blob(ocispec.MediaTypeEmptyJSON, []byte("{}")), bundle.Blob(BundleMediaType, data)
	return bundle.NewReferrer(digest, "", bundle.NewManifest(ocispec.Manifest{
		ArtifactType: BundleMediaType, Config: bundle.Plain(config), Layers: []ocispec.Descriptor{bundle.Plain(layer)},
		Subject: &ocispec.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size},
		Annotations: map[string]string{
			bundleContentAnnotation: "dsse-envelope", bundlePredicateAnnotation: predicateType,
		},
	}), config, layer)
}

// HasSigned reports whether the evidence has the signer's sigstore bundle for a subject.
func (s *Signer) HasSigned(subject image.Digest, evidence []Evidence) bool {
	return slices.ContainsFunc(evidence, func(e Evidence) bool { return e.isBundle && s.made(e, subject) })
}

// made reports whether the signer made a signature of a subject. It needs the signer's certificate and a valid time
// stamp if the signer uses them.
func (s *Signer) made(e Evidence, subject image.Digest) bool {
	switch {
	case e.problem != "" || !slices.Contains(e.subjects, subject) || !e.madeBy(s.key.verifiers):
		return false
	case s.certified != nil && (e.holder == nil || !e.holder.leaf.Equal(s.certified.leaf)):
		return false
	}
	holds := func(stamp []byte) bool { return s.checkStamp(stamp, e.stamped) == nil }
	return s.stamp == nil || e.holder != nil && slices.ContainsFunc(e.holder.timestamps, holds)
}
