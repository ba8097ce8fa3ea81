package trust

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/sigstore/cosign/v2/pkg/cosign"
	cosignbundle "github.com/sigstore/cosign/v2/pkg/cosign/bundle"
	"github.com/sigstore/cosign/v2/pkg/oci/static"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	sigstorebundle "github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/options"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// candidate is one signature with what came along, before it is known to be good. That
// is for cosign to say, by a public key ([candidate.madeBy]) or by a trusted root
// ([Keyless.accepts]).
type candidate struct {
	form    form
	payload []byte // what was signed: a claim, an envelope with its signatures, a file
	text    string // the signature, in base64; "" where the payload has it

	certificate, chain []byte // PEM, or nil
	log                *cosignbundle.RekorBundle
	stamp              *cosignbundle.RFC3161Timestamp

	bundle *protobundle.Bundle // a sigstore bundle, with all of the above but the payload of a file
	// keyed is the bundle as it were without a certificate: a key of the policy may
	// have made a signature that carries one.
	keyed *sigstorebundle.Bundle
}

// form says which of cosign's functions a candidate is for.
type form int

const (
	claimForm     form = iota // simple signing: the payload names the digest
	envelopeForm              // an attestation: the statement inside names the digest
	fileForm                  // the payload is the subject
	statementForm             // a sigstore bundle around a statement
)

// newBundle makes a candidate of a sigstore bundle. A bundle that cosign's library
// finds to be none is an error.
func newBundle(f form, b *protobundle.Bundle, file []byte) (candidate, error) {
	keyed := &protobundle.Bundle{
		MediaType: b.GetMediaType(), Content: b.GetContent(),
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content: &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{}},
		},
	}
	k, err := sigstorebundle.NewBundle(keyed)
	return candidate{form: f, payload: file, bundle: b, keyed: k}, err
}

// madeBy reports whether a key made the signature, and whether it is of the subject.
func (c candidate) madeBy(key []signature.Verifier, subject image.Digest) bool {
	for _, v := range key {
		o := cosign.CheckOpts{SigVerifier: v, TrustedMaterial: &root.BaseTrustedMaterial{}, IgnoreTlog: true, IgnoreSCT: true}
		if c.check(subject, o) == nil {
			return true
		}
	}
	return false
}

// check has cosign judge the candidate. No one is asked: there is no client of a log
// and what is not there cannot be looked up.
func (c candidate) check(subject image.Digest, o cosign.CheckOpts) (err error) {
	defer func() {
		if p := recover(); p != nil { // the parsers of what came along are not ours
			err = fmt.Errorf("damaged: %v", p)
		}
	}()
	o.Offline = true
	if c.bundle != nil {
		return c.checkBundle(subject, o)
	}
	var along []static.Option
	if o.SigVerifier == nil { // else the key is given
		along = append(along, static.WithCertChain(c.certificate, c.chain),
			static.WithBundle(c.log), static.WithRFC3161Timestamp(c.stamp))
	}
	sig, err := static.NewSignature(c.payload, c.text, along...)
	if err != nil {
		return err
	}
	ctx, hash := context.Background(), v1.Hash{Algorithm: "sha256", Hex: subject.Hex()}
	switch c.form {
	case claimForm:
		o.ClaimVerifier = cosign.SimpleClaimVerifier // without it the digest would not be looked at
		_, err = cosign.VerifyImageSignature(ctx, sig, hash, &o)
	case envelopeForm:
		o.ClaimVerifier = cosign.IntotoSubjectClaimVerifier
		_, err = cosign.VerifyBlobAttestation(ctx, sig, hash, &o)
	case fileForm:
		_, err = cosign.VerifyBlobSignature(ctx, sig, &o)
	default:
		err = fmt.Errorf("a signature of form %d", c.form)
	}
	return err
}

func (c candidate) checkBundle(subject image.Digest, o cosign.CheckOpts) error {
	o.NewBundleFormat = true
	entity := c.keyed
	if o.SigVerifier == nil {
		var err error
		if entity, err = sigstorebundle.NewBundle(c.bundle); err != nil {
			return err
		}
	}
	raw, err := hex.DecodeString(subject.Hex())
	if err != nil {
		return err
	}
	what := verify.WithArtifactDigest("sha256", raw)
	if c.form == fileForm {
		what = verify.WithArtifact(bytes.NewReader(c.payload))
	}
	_, err = cosign.VerifyNewBundle(context.Background(), &o, what, entity)
	return err
}

// verifiersOf returns what verifies signatures of a key: SHA-256, with which cosign
// signs claims, and the algorithm that sigstore has for the key, with which cosign signs
// what else it does.
func verifiersOf(public crypto.PublicKey) ([]signature.Verifier, error) {
	load := []signature.LoadOption{nil}
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		if h := hashOf(k.Curve); h != crypto.SHA256 {
			load = append(load, options.WithHash(h))
		}
	case ed25519.PublicKey:
		load = append(load, options.WithED25519ph())
	}
	load[0] = options.WithHash(crypto.SHA256)
	out := make([]signature.Verifier, 0, len(load))
	for _, o := range load {
		v, err := signature.LoadVerifierWithOpts(public, o)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// signed reports whether a key's signature is over a message.
func signed(key []signature.Verifier, message, raw []byte) bool {
	for _, v := range key {
		if v.VerifySignature(bytes.NewReader(raw), bytes.NewReader(message)) == nil {
			return true
		}
	}
	return false
}
