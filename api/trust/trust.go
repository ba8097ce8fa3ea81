// Package trust signs and verifies, for the command-line tools and for the
// operator, and never opens a network connection: what it looks at is handed to it
// as bytes, or read through a [Fetcher] that the caller gives.
//
//	policy, err := trust.ParsePolicy("policy.yaml", data, os.ReadFile)
//	evidence, err := trust.ReadEvidence(ctx, repository, signatureManifest)
//	verified, err := policy.Verify(root, evidence, time.Now())
//	verified.Keys() // the ids of the keys whose signatures counted
//
// A [Verified] is made by [Policy.Verify] and [Policy.VerifyBlob] only, so that
// holding one proves that the policy was satisfied.
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
// What one verification reads is bounded before it is read: 1024 signatures, and 16 MiB of
// manifests and claims; more is a refusal. A signature that comes with more than 16
// certificates of 16 KiB and 256 names, with an RSA key of more than 8192 bits, 8 time stamps
// of 64 KiB or 8 entries of a transparency log counts as one without a certificate.
//
// The signed claim names a digest, and counts for that digest only. Another predicate (an
// SBOM, provenance) never counts, whoever signed it. The reference that a claim names is
// not compared with anything: bundles move from registry to registry.
//
// [Signer.Attest] states something as cosign attest does: an in-toto statement in a DSSE
// envelope, a layer of type application/vnd.dsse.envelope.v1+json under sha256-HEX.att.
// [ReadEvidence] reads nothing of that type. [ReadStatements] and [Policy.VerifyStatement] read
// it, and sigstore bundles of the same content: signers count for the statement that they
// signed, byte by byte.
//
// A signature of a file is that of cosign sign-blob: base64 of the signature over the file,
// or where the key has a certificate a sigstore bundle. A signature file may hold several.
//
// ECDSA keys (P-256, P-384, P-521) sign the SHA-256 of the message; the hash of the curve,
// which cosign writes, is accepted too. RSA keys of 2048 bits or more sign with PKCS #1 v1.5
// and SHA-256. Ed25519 keys sign the message; Ed25519ph is accepted too.
//
// # The policy file
//
// YAML, one document, at most 1 MiB; a key that is not listed here is an error.
//
//	apiVersion: vdo.vmware.com/trust/v1
//	kind: TrustPolicy
//	threshold: 2                        # distinct keys that must have signed; default 1
//	keys:                               # at least one entry of any kind, at most 32
//	- id: release-2026                  # names the key in messages; unique
//	  publicKey: |                      # PEM (PKIX), as cosign.pub has it
//	- id: security-team
//	  file: keys/security.pub           # or a path, resolved by who reads the policy
//	  notBefore: 2026-01-01T00:00:00Z   # RFC 3339; outside these the entry does not count
//	  notAfter: 2028-01-01T00:00:00Z
//	  revoked: false                    # true: never counts
//	revokedDigests:                     # never accepted, whoever signed them
//	- sha256:…
//	certificates:                       # private certificate authorities
//	- id: release-pki
//	  roots: |                          # PEM, one or several; or rootsFile
//	  intermediates: |                  # optional, besides those that come along; or intermediatesFile
//	  identities:                       # whose certificates count: at least one, exact
//	  - email: release@corp.example     # email, uri or dns: a subject alternative name
//	  extendedKeyUsage: codeSigning     # the default; emailProtection, clientAuth, or an OID
//	  timestampRoots: |                 # RFC 3161 authorities, optional; or timestampRootsFile
//	  revokedSerials: ["1f:03"]         # of leaves and intermediates, hex
//	keyless:                            # short-lived certificates of a sigstore
//	- id: kubernetes
//	  trustedRootFile: trusted_root.json  # or trustedRoot: its text; never fetched
//	  identities:                       # at least one, exact
//	  - subject: krel-trust@k8s-releng-prod.iam.gserviceaccount.com
//	    issuer: https://accounts.google.com
//	  withoutTransparencyLog: false     # true: a time stamp of the trusted root's authorities is enough
//	  withoutCertificateLog: false      # true: for a sigstore that has none
//
// Two entries with the same public key count once, and if one of them is revoked the key is,
// with a certificate or without. Times are held against that of the check.
//
// # Certificates
//
// A certificate comes in the annotations dev.sigstore.cosign/certificate and
// dev.sigstore.cosign/chain of a claim, or in a sigstore bundle. It counts for an entry whose
// roots its chain leads to, whose identities it has, whose extended key usage it lists itself, and
// is in time at the check. One that has expired counts where a time stamp over the signature
// (dev.sigstore.cosign/rfc3161timestamp, of an attestation over its whole envelope, or in the
// sigstore bundle) by one of the entry's timestampRoots says that it was in time then.
//
// For the threshold an entry counts once, whichever of its identities signed, and a key
// counts once, whoever has certified it. One identity in two entries is an error.
//
// Keyless signatures are checked against the trusted root of their entry, in both forms: the
// certificate, its entry in a certificate log, the signature's in a transparency log
// (dev.sigstore.cosign/bundle), and the time that the log or a time stamp gives.
//
// # What is judged by whom
//
// Whether one signature is good is for cosign (github.com/sigstore/cosign/v2) to say, and for
// the libraries that it is made of. They get everything and no one to ask, so that neither
// network nor environment nor home folder has a say; what they panic on is damaged. Ours are:
//
//   - thresholds, revocation, the times in which an entry counts, and bounds;
//   - the certificates of a private authority. Cosign holds them against its own clock, takes
//     identities of any kind for each other, and code signing only;
//   - the signer of a time stamp: see verifyTimestamp. Cosign is told of time stamps only where
//     one holds: of others it prints a line, and panics. Where a policy does without the
//     transparency log it takes its own clock; here a time stamp has to be there;
//   - encrypted PKCS #8, since cosign's own form of keys is not within FIPS 140, and signing,
//     since its signers take no key that a token holds;
//   - the manifest of simple signing, since cosign's needs the bytes of all signatures.
package trust

