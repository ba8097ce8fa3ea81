package trust

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/signature/payload"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// DefaultIdentity is what a signed claim calls its subject when the signer does not
// say; what counts is the digest.
const DefaultIdentity = "vdo.vmware.com/bundle"

// Signed is a signature manifest as cosign writes it.
type Signed struct {
	Manifest   []byte
	Descriptor ocispec.Descriptor // of Manifest
	Tag        string             // to put it under: sha256-HEX.sig
	// Blobs are the config and the claims that this signing made; the claims of
	// signatures that were there before are where they were.
	Blobs []Blob
}

// Blob is a blob with its bytes.
type Blob struct {
	Descriptor ocispec.Descriptor
	Data       []byte
}

// Sign signs a digest. identity is what the signer calls it, HOST/PATH or
// HOST/PATH:TAG ("" for [DefaultIdentity]). existing is the manifest that is under
// the tag already, or nil: its signatures are kept, and nothing is added where the
// key has signed the same claim before.
func (s *Signer) Sign(subject image.Digest, identity string, existing []byte) (Signed, error) {
	if subject.IsZero() {
		return Signed{}, fault.Errorf(fault.InvalidInput, "sign", "", "", "there is no digest to sign")
	}
	identity = cmp.Or(identity, DefaultIdentity)
	if _, err := image.ParseReference(identity); err != nil {
		return Signed{}, err
	}
	m, err := existingManifest(existing, SimpleSigningMediaType)
	if err != nil {
		return Signed{}, fault.Errorf(fault.Conflict, "add a signature to", SignatureTag(subject),
			"remove what is under this tag", "%w", err)
	}
	data, err := claimOf(subject, identity)
	if err != nil {
		return Signed{}, err
	}
	claim := blobOf(SimpleSigningMediaType, data)
	switch {
	case s.isIn(m, claim):
		manifest := blobOf(ocispec.MediaTypeImageManifest, existing)
		return Signed{Manifest: existing, Descriptor: manifest.Descriptor, Tag: SignatureTag(subject)}, nil
	case len(m.Layers) >= maxSignatures:
		return Signed{}, fault.Errorf(fault.Refused, "sign", "", "remove signatures that are out of use",
			"there are %d signatures already", len(m.Layers))
	}
	raw, err := s.sign(data)
	if err != nil {
		return Signed{}, fmt.Errorf("sign: %w", err)
	}
	text := base64.StdEncoding.EncodeToString(raw)
	return s.seal(m, SignatureTag(subject), claim, raw, map[string]string{SignatureAnnotation: text})
}

// claimOf returns the bytes that are signed: those of cosign sign.
func claimOf(subject image.Digest, identity string) ([]byte, error) {
	return json.Marshal(payload.SimpleContainerImage{Critical: payload.Critical{
		Identity: payload.Identity{DockerReference: identity},
		Image:    payload.Image{DockerManifestDigest: subject.String()},
		Type:     payload.CosignSignatureType,
	}})
}

// isIn reports whether a manifest has the signer's signature of a claim.
func (s *Signer) isIn(m ocispec.Manifest, claim Blob) bool {
	return slices.ContainsFunc(m.Layers, func(l ocispec.Descriptor) bool {
		raw, err := decodeSignature(l.Annotations[SignatureAnnotation])
		return l.Digest == claim.Descriptor.Digest && err == nil && signed(s.key.verifiers, claim.Data, raw) &&
			(s.certified == nil || l.Annotations[CertificateAnnotation] == string(pemOf(s.certified.leaf))) &&
			s.hasStamp(stampsOf(l.Annotations), raw)
	})
}

// existingManifest returns the manifest to add to: empty, or what data holds, whose
// layers are all of one type.
func existingManifest(data []byte, mediaType string) (ocispec.Manifest, error) {
	empty := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	if data == nil {
		return empty, nil
	}
	if len(data) > maxManifest {
		return empty, fmt.Errorf("its manifest is longer than %d bytes", maxManifest)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return empty, fmt.Errorf("it is not an image manifest: %w", err)
	}
	for _, l := range m.Layers {
		if l.MediaType != mediaType {
			return empty, fmt.Errorf("it has a layer of type %q, which is not %s", l.MediaType, mediaType)
		}
	}
	m.SchemaVersion, m.MediaType = 2, ocispec.MediaTypeImageManifest
	return m, nil
}

// seal adds a layer to a manifest, with what goes with a signature whose stamped bytes
// these are, and makes the config that cosign makes, and the manifest's bytes.
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

// configOf returns an image config without anything in it but the layers: time zero,
// no platform, as cosign writes it, so that signing is the same everywhere.
func configOf(layers []ocispec.Descriptor) ([]byte, error) {
	const never = "0001-01-01T00:00:00Z"
	type history struct {
		Created string `json:"created"`
	}
	type rootfs struct {
		Type    string          `json:"type"`
		DiffIDs []digest.Digest `json:"diff_ids"`
	}
	c := struct {
		Architecture string    `json:"architecture"`
		Created      string    `json:"created"`
		History      []history `json:"history"`
		OS           string    `json:"os"`
		RootFS       rootfs    `json:"rootfs"`
		Config       struct{}  `json:"config"`
	}{Created: never, RootFS: rootfs{Type: "layers"}}
	for _, l := range layers {
		c.History = append(c.History, history{Created: never})
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, l.Digest)
	}
	return json.Marshal(c)
}

func blobOf(mediaType string, data []byte) Blob {
	return Blob{ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}, data}
}
