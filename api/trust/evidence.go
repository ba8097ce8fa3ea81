package trust

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	cosignbundle "github.com/sigstore/cosign/v2/pkg/cosign/bundle"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore/pkg/signature/payload"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Evidence is one unverified claim that accepts an artifact. [Policy.Verify] decides whose
// signature it is and whether it is valid. Evidence that is never valid (another predicate, a
// damaged claim) stays, so that a refusal can describe it.
type Evidence struct {
	subjects   []image.Digest // named by the claim
	message    []byte         // what a key signs: a claim, the DSSE encoding of a statement, a file
	signatures [][]byte       // of the message; one by a key is enough
	stamped    []byte         // the bytes that time stamps cover
	isBundle   bool           // of a sigstore bundle around a statement
	holder     *certified     // the certificate of the signing key, or nil; the rest comes with it
	doubt      string         // why the certificate is not valid, or ""
	problem    string         // why the evidence is not valid, or ""

	bundle   *protobundle.Bundle       // which has all of it, or
	envelope []byte                    // around the message, of an attestation
	log      *cosignbundle.RekorBundle // of a claim or attestation
}

// signed returns the evidence of one signature.
func signed(message, signature []byte) Evidence {
	return Evidence{message: message, signatures: [][]byte{signature}, stamped: signature}
}

const (
	inTotoPayload     = "application/vnd.in-toto+json"
	statementV1       = "https://in-toto.io/Statement/v1"
	statementV01      = "https://in-toto.io/Statement/v0.1"
	bundleMediaPrefix = "application/vnd.dev.sigstore.bundle"
	maxSubjects       = 256 // of one statement
	maxEnvelopeSigs   = 32  // of one envelope
	maxLogEntries     = 8   // of one signature
	maxProofHashes    = 64  // of one log entry: a log of 2^64
)

// ReadEvidence reads the signatures in manifests: that under sha256-HEX.sig, and referrers. It verifies all bytes, and
// bounds number and size first; more is Untrusted, without evidence. A damaged or missing manifest or claim is invalid
// evidence, a passing fault an error beside the rest; other manifests have none.
func ReadEvidence(ctx context.Context, fetcher bundle.Fetcher, manifests ...ocispec.Descriptor) ([]Evidence, error) {
	r := layerReader{fetcher: fetcher, what: "signature", most: maxEvidence, largest: maxClaim}
	r.wanted = func(d ocispec.Descriptor, _ map[string]string) bool {
		return d.MediaType == SimpleSigningMediaType || strings.HasPrefix(d.MediaType, bundleMediaPrefix)
	}
	layers, err := r.readAll(ctx, manifests)
	var out []Evidence
	for _, l := range layers {
		out = append(out, l.evidence())
	}
	return out, err
}

// layerReader reads layers with signatures and counts them, to bound everything that one verification reads.
type layerReader struct {
	fetcher bundle.Fetcher
	what    string                                                      // "signature" or "attestation", for messages
	wanted  func(d ocispec.Descriptor, manifest map[string]string) bool // layers, by their manifest's annotations too
	most    int                                                         // layers
	largest int64                                                       // bytes of one
	number  int                                                         // of layers, so far
	bytes   int64                                                       // of manifests and layers, so far
}

// layer is a layer with its bytes, or the reason why they are missing.
type layer struct {
	ocispec.Descriptor
	data    []byte
	problem string
}

// evidence returns the signature in a layer.
func (l layer) evidence() Evidence {
	switch {
	case l.problem != "":
		return Evidence{problem: l.problem}
	case l.MediaType != SimpleSigningMediaType:
		s := readSigstoreBundle(l.data)
		if s.evidence.problem == "" && s.kind != SignPredicateType {
			return Evidence{problem: fmt.Sprintf("an attestation of type %.120q, which accepts nothing", s.kind)}
		}
		return s.evidence
	}
	e := readClaim(l.data, l.Annotations[SignatureAnnotation])
	e.addCertificate(l.Annotations)
	return e
}

// room reserves a part of a verification's bounds before the part is read.
func (r *layerReader) room(number int, size int64) error {
	r.number += number
	r.bytes += max(size, 0)
	if r.number <= r.most && r.bytes <= maxEvidenceBytes {
		return nil
	}
	return fault.Errorf(fault.Untrusted, "read "+r.what+"s", "", "remove "+r.what+"s that are out of use from the repository",
		"there are more than %d, or more than %d bytes of them", r.most, maxEvidenceBytes)
}