import (
	"context"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Media types, annotations and limits of the formats.
const (
	SimpleSigningMediaType = "application/vnd.dev.cosign.simplesigning.v1+json"
	BundleMediaType        = "application/vnd.dev.sigstore.bundle.v0.3+json"
	SignatureAnnotation    = "dev.cosignproject.cosign/signature"
	// SignPredicateType is the one predicate that accepts its subject.
	SignPredicateType = "https://sigstore.dev/cosign/sign/v1"

	maxManifest   = 4 << 20   // bytes of a signature manifest
	maxClaim      = 128 << 10 // bytes of one claim or sigstore bundle
	maxSignature  = 4 << 10   // bytes of one decoded signature: an RSA key of 32768 bits
	maxSignatures = 256       // in one manifest, and in one blob signature file
	maxEvidence   = 1024      // looked at in one verification

	maxEvidenceBytes = 16 << 20 // of all manifests and claims of one verification
)

// Fetcher hands over the bytes of a descriptor, from an offset; who calls it
// checks them. It is the same interface as that of api/bundle.
type Fetcher interface {
	Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error)
}

// Verified proves that a policy was satisfied for a subject. The zero value proves
// nothing, and says so: its Subject is zero.
type Verified struct {
	subject image.Digest
	keys    []string
}

// Subject returns the digest that was verified.
func (v Verified) Subject() image.Digest { return v.subject }

// Keys returns the ids of the keys whose signatures counted, sorted, one for each
// distinct key.
func (v Verified) Keys() []string { return append([]string(nil), v.keys...) }

// SignatureTag returns the tag under which cosign keeps the signatures of a digest:
// sha256-HEX.sig.
func SignatureTag(subject image.Digest) string { return image.Signatures.TagOf(subject) }
