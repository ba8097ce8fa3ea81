package trust

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
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

// candidate is one signature with its material, not yet verified. Cosign verifies it, by a public
// key ([candidate.madeBy]) or by a trusted root ([Keyless.refuses]).
type candidate struct {
	form    form
	payload []byte // the signed bytes: a claim, an envelope with its signatures, a file
	text    string // the signature, in base64; "" if the payload contains it

	certificate, chain []byte // PEM, or nil
	log                *cosignbundle.RekorBundle
	stamp              *cosignbundle.RFC3161Timestamp

	bundle *protobundle.Bundle // a sigstore bundle, with all of the above except the payload of a file
	// keyed is the bundle without its certificate: a key of the policy may have made a signature that carries one.
	keyed *sigstorebundle.Bundle
}

// form selects the cosign function for a candidate.
type form int

const (
	claimForm     form = iota // simple signing: the payload names the digest
	envelopeForm              // an attestation: its statement names the digest
	fileForm                  // the payload is the subject
	statementForm             // a sigstore bundle around a statement
)

// newBundle returns the candidate of a sigstore bundle, or an error if cosign's library rejects the bundle.
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

// madeBy reports whether a key made the signature of the subject.
func (c candidate) madeBy(key []signature.Verifier, subject image.Digest) bool {
	for _, v := range key {
		o := cosign.CheckOpts{SigVerifier: v, TrustedMaterial: &root.BaseTrustedMaterial{}, IgnoreTlog: true, IgnoreSCT: true}
		if c.check(subject, o) == nil {
			return true
		}
	}
	return false
}

// check verifies the candidate with cosign, offline: it has no client of a log, so that missing parts stay missing.
func (c candidate) check(subject image.Digest, o cosign.CheckOpts) (err error) {
	defer func() {
		if p := recover(); p != nil { // foreign parsers read the material
			err = fmt.Errorf("damaged: %v", p)
		}
	}()
	o.Offline = true
	if c.bundle != nil {
		return c.checkBundle(subject, o)
	}
	var along []static.Option
	if o.SigVerifier == nil { // otherwise the caller gives the key
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
		o.ClaimVerifier = cosign.SimpleClaimVerifier // without it cosign ignores the digest
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

// verifiersOf returns the verifiers of a key's signatures. Cosign signs claims with SHA-256, and
// everything else with sigstore's algorithm for the key.
func verifiersOf(public crypto.PublicKey) ([]signature.Verifier, error) {
	load := []signature.LoadOption{nil}
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		larger := map[elliptic.Curve]crypto.Hash{elliptic.P384(): crypto.SHA384, elliptic.P521(): crypto.SHA512}
		if h, ok := larger[k.Curve]; ok {
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

// signed reports whether a key's signature covers a message.
func signed(key []signature.Verifier, message, raw []byte) bool {
	for _, v := range key {
		if v.VerifySignature(bytes.NewReader(raw), bytes.NewReader(message)) == nil {
			return true
		}
	}
	return false
}