// readAll returns the wanted layers of all manifests; none if that were too many. A damaged or missing manifest counts
// as a layer with a problem, a passing fault is an error beside the rest.
func (r *layerReader) readAll(ctx context.Context, manifests []ocispec.Descriptor) (all []layer, err error) {
	var problems []error
	for _, m := range manifests {
		layers, err := r.read(ctx, m)
		if fault.ReasonOf(err) == fault.Untrusted {
			return nil, err
		}
		var problem string
		if problem, err = unreadable(err); problem != "" {
			layers = []layer{{problem: problem}}
		}
		all, problems = append(all, layers...), append(problems, err)
	}
	return all, fault.Join(problems...)
}

// read returns the wanted layers of a manifest. A damaged or missing layer is no error, since others may be enough.
func (r *layerReader) read(ctx context.Context, manifest ocispec.Descriptor) ([]layer, error) {
	if err := r.room(0, min(manifest.Size, maxManifest)); err != nil {
		return nil, err
	}
	data, err := bundle.Read(ctx, r.fetcher, bundle.Plain(manifest), maxManifest)
	if err != nil {
		return nil, fmt.Errorf("read %s manifest: %w", r.what, err)
	}
	descriptors, err := r.layersOf(data)
	if err != nil {
		return nil, fault.Errorf(fault.Corrupt, "read "+r.what+" manifest", manifest.Digest.String(),
			"sign again, or copy it again from where it was made", "%w", err)
	}
	if err := r.room(len(descriptors), 0); err != nil {
		return nil, err
	}
	out := make([]layer, len(descriptors))
	for n, d := range descriptors {
		if err := r.room(0, min(d.Size, r.largest)); err != nil {
			return nil, err
		}
		out[n].Descriptor = d
		out[n].data, err = bundle.Read(ctx, r.fetcher, bundle.Plain(d), r.largest)
		if out[n].problem, err = unreadable(err); err != nil {
			return nil, fmt.Errorf("read %s: %w", r.what, err)
		}
	}
	return out, nil
}

// unreadable returns a fault as a problem if another attempt would not help: others may be enough.
func unreadable(err error) (problem string, passing error) {
	switch fault.ReasonOf(err) {
	case fault.Corrupt, fault.Incomplete, fault.NotFound:
		return "unreadable (" + err.Error() + ")", nil
	}
	return "", err
}

func (r *layerReader) layersOf(data []byte) ([]ocispec.Descriptor, error) {
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("not an image manifest: %w", err)
	}
	out := slices.DeleteFunc(m.Layers, func(l ocispec.Descriptor) bool { return !r.wanted(l, m.Annotations) })
	if len(out) > MaxSignatures {
		return nil, fmt.Errorf("%d signatures are more than %d", len(out), MaxSignatures)
	}
	return out, nil
}

// readClaim reads a claim in the form of cosign sign, with its signature.
func readClaim(claim []byte, signature string) Evidence {
	bad := func(why string) Evidence { return Evidence{problem: why} }
	var c payload.SimpleContainerImage
	if err := json.Unmarshal(claim, &c); err != nil {
		return bad("damaged: its claim is not JSON")
	}
	if c.Critical.Type != payload.CosignSignatureType {
		return bad(fmt.Sprintf("of a claim of type %.80q, which accepts nothing", c.Critical.Type))
	}
	subject, err := image.ParseDigest(c.Critical.Image.DockerManifestDigest)
	if err != nil {
		return bad(fmt.Sprintf("damaged: it claims the digest %.80q", c.Critical.Image.DockerManifestDigest))
	}
	raw, err := decodeSignature(signature)
	if err != nil {
		return bad("damaged: its signature " + err.Error())
	}
	e := signed(claim, raw)
	e.subjects = []image.Digest{subject}
	return e
}

// addCertificate adds the annotations of cosign beside a signature: a certificate, a transparency
// log entry, a time stamp. A damaged one does not invalidate the signature, since a key of the
// policy may have made it.
func (e *Evidence) addCertificate(annotations map[string]string) {
	if e.problem != "" {
		return
	}
	leaf, chain := []byte(annotations[CertificateAnnotation]), []byte(annotations[ChainAnnotation])
	stamp, err := readAnnotation[cosignbundle.RFC3161Timestamp](annotations[TimestampAnnotation], 2*MaxTimestamp)
	var stamps [][]byte
	if stamp != nil {
		stamps = [][]byte{stamp.SignedRFC3161Timestamp}
	}
	if err == nil {
		e.holder, err = readCertified(leaf, chain, stamps)
	}
	if err != nil {
		e.doubt = "with a damaged certificate: " + err.Error()
		return
	}
	log, err := readAnnotation[cosignbundle.RekorBundle](annotations[LogAnnotation], maxLogEntry)
	if err == nil && log != nil {
		if _, ok := log.Payload.Body.(string); !ok {
			err = errors.New("it has no body")
		}
	}
	if err != nil {
		e.doubt = "with a damaged log entry: " + err.Error()
		log = nil
	}
	e.log = log
}

