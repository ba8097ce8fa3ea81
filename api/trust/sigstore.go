package trust

import (
	"bytes"
	"crypto"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// LogAnnotation holds the entry of the transparency log, as cosign writes it.
const LogAnnotation = "dev.sigstore.cosign/bundle"

const (
	maxTrustedRoot = 1 << 20
	maxLogEntry    = 256 << 10
	bundleV01      = "application/vnd.dev.sigstore.bundle+json;version=0.1"
)

// KeylessIdentity is who a short-lived certificate was issued to, and on whose word;
// both exact.
type KeylessIdentity struct {
	Issuer  string `yaml:"issuer"`  // of the login: https://accounts.google.com
	Subject string `yaml:"subject"` // an e-mail address or a URI
}

// String writes the identity as "release@corp.example by https://login.corp.example".
func (i KeylessIdentity) String() string { return i.Subject + " by " + i.Issuer }

func (i KeylessIdentity) check() error {
	for _, s := range []string{i.Issuer, i.Subject} {
		switch {
		case s == "":
			return errors.New("an identity has both issuer and subject")
		case strings.TrimSpace(s) != s || strings.ContainsAny(s, "*\n"):
			return fmt.Errorf("%q is no exact name: identities are compared character by character, without wildcards", s)
		}
	}
	return nil
}

// SigstoreOptions say what a signature may lack; the zero value demands everything.
type SigstoreOptions struct {
	WithoutTransparencyLog bool // a time stamp of the trusted root's authorities is enough
	WithoutCertificateLog  bool // the certificate need not be in a certificate log
}

// Sigstore checks signatures against one trusted root, with no network. It is
// declared here so that programs which trust keys alone do not carry the libraries;
// package api/trust/keyless has it.
type Sigstore interface {
	// Verify checks that a bundle signs an artifact, given by its bytes or, for a
	// statement, by its digest, and that its certificate is of one of the identities.
	Verify(b *protobundle.Bundle, artifact []byte, digest image.Digest, identities []KeylessIdentity) error
}

// A PolicyOption changes how [ParsePolicy] reads.
type PolicyOption func(*policyReader)

type policyReader struct {
	readFile func(path string) ([]byte, error)
	open     func(trustedRoot []byte, o SigstoreOptions) (Sigstore, error)
}

// WithSigstore lets policies have keyless entries: open reads a trusted root.
func WithSigstore(open func(trustedRoot []byte, o SigstoreOptions) (Sigstore, error)) PolicyOption {
	return func(r *policyReader) { r.open = open }
}

// Keyless is a sigstore whose short-lived certificates count, and whose.
type Keyless struct {
	id                  string
	root                []byte
	options             SigstoreOptions
	identities          []KeylessIdentity
	sigstore            Sigstore
	notBefore, notAfter time.Time
	revoked             bool
}

type keylessFile struct {
	ID              string            `yaml:"id"`
	TrustedRoot     string            `yaml:"trustedRoot,omitempty"`
	TrustedRootFile string            `yaml:"trustedRootFile,omitempty"`
	Identities      []KeylessIdentity `yaml:"identities"`
	NoLog           bool              `yaml:"withoutTransparencyLog,omitempty"`
	NoCertLog       bool              `yaml:"withoutCertificateLog,omitempty"`
	NotBefore       *time.Time        `yaml:"notBefore,omitempty"`
	NotAfter        *time.Time        `yaml:"notAfter,omitempty"`
	Revoked         bool              `yaml:"revoked,omitempty"`
}

func (f keylessFile) keyless(r policyReader) (Keyless, error) {
	k := Keyless{
		id: f.ID, identities: slices.Clone(f.Identities), revoked: f.Revoked,
		options: SigstoreOptions{WithoutTransparencyLog: f.NoLog, WithoutCertificateLog: f.NoCertLog},
	}
	if f.NotBefore != nil {
		k.notBefore = f.NotBefore.UTC()
	}
	if f.NotAfter != nil {
		k.notAfter = f.NotAfter.UTC()
	}
	if err := k.read(f, r); err != nil {
		hint := "see the format in `go doc api/trust`: id, trustedRoot, identities of issuer and subject"
		if errors.Is(err, errNoSigstore) {
			hint = "have it signed with a key, or with a certificate of an authority of the site, and list that under keys or certificates"
		}
		return Keyless{}, &fault.Error{
			Reason: fault.InvalidInput, Op: "read keyless", Subject: fmt.Sprintf("%q", f.ID), Err: err, Hint: hint,
		}
	}
	return k, nil
}

var errNoSigstore = errors.New("this program does not verify keyless signatures")

func (k *Keyless) read(f keylessFile, r policyReader) (err error) {
	if err := checkID(k.id); err != nil {
		return err
	}
	if r.open == nil {
		return errNoSigstore
	}
	if k.root, err = loadField("keyless", f.ID, "trustedRoot", f.TrustedRoot, f.TrustedRootFile, r.readFile); err != nil {
		return err
	}
	switch {
	case len(k.identities) == 0:
		return errors.New("it has no identities: everyone with a login would be accepted")
	case len(k.identities) > maxIdentities:
		return fmt.Errorf("%d identities are more than %d", len(k.identities), maxIdentities)
	case len(bytes.TrimSpace(k.root)) == 0:
		return errors.New("it has no trusted root: it is never fetched")
	case len(k.root) > maxTrustedRoot:
		return fmt.Errorf("its trusted root is longer than %d bytes", maxTrustedRoot)
	}
	for n, i := range k.identities {
		if err := i.check(); err != nil {
			return fmt.Errorf("identities[%d]: %w", n, err)
		}
	}
	k.sigstore, err = r.open(k.root, k.options)
	return err
}

func (k Keyless) file() keylessFile {
	f := keylessFile{
		ID: k.id, TrustedRoot: string(k.root), Identities: k.identities,
		NoLog: k.options.WithoutTransparencyLog, NoCertLog: k.options.WithoutCertificateLog, Revoked: k.revoked,
	}
	if !k.notBefore.IsZero() {
		f.NotBefore = &k.notBefore
	}
	if !k.notAfter.IsZero() {
		f.NotAfter = &k.notAfter
	}
	return f
}

// vouches checks that the sigstore vouches for a signature over a subject; nil: it
// does.
func (k Keyless) vouches(e Evidence, subject image.Digest, now time.Time) *refusal {
	if e.bundle == nil {
		return unknown("without what a keyless signature has: certificate and log entry or time stamp")
	}
	if err := k.sigstore.Verify(e.bundle, e.artifact, subject, k.identities); err != nil {
		return unknown("by a certificate of %s that keyless %s does not accept (%.200s)", identitiesOf(e.voucher.leaf), k.id, err)
	}
	if why := k.standing(now); why != "" {
		return &refusal{why: "by a certificate of keyless " + k.id + ", " + why, known: true}
	}
	return nil
}

func (k Keyless) standing(now time.Time) string {
	return Key{revoked: k.revoked, notBefore: k.notBefore, notAfter: k.notAfter}.standing(now)
}

// bundleOf makes a sigstore bundle of what cosign keeps in the annotations of a
// claim, so that both forms of keyless signature are checked in one way.
func (e *Evidence) bundleOf(annotations map[string]string, claim []byte) {
	if e.voucher == nil || len(e.signatures) == 0 {
		return
	}
	entry, err := logEntry(annotations[LogAnnotation])
	if err != nil {
		e.doubt = "with a damaged log entry: " + err.Error()
		return
	}
	chain := []*protocommon.X509Certificate{{RawBytes: e.voucher.leaf.Raw}}
	for _, c := range e.voucher.chain {
		if !selfSigned(c) {
			chain = append(chain, &protocommon.X509Certificate{RawBytes: c.Raw})
		}
	}
	material := &protobundle.VerificationMaterial{
		Content: &protobundle.VerificationMaterial_X509CertificateChain{X509CertificateChain: &protocommon.X509CertificateChain{Certificates: chain}},
	}
	if entry != nil {
		material.TlogEntries = []*protorekor.TransparencyLogEntry{entry}
	}
	if len(e.voucher.timestamps) > 0 {
		material.TimestampVerificationData = &protobundle.TimestampVerificationData{}
		for _, t := range e.voucher.timestamps {
			material.TimestampVerificationData.Rfc3161Timestamps = append(material.TimestampVerificationData.Rfc3161Timestamps,
				&protocommon.RFC3161SignedTimestamp{SignedTimestamp: t})
		}
	}
	digest := sum(crypto.SHA256, claim)
	e.artifact = claim
	e.bundle = &protobundle.Bundle{
		MediaType: bundleV01, VerificationMaterial: material,
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: digest},
			Signature:     e.signatures[0],
		}},
	}
}

