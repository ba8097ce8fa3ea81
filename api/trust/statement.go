package trust

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

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
// without an error, and bounds all of them together. An unreadable manifest is an error beside the rest.
func ReadStatements(
	ctx context.Context, fetcher bundle.Fetcher, manifests []ocispec.Descriptor, predicateType string,
) ([]Statement, error) {
	r := layerReader{fetcher: fetcher, what: "attestation", most: maxSignatures, largest: maxEvidenceBytes}
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
	var env dsse.Envelope
	var payload []byte
	err := json.Unmarshal(l.data, &env)
	if err == nil {
		payload, err = env.DecodeB64Payload()
	}
	if err != nil {
		return Statement{evidence: Evidence{problem: "damaged: not an envelope"}}
	}
	s := readEnvelope(env.PayloadType, payload, len(env.Signatures))
	s.evidence.candidate = candidate{form: envelopeForm, payload: l.data}
	s.evidence.stamped = l.data // cosign stamps the whole envelope in this form
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
func (p *Policy) VerifyStatement(subject image.Digest, statements []Statement, now time.Time) (Verified, json.RawMessage, error) {
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
	if p != nil && p.threshold > 1 {
		one := *p
		one.threshold = 1
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