// readAnnotation reads JSON of a bounded length; nil without any.
func readAnnotation[T any](text string, limit int) (*T, error) {
	if text == "" {
		return nil, nil
	}
	out := new(T)
	if len(text) > limit || json.Unmarshal([]byte(text), out) != nil {
		return nil, errors.New("it cannot be read")
	}
	return out, nil
}

func decodeSignature(s string) ([]byte, error) {
	s = strings.TrimSpace(s)
	switch {
	case s == "":
		return nil, errors.New("is missing")
	case base64.StdEncoding.DecodedLen(len(s)) > maxSignature:
		return nil, fmt.Errorf("is longer than %d bytes", maxSignature)
	}
	raw, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, errors.New("is not base64")
	}
	return raw, nil
}

// readSigstoreBundle reads a sigstore bundle around a statement.
func readSigstoreBundle(data []byte) Statement {
	bad := func(why string) Statement { return Statement{evidence: Evidence{problem: why}} }
	b, err := parseBundle(data)
	if err != nil {
		return bad("damaged: not a sigstore bundle")
	}
	env := b.GetDsseEnvelope()
	if env == nil {
		return bad("a signed blob, which accepts no image")
	}
	if n := len(env.GetSignatures()); n != 1 { // a time stamp covers one
		return bad(fmt.Sprintf("damaged: a sigstore bundle with %d signatures, not 1", n))
	}
	s := readEnvelope(env)
	if e := &s.evidence; e.problem == "" {
		e.stamped, e.isBundle = e.signatures[0], true
		e.addMaterial(b)
	}
	return s
}

func parseBundle(data []byte) (*protobundle.Bundle, error) {
	var b protobundle.Bundle
	err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, &b)
	if err == nil && !strings.HasPrefix(b.GetMediaType(), bundleMediaPrefix) {
		err = errors.New("it has another media type")
	}
	return &b, err
}

// addMaterial adds the certificate of a sigstore bundle. Without a valid one it drops the bundle,
// which is useless then.
func (e *Evidence) addMaterial(b *protobundle.Bundle) {
	m := b.GetVerificationMaterial()
	err := checkLogEntries(m.GetTlogEntries())
	if err == nil {
		e.holder, err = certifiedBy(m)
	}
	if err != nil {
		e.doubt = "with a damaged certificate: " + err.Error()
	}
	if e.holder != nil {
		e.bundle = b
	}
}

// checkLogEntries bounds the transparency log entries: a few bytes of text need much memory.
func checkLogEntries(entries []*protorekor.TransparencyLogEntry) error {
	if len(entries) > maxLogEntries {
		return fmt.Errorf("there are more than %d entries of a transparency log", maxLogEntries)
	}
	for _, e := range entries {
		if len(e.GetInclusionProof().GetHashes()) > maxProofHashes {
			return fmt.Errorf("the proof of an entry of a transparency log has more than %d hashes", maxProofHashes)
		}
	}
	return nil
}

// certifiedBy reads the certificate of a sigstore bundle; nil if it has none.
func certifiedBy(m *protobundle.VerificationMaterial) (*certified, error) {
	raw := m.GetX509CertificateChain().GetCertificates()
	if c := m.GetCertificate(); c != nil {
		raw = append(raw, c)
	}
	if len(raw) == 0 {
		return nil, nil
	}
	if len(raw) > maxCertificates {
		return nil, fmt.Errorf("there are more than %d certificates", maxCertificates)
	}
	chain := make([]*x509.Certificate, len(raw))
	for i, r := range raw {
		var err error
		if chain[i], err = parseCertificate(r.GetRawBytes()); err != nil {
			return nil, err
		}
	}
	var stamps [][]byte
	for _, t := range m.GetTimestampVerificationData().GetRfc3161Timestamps() {
		stamps = append(stamps, t.GetSignedTimestamp())
	}
	return newCertified(chain[0], chain[1:], stamps)
}

// readEnvelope reads the statement in a DSSE envelope.
func readEnvelope(env *protodsse.Envelope) Statement {
	s := Statement{payload: env.GetPayload()}
	e := &s.evidence
	switch {
	case env.GetPayloadType() != inTotoPayload:
		e.problem = fmt.Sprintf("of a payload of type %.80q, which accepts nothing", env.GetPayloadType())
	case len(env.GetSignatures()) > maxEnvelopeSigs:
		e.problem = fmt.Sprintf("damaged: more than %d signatures in one envelope", maxEnvelopeSigs)
	default:
		e.subjects, s.kind, e.problem = readStatement(s.payload)
	}
	if e.problem == "" {
		e.message = dsse.PAE(inTotoPayload, s.payload)
		for _, by := range env.GetSignatures() {
			e.signatures = append(e.signatures, by.GetSig())
		}
	}
	return s
}