// logEntry reads the annotation in which cosign keeps an entry of the log; nil where
// there is none.
func logEntry(annotation string) (*protorekor.TransparencyLogEntry, error) {
	if annotation == "" {
		return nil, nil
	}
	var a struct {
		Promise []byte `json:"SignedEntryTimestamp"`
		Payload struct {
			Body  []byte `json:"body"`
			Time  int64  `json:"integratedTime"`
			Index int64  `json:"logIndex"`
			LogID string `json:"logID"`
		} `json:"Payload"`
	}
	if len(annotation) > maxLogEntry || json.Unmarshal([]byte(annotation), &a) != nil {
		return nil, errors.New("it cannot be read")
	}
	id, err := hex.DecodeString(a.Payload.LogID)
	if err != nil {
		return nil, errors.New("its log has no id")
	}
	var kind struct {
		Kind    string `json:"kind"`
		Version string `json:"apiVersion"`
	}
	if err := json.Unmarshal(a.Payload.Body, &kind); err != nil {
		return nil, errors.New("its body is no JSON")
	}
	return &protorekor.TransparencyLogEntry{
		LogIndex: a.Payload.Index, LogId: &protocommon.LogId{KeyId: id},
		KindVersion:    &protorekor.KindVersion{Kind: kind.Kind, Version: kind.Version},
		IntegratedTime: a.Payload.Time, CanonicalizedBody: a.Payload.Body,
		InclusionPromise: &protorekor.InclusionPromise{SignedEntryTimestamp: a.Promise},
	}, nil
}
