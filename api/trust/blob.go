package trust

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// bundleV02 is the latest sigstore bundle version that allows a whole chain.
const bundleV02 = "application/vnd.dev.sigstore.bundle+json;version=0.2"

// SignBlob signs a file as cosign sign-blob does: base64, without a line end. For a key with a
// certificate, which base64 has no place for, it returns a sigstore bundle in one line, as cosign
// sign-blob --bundle does.
func (s *Signer) SignBlob(data []byte) ([]byte, error) {
	raw, err := s.sign(data)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(data)
	if s.certified == nil {
		return []byte(base64.StdEncoding.EncodeToString(raw)), nil
	}
	chain := []*protocommon.X509Certificate{{RawBytes: s.certified.leaf.Raw}}
	for _, c := range s.certified.chain {
		if !selfSigned(c) { // a reader might trust a root in it
			chain = append(chain, &protocommon.X509Certificate{RawBytes: c.Raw})
		}
	}
	b := &protobundle.Bundle{
		MediaType: bundleV02,
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content: &protobundle.VerificationMaterial_X509CertificateChain{X509CertificateChain: &protocommon.X509CertificateChain{Certificates: chain}},
		},
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: hash[:]}, Signature: raw,
		}},
	}
	stamp, err := s.stamped(raw)
	if err != nil {
		return nil, err
	}
	if stamp != nil {
		b.VerificationMaterial.TimestampVerificationData = &protobundle.TimestampVerificationData{
			Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: stamp}},
		}
	}
	return oneLine(protojson.Marshal(b))
}

// oneLine removes the library's white space from its JSON, which differs between runs.
func oneLine(text []byte, err error) ([]byte, error) {
	var line bytes.Buffer
	if err == nil {
		err = json.Compact(&line, text)
	}
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return line.Bytes(), nil
}

// VerifyBlob verifies a file against its signature file: base64 or sigstore bundles, as cosign
// sign-blob writes them, one after the other.
func (p *Policy) VerifyBlob(data, signatures []byte, now time.Time) (Verified, error) {
	subject := image.DigestOf(data)
	found := splitSignatures(signatures)
	if len(found) > MaxSignatures {
		return Verified{}, untrusted(subject, fmt.Errorf("there are more than %d signatures", MaxSignatures),
			"give the file that holds the signatures")
	}
	evidence := make([]Evidence, len(found))
	for n, text := range found {
		evidence[n] = readBlobSignature(subject, data, text)
	}
	return p.Verify(subject, evidence, now)
}

// splitSignatures splits a signature file into JSON values and words. It returns at most one
// signature more than the limit.
func splitSignatures(data []byte) [][]byte {
	var out [][]byte
	for rest := bytes.TrimSpace(data); len(rest) > 0 && len(out) <= MaxSignatures; rest = bytes.TrimSpace(rest) {
		var value json.RawMessage
		if rest[0] == '{' {
			dec := json.NewDecoder(bytes.NewReader(rest))
			if dec.Decode(&value) == nil {
				out, rest = append(out, value), rest[dec.InputOffset():]
				continue
			}
			return append(out, rest) // its end is unknown
		}
		end := bytes.IndexAny(rest, " \t\r\n")
		if end < 0 {
			end = len(rest)
		}
		out, rest = append(out, rest[:end]), rest[end:]
	}
	return out
}

// readBlobSignature reads one signature of a file, which is the subject.
func readBlobSignature(subject image.Digest, data, text []byte) Evidence {
	read := readBlobText
	if text[0] == '{' {
		read = readBlobBundle
	}
	e, err := read(data, text)
	if err != nil {
		e.problem = "damaged: it " + err.Error()
	}
	e.subjects = []image.Digest{subject}
	return e
}

func readBlobText(data, text []byte) (Evidence, error) {
	raw, err := decodeSignature(string(text))
	return signed(data, raw), err
}

func readBlobBundle(data, text []byte) (Evidence, error) {
	if len(text) > maxClaim {
		return Evidence{}, errors.New("is not a sigstore bundle")
	}
	b, err := parseBundle(text)
	if err != nil {
		return Evidence{}, errors.New("is not a sigstore bundle")
	}
	raw := b.GetMessageSignature().GetSignature()
	if len(raw) == 0 || len(raw) > maxSignature {
		return Evidence{}, errors.New("has no signature of a file")
	}
	e := signed(data, raw)
	e.addMaterial(b)
	return e, nil
}