// Statement is an unverified signed statement about a digest; [Policy.VerifyStatement] verifies its
// signer. It is not [Evidence]: it accepts nothing, whoever signed it.
type Statement struct {
	evidence Evidence
	payload  []byte
	kind     string // its predicate type
}

// UnverifiedPredicate returns the predicate, to choose which statement to verify first; nil if it is not readable.
func (s Statement) UnverifiedPredicate() json.RawMessage {
	predicate, _ := predicateOf(s.payload)
	return predicate
}

// ReadStatements reads the statements of one predicate type in manifests: cosign attest's under the
// tag sha256-HEX.att, or referrers with a sigstore bundle. It skips other manifests and types
// without an error, and bounds all of them together. A passing fault is an error beside the rest.
func ReadStatements(
	ctx context.Context, fetcher bundle.Fetcher, manifests []ocispec.Descriptor, predicateType string,
) ([]Statement, error) {
	r := layerReader{fetcher: fetcher, what: "attestation", most: MaxSignatures, largest: maxEvidenceBytes}
	r.wanted = func(d ocispec.Descriptor, manifest map[string]string) bool {
		// as cosign writes it
		kind := cmp.Or(d.Annotations[PredicateAnnotation], manifest[bundlePredicateAnnotation])
		holds := d.MediaType == EnvelopeMediaType || strings.HasPrefix(d.MediaType, bundleMediaPrefix)
		return holds && (kind == "" || kind == predicateType)
	}
	layers, err := r.readAll(ctx, manifests)
	var out []Statement
	for _, l := range layers {
		if s := l.statement(); s.kind == predicateType || s.kind == "" && s.evidence.problem != "" {
			out = append(out, s)
		}
	}
	return out, err
}

// statement returns the statement in a layer.
func (l layer) statement() Statement {
	switch {
	case l.problem != "":
		return Statement{evidence: Evidence{problem: l.problem}}
	case l.MediaType != EnvelopeMediaType:
		return readSigstoreBundle(l.data)
	}
	var env protodsse.Envelope
	if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(l.data, &env) != nil {
		return Statement{evidence: Evidence{problem: "damaged: not an envelope"}}
	}
	s := readEnvelope(&env)
	s.evidence.envelope, s.evidence.stamped = l.data, l.data // cosign stamps the whole envelope in this form
	s.evidence.addCertificate(l.Annotations)
	return s
}

// readStatement returns the subjects and the type of an in-toto statement.
func readStatement(payload []byte) (subjects []image.Digest, kind, problem string) {
	var s statement
	if err := json.Unmarshal(payload, &s); err != nil {
		return nil, "", "damaged: its statement is not JSON"
	}
	switch {
	case s.Type != statementV1 && s.Type != statementV01:
		return nil, "", fmt.Sprintf("of a statement of type %.80q, which is not known", s.Type)
	case len(s.Subject) > maxSubjects:
		return nil, "", fmt.Sprintf("damaged: more than %d subjects", maxSubjects)
	}
	for _, sub := range s.Subject {
		if d, err := image.ParseDigest("sha256:" + sub.Digest["sha256"]); err == nil {
			subjects = append(subjects, d)
		}
	}
	if len(subjects) == 0 {
		return nil, s.PredicateType, "damaged: its statement names no sha256 digest"
	}
	return subjects, s.PredicateType, ""
}

// VerifyStatement returns the predicate of a statement about subject with enough distinct signers
// of the policy. Signers count together if their statements are equal byte by byte. The error is
// Untrusted and describes the first statement.
func (p *Policy) VerifyStatement(
	subject image.Digest, statements []Statement, now time.Time,
) (Verified, json.RawMessage, error) {
	if len(statements) == 0 {
		return Verified{}, nil, untrusted(subject, errors.New("there is no such statement about it"),
			"have it stated by who the policy names, and copy that too (tag "+image.Attestations.TagOf(subject)+")")
	}
	same := map[string][]Evidence{}
	var texts []string // in their order
	for _, s := range statements {
		text := string(s.payload)
		if same[text] == nil {
			texts = append(texts, text)
		}
		same[text] = append(same[text], s.evidence)
	}
	var first error
	for _, text := range texts {
		v, err := p.Verify(subject, same[text], now)
		if err == nil {
			predicate, err := predicateOf([]byte(text))
			return v, predicate, err
		}
		first = cmp.Or(first, err)
	}
	if p != nil && p.file.Threshold > 1 {
		one := *p
		one.file.Threshold = 1
		if _, _, err := one.VerifyStatement(subject, statements, now); err == nil {
			first = untrusted(subject, fault.CauseOf(first), "verify the statement with a policy of threshold 1")
		}
	}
	return Verified{}, nil, first
}

func predicateOf(payload []byte) (json.RawMessage, error) {
	var s statement
	err := json.Unmarshal(payload, &s)
	return s.Predicate, err
}
