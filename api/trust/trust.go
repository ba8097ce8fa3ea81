// Package trust signs and verifies for the command-line tools and for the operator. It never opens
// a network connection: callers provide its input as bytes, or through a [bundle.Fetcher].
//
//	policy, err := trust.ParsePolicy("policy.yaml", data, os.ReadFile)
//	evidence, err := trust.ReadEvidence(ctx, repository, signatureManifest)
//	verified, err := policy.Verify(root, evidence, time.Now())
//	verified.Keys() // the ids of the keys with valid signatures
//
// Only [Policy.Verify] and [Policy.VerifyBlob] create a [Verified], so that a value proves that the
// policy was satisfied.
//
// # Signatures
//
// Signatures of bundles are those of cosign, in two forms:
//
//   - simple signing: an image manifest under the tag sha256-HEX.sig, or one that refers to
//     the subject. Each layer of type application/vnd.dev.cosign.simplesigning.v1+json is a
//     JSON claim, signed in the annotation dev.cosignproject.cosign/signature;
//   - sigstore bundle: a manifest that refers to the subject, with a layer of type
//     application/vnd.dev.sigstore.bundle.v0.3+json: a DSSE envelope around an in-toto
//     statement of predicate type https://sigstore.dev/cosign/sign/v1.
//
// Everything that one verification reads is bounded before it is read: 1024 signatures, and 16 MiB
// of manifests and claims. More is refused. A signature's material has at most 16 certificates of
// 16 KiB and 256 names, with RSA keys of 8192 bits. It also has at most 8 time stamps of 64 KiB and
// 8 transparency log entries. A signature with more is treated as one without a certificate.
//
// The signed claim names a digest, and is valid for that digest only. Another predicate (an SBOM,
// provenance) never accepts anything, whoever signed it. The reference in a claim is not compared:
// bundles move between registries.
//
// [Signer.Attest] signs a statement as cosign attest does: an in-toto statement in a DSSE envelope,
// a layer of type application/vnd.dsse.envelope.v1+json under sha256-HEX.att. [ReadEvidence]
// ignores that type. [ReadStatements] and [Policy.VerifyStatement] read it, and sigstore bundles of
// the same content. Signers count for the statement that they signed, byte by byte.
//
// The signature of a file is that of cosign sign-blob: base64, or a sigstore bundle if the key has
// a certificate. A signature file may hold several.
//
// ECDSA keys (P-256, P-384, P-521) sign the SHA-256 of the message; the hash of the curve, which
// cosign writes, is accepted too. RSA keys of 2048 bits or more sign with PKCS #1 v1.5 and SHA-256.
// Ed25519 keys sign the message; Ed25519ph is accepted too.
//
// # The policy file
//
// YAML, one document, at most 1 MiB; an unknown key is an error. [Key], [CA] and [Keyless] are its
// entries. `vdo-bundle verify --help` shows a whole file.
//
// Two entries with the same public key count once. If one of them is revoked, the key is, with or
// without a certificate. Times are compared with the time of the check.
//
// # Certificates
//
// A certificate comes in the annotations dev.sigstore.cosign/certificate and
// dev.sigstore.cosign/chain of a claim, or in a sigstore bundle. It is valid for an entry if its
// chain ends at a root of the entry and it has one of the entry's identities. It must itself list
// the extended key usage and be valid at the check. An expired one is valid with a time stamp over
// the signature by one of the entry's timestampRoots, from before it expired. The time stamp is in
// dev.sigstore.cosign/rfc3161timestamp (over the whole envelope of an attestation) or in the
// sigstore bundle.
//
// For the threshold an entry counts once, whichever of its identities signed, and a key counts
// once, whoever certified it. One identity in two entries is an error.
//
// Keyless signatures are verified with the trusted root of their entry, in both forms. The check
// covers the certificate, its entry in a certificate log, and the time of the log or of a time
// stamp. It also covers the signature's entry in a transparency log (dev.sigstore.cosign/bundle).
//
// # Cosign's part and ours
//
// Sigstore's library verifies a signature by a key, and cosign (github.com/sigstore/cosign/v2) a keyless
// one. They get all material and no clients, so that network, environment and home directory have no
// influence. Input on which they panic is treated as damaged. This package adds:
//
//   - thresholds, revocation, the times in which an entry is valid, and bounds;
//   - the certificates of a private CA, since cosign uses its own clock, confuses the kinds of
//     identities, and accepts code signing only;
//   - the bounds of time stamps, since cosign prints a line and panics on invalid ones. Cosign gets
//     time stamps only if one is valid. Without the transparency log cosign uses its own clock;
//     this package requires a time stamp;
//   - all hashes of encrypted PKCS #8, since cosign's own form of keys is not within FIPS 140;
//   - signing, since cosign's signers do not support keys on a token;
//   - the manifest of simple signing, since cosign's needs the bytes of all signatures.
package trust

import (
	"slices"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Media types, annotations and limits of the formats.
const (
	SimpleSigningMediaType = "application/vnd.dev.cosign.simplesigning.v1+json"
	BundleMediaType        = "application/vnd.dev.sigstore.bundle.v0.3+json"
	SignatureAnnotation    = "dev.cosignproject.cosign/signature"
	// SignPredicateType is the only predicate that accepts its subject.
	SignPredicateType = "https://sigstore.dev/cosign/sign/v1"
	// MaxSignatures is how many signatures one manifest, or one signature file of a blob, can have.
	MaxSignatures = 256

	maxManifest  = 4 << 20   // bytes of a signature manifest
	maxClaim     = 128 << 10 // bytes of one claim or sigstore bundle
	maxSignature = 4 << 10   // bytes of one decoded signature: an RSA key of 32768 bits
	maxEvidence  = 1024      // for one verification

	maxEvidenceBytes = 16 << 20 // of all manifests and claims of one verification
)

// Verified proves that a policy was satisfied. The zero value proves nothing: it has no signers.
type Verified struct{ signers []CountedSigner }

// CountedSigner is a signer that counts: a key of the policy, or the holder of a certificate.
type CountedSigner struct {
	ID string `json:"id"` // of the policy
	// Key is the SHA-256 of the public key in PKIX form.
	Key image.Digest `json:"key"`
	// Identity is the policy's name in the certificate, and Expires its end; none without a certificate.
	Identity string     `json:"identity,omitempty"`
	Expires  *time.Time `json:"certificateExpires,omitempty"`
	// Stamped is the time of a trusted time stamp over the signature, if any.
	Stamped *time.Time `json:"stamped,omitempty"`
}

// String returns the signer as "corp: key sha256:…, email release@corp.example, certificate until …, stamped …".
func (s CountedSigner) String() string {
	out := s.ID + ": key " + s.Key.String()
	if s.Identity != "" {
		out += ", " + s.Identity + ", certificate until " + s.Expires.UTC().Format(time.RFC3339)
	}
	if s.Stamped != nil {
		out += ", stamped " + s.Stamped.UTC().Format(time.RFC3339)
	}
	return out
}

// Keys returns the ids of the keys with valid signatures, sorted, one for each distinct key.
func (v Verified) Keys() (ids []string) {
	for _, s := range v.signers {
		ids = append(ids, s.ID)
	}
	return ids
}

// Signers returns who the ids of [Verified.Keys] are, in the same order.
func (v Verified) Signers() []CountedSigner { return slices.Clone(v.signers) }
