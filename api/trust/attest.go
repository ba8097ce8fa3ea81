package trust

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Attestations as cosign attest writes them.
const (
	EnvelopeMediaType   = "application/vnd.dsse.envelope.v1+json"
	PredicateAnnotation = "predicateType"

	maxPredicate = 8 << 20 // bytes
)

// AttestationTag returns the tag under which cosign keeps the attestations of a
// digest: sha256-HEX.att.
func AttestationTag(subject image.Digest) string { return image.Attestations.TagOf(subject) }

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

// statementOf returns the text of a statement about a digest.
func statementOf(subject image.Digest, name, predicateType string, predicate []byte) ([]byte, error) {
	return json.Marshal(statement{
		Type: statementV1, PredicateType: predicateType, Predicate: predicate,
		Subject: []statementSubject{{Name: name, Digest: map[string]string{"sha256": subject.Hex()}}},
	})
}

// Attest signs a statement about a digest (in-toto, in a DSSE envelope), as cosign
// attest does: a statement about it, which never makes it acceptable.
// existing is the manifest that is under the tag already, or nil: its attestations
// are kept.
func (s *Signer) Attest(subject image.Digest, identity, predicateType string, predicate, existing []byte) (Signed, error) {
	tag := AttestationTag(subject)
	bad := func(reason fault.Reason, why error, hint string) (Signed, error) {
		return Signed{}, fault.Errorf(reason, "attest", tag, hint, "%w", why)
	}
	switch {
	case subject.IsZero():
		return bad(fault.InvalidInput, errors.New("there is no digest to attest"), "")
	case checkStatement(predicateType, predicate) != nil:
		return bad(fault.InvalidInput, checkStatement(predicateType, predicate), "sign it to accept it")
	}
	m, err := existingManifest(existing, EnvelopeMediaType)
	if err != nil {
		return bad(fault.Conflict, err, "remove what is under this tag")
	}
	if len(m.Layers) >= maxSignatures {
		return bad(fault.Refused, fmt.Errorf("there are %d attestations already", len(m.Layers)), "remove those that are out of use")
	}
	text, err := statementOf(subject, cmp.Or(identity, DefaultIdentity), predicateType, predicate)
	if err != nil {
		return Signed{}, err
	}
	envelope, err := s.sealEnvelope(text)
	if err != nil {
		return Signed{}, err
	}
	// all of the envelope is what cosign has stamped in this form
	return s.seal(m, tag, blobOf(EnvelopeMediaType, envelope), envelope,
		map[string]string{SignatureAnnotation: "", PredicateAnnotation: predicateType})
}

// checkStatement refuses what is no statement, or would accept its subject.
func checkStatement(predicateType string, predicate []byte) error {
	switch {
	case predicateType == "" || predicateType == SignPredicateType:
		return fmt.Errorf("%q is not a type of a statement", predicateType)
	case len(predicate) > maxPredicate || !json.Valid(predicate):
		return fmt.Errorf("the predicate is not JSON of at most %d bytes", maxPredicate)
	}
	return nil
}

// sealEnvelope signs the text of a statement.
func (s *Signer) sealEnvelope(data []byte) ([]byte, error) {
	e, err := dsse.NewEnvelopeSigner(envelopeSigner{s})
	if err != nil {
		return nil, err
	}
	envelope, err := e.SignPayload(context.Background(), inTotoPayload, data)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return json.Marshal(envelope)
}

// envelopeSigner signs as the library of envelopes asks for it.
type envelopeSigner struct{ s *Signer }

func (e envelopeSigner) Sign(_ context.Context, message []byte) ([]byte, error) {
	return e.s.sign(message)
}

func (envelopeSigner) KeyID() (string, error) { return "", nil } // as cosign has it
