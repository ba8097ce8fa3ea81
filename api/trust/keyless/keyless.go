// Package keyless checks sigstore's keyless signatures for api/trust: short-lived
// certificates, the transparency log's word for when they were used, and time stamps.
// All keys come from a trusted root that is handed over (trusted_root.json); nothing
// is ever fetched, so that what is expired there is expired here.
//
//	policy, err := trust.ParsePolicy(name, data, os.ReadFile, trust.WithSigstore(keyless.Open))
//
// It is a package of its own because the libraries are large: programs that trust
// keys and private authorities alone do without them.
package keyless

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

// sigstore is one trusted root.
type sigstore struct{ verifier *verify.Verifier }

// Open reads a trusted root, as JSON.
func Open(trustedRoot []byte, o trust.SigstoreOptions) (trust.Sigstore, error) {
	material, err := parse(trustedRoot)
	if err != nil {
		return nil, fmt.Errorf("read trusted root: %w", err)
	}
	if len(material.FulcioCertificateAuthorities()) == 0 {
		return nil, errors.New("the trusted root has no certificate authority: nothing could ever be accepted")
	}
	options := []verify.VerifierOption{verify.WithObserverTimestamps(1)}
	if !o.WithoutTransparencyLog {
		options = append(options, verify.WithTransparencyLog(1))
	}
	if !o.WithoutCertificateLog {
		options = append(options, verify.WithSignedCertificateTimestamps(1))
	}
	v, err := verify.NewVerifier(material, options...)
	if err != nil {
		return nil, err
	}
	return sigstore{v}, nil
}

func parse(trustedRoot []byte) (material *root.TrustedRoot, err error) {
	defer func() {
		if p := recover(); p != nil { // the parser is not ours
			material, err = nil, fmt.Errorf("damaged: %v", p)
		}
	}()
	return root.NewTrustedRootFromJSON(trustedRoot)
}

// Verify checks a bundle. The identities are compared exactly.
func (s sigstore) Verify(b *protobundle.Bundle, artifact []byte, digest image.Digest, identities []trust.KeylessIdentity) (err error) {
	defer func() {
		if p := recover(); p != nil { // the parsers below are not ours
			err = fmt.Errorf("damaged: %v", p)
		}
	}()
	if len(identities) == 0 {
		return errors.New("there is no identity that could be accepted")
	}
	entity, err := bundle.NewBundle(b)
	if err != nil {
		return err
	}
	what, err := artifactOf(artifact, digest)
	if err != nil {
		return err
	}
	var who []verify.PolicyOption
	for _, i := range identities {
		id, err := verify.NewShortCertificateIdentity(i.Issuer, "", i.Subject, "")
		if err != nil {
			return err
		}
		who = append(who, verify.WithCertificateIdentity(id))
	}
	_, err = s.verifier.Verify(entity, verify.NewPolicy(what, who...))
	return err
}

func artifactOf(artifact []byte, digest image.Digest) (verify.ArtifactPolicyOption, error) {
	if artifact != nil {
		return verify.WithArtifact(bytes.NewReader(artifact)), nil
	}
	raw, err := hex.DecodeString(digest.Hex())
	if err != nil {
		return nil, err
	}
	return verify.WithArtifactDigest("sha256", raw), nil
}
