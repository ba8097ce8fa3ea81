package trust

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	cosignbundle "github.com/sigstore/cosign/v2/pkg/cosign/bundle"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore/pkg/signature/payload"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// readClaim reads a claim as cosign sign writes it.
func readClaim(claim []byte) Evidence {
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
	return Evidence{subjects: []image.Digest{subject}, candidate: candidate{form: claimForm, payload: claim}}
}

// signedBy adds the signature to a claim.
func (e Evidence) signedBy(signature string) Evidence {
	raw, err := decodeSignature(signature)
	if err != nil {
		return Evidence{problem: "damaged: its signature " + err.Error()}
	}
	if e.problem == "" {
		e.stamped, e.candidate.text = raw, base64.StdEncoding.EncodeToString(raw)
	}
	return e
}

// addCertificate adds what cosign keeps beside a signature: a certificate, an entry of
// the transparency log, a time stamp. One that is damaged does not spoil the signature:
// a key of the policy may have made it.
func (e *Evidence) addCertificate(annotations map[string]string) {
	if e.problem != "" {
		return
	}
	c := &e.candidate
	leaf, chain := []byte(annotations[CertificateAnnotation]), []byte(annotations[ChainAnnotation])
	stamp, err := readStamp(annotations)
	if err != nil {
		e.doubt = "with a damaged certificate: its time stamp cannot be read"
		return
	}
	stamps := stampsOf(annotations)
	if e.holder, err = readCertified(leaf, chain, stamps); err != nil {
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
	c.certificate, c.chain, c.stamp, c.log = leaf, chain, stamp, log
}

// readStamp reads the time stamp that cosign keeps beside a signature; nil where there is
// none.
func readStamp(annotations map[string]string) (*cosignbundle.RFC3161Timestamp, error) {
	return readAnnotation[cosignbundle.RFC3161Timestamp](annotations[TimestampAnnotation], 2*MaxTimestamp)
}

// stampsOf are the time stamps in the annotations that can be read.
func stampsOf(annotations map[string]string) [][]byte {
	if stamp, err := readStamp(annotations); err == nil && stamp != nil {
		return [][]byte{stamp.SignedRFC3161Timestamp}
	}
	return nil
}

// readAnnotation reads JSON of a bounded length; nil where there is none.
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

// readSigstoreBundle reads a sigstore bundle around a statement that subjectsOf takes.
func readSigstoreBundle(data []byte, subjectsOf subjectsFunc) Evidence {
	bad := func(why string) Evidence { return Evidence{problem: why} }
	b, err := parseBundle(data)
	if err != nil {
		return bad("damaged: not a sigstore bundle")
	}
	env := b.GetDsseEnvelope()
	if env == nil {
		return bad("a signed blob, which accepts no image")
	}
	subjects, problem := subjectsOfEnvelope(env.GetPayloadType(), env.GetPayload(), len(env.GetSignatures()), subjectsOf)
	if problem != "" {
		return bad(problem)
	}
	e := Evidence{subjects: subjects}
	if e.candidate, err = newBundle(statementForm, b, nil); err != nil {
		return bad(fmt.Sprintf("damaged: %.200s", err))
	}
	if all := env.GetSignatures(); len(all) > 0 {
		e.stamped = all[0].GetSig()
	}
	e.addMaterial(b.GetVerificationMaterial())
	return e
}

func parseBundle(data []byte) (*protobundle.Bundle, error) {
	var b protobundle.Bundle
	err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, &b)
	return &b, err
}

// addMaterial adds the certificate of a sigstore bundle. Where there is none that could
// count, what else came along is of no use, and not kept.
func (e *Evidence) addMaterial(m *protobundle.VerificationMaterial) {
	err := checkLogEntries(m.GetTlogEntries())
	if err == nil {
		e.holder, err = certifiedBy(m)
	}
	if err != nil {
		e.doubt = "with a damaged certificate: " + err.Error()
	}
	if e.holder == nil {
		e.candidate.bundle = e.candidate.keyed.Bundle
	}
}

// checkLogEntries bounds the entries of a transparency log: of each a few bytes of text
// make many in memory.
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

// certifiedBy reads the certificate of a sigstore bundle; nil where it has none.
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

// subjectsFunc returns what a statement is of, or why it does not count.
type subjectsFunc func(payload []byte) (subjects []image.Digest, problem string)

// subjectsOfEnvelope returns what the statement in a DSSE envelope is of.
func subjectsOfEnvelope(payloadType string, payload []byte, signatures int, subjectsOf subjectsFunc) ([]image.Digest, string) {
	switch {
	case payloadType != inTotoPayload:
		return nil, fmt.Sprintf("of a payload of type %.80q, which accepts nothing", payloadType)
	case signatures > maxEnvelopeSigs:
		return nil, fmt.Sprintf("damaged: more than %d signatures in one envelope", maxEnvelopeSigs)
	}
	return subjectsOf(payload)
}
