package trust

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Evidence is one signed claim that something is acceptable, as it was found; whose
// signature it is, and whether that counts, is for [Policy.Verify] to say. One that
// cannot count in any case (another predicate, a damaged claim) is kept, so that a
// refusal can say what was found.
type Evidence struct {
	origin    origin
	subjects  []image.Digest // that the claim names
	candidate candidate
	stamped   []byte     // what time stamps are of
	holder    *certified // the certificate of the key that signed, or nil
	doubt     string     // why the certificate that came along cannot count, or ""
	problem   string     // why it cannot count, or ""
}

// origin is the digest of all that a piece of evidence was made of: two of one origin
// are the same. The zero value is that of none.
type origin [sha256.Size]byte

// originOf is the origin of a blob, with what belongs to it of the annotations of its
// layer; kind is how they are read.
func originOf(kind, blob string, annotations map[string]string) (o origin) {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%q %q", kind, blob)
	for _, name := range []string{SignatureAnnotation, CertificateAnnotation, ChainAnnotation, TimestampAnnotation, LogAnnotation} {
		_, _ = fmt.Fprintf(h, " %q", annotations[name])
	}
	h.Sum(o[:0])
	return o
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

// ReadEvidence reads the signatures that manifests hold: what is under the tag
// sha256-HEX.sig, and referrers of the subject. A manifest of another kind holds
// none, which is no error. Every byte is checked against its descriptor; a claim
// that is damaged is returned as evidence that cannot count. A manifest that cannot
// be read is an error beside the evidence of the others.
//
// Everything together is bounded before it is read, by number and by size, and what
// several signatures share is held once. More than that is a fault with reason
// Untrusted, and no evidence.
func ReadEvidence(ctx context.Context, fetcher Fetcher, manifests ...ocispec.Descriptor) ([]Evidence, error) {
	r := evidenceReader{fetcher: fetcher, claims: map[claimKey]*claimText{}}
	var out []Evidence
	var problems []error
	for _, m := range manifests {
		found, err := r.read(ctx, m)
		if err != nil && fault.ReasonOf(err) == fault.Untrusted {
			return nil, err
		}
		out, problems = append(out, found...), append(problems, err)
	}
	return out, fault.Join(problems...)
}

// evidenceReader reads the signatures of one verification, and counts them.
type evidenceReader struct {
	fetcher Fetcher
	claims  map[claimKey]*claimText
	number  int   // of signatures
	bytes   int64 // of manifests and claims
}

// claimKey tells claims apart.
type claimKey struct {
	digest string
	size   int64
}

// claimText is a claim as it was read; many signatures may be over one. What is made of
// it is so once.
type claimText struct {
	data   []byte
	err    error
	simple *Evidence // as a claim of simple signing, without the signature
	bundle *Evidence // as a sigstore bundle
}

// evidence reads the signature that a layer has over the claim.
func (c *claimText) evidence(layer ocispec.Descriptor) Evidence {
	if layer.MediaType != SimpleSigningMediaType {
		if c.bundle == nil {
			e := readSigstoreBundle(c.data, acceptingStatement)
			e.origin = originOf(bundleMediaPrefix, layer.Digest.String(), nil)
			c.bundle = &e
		}
		return *c.bundle
	}
	if c.simple == nil {
		e := readClaim(c.data)
		c.simple = &e
	}
	e := c.simple.signedBy(layer.Annotations[SignatureAnnotation])
	e.addCertificate(layer.Annotations)
	e.origin = originOf(SimpleSigningMediaType, layer.Digest.String(), layer.Annotations)
	return e
}

// room takes a part of what one verification may hold, before that is read.
func (r *evidenceReader) room(number int, size int64) error {
	r.number += number
	r.bytes += max(size, 0)
	if r.number <= maxEvidence && r.bytes <= maxEvidenceBytes {
		return nil
	}
	return &fault.Error{
		Reason: fault.Untrusted, Op: "read signatures", Err: fmt.Errorf("there are more than %d, or more than %d bytes of them", maxEvidence, maxEvidenceBytes),
		Hint: "remove signatures that are out of use from the repository",
	}
}

func (r *evidenceReader) read(ctx context.Context, manifest ocispec.Descriptor) ([]Evidence, error) {
	if err := r.room(0, min(manifest.Size, maxManifest)); err != nil {
		return nil, err
	}
	data, err := fetch(ctx, r.fetcher, manifest, maxManifest)
	if err != nil {
		return nil, fmt.Errorf("read signature manifest: %w", err)
	}
	layers, err := layersOf(data, func(mediaType string) bool {
		return mediaType == SimpleSigningMediaType || strings.HasPrefix(mediaType, bundleMediaPrefix)
	})
	if err != nil {
		return nil, &fault.Error{
			Reason: fault.Corrupt, Op: "read signature manifest", Subject: manifest.Digest.String(), Err: err,
			Hint: "sign again, or copy the signature again from where it was made",
		}
	}
	if err := r.room(len(layers), 0); err != nil {
		return nil, err
	}
	out := make([]Evidence, 0, len(layers))
	for _, layer := range layers {
		claim, err := r.claim(ctx, layer)
		switch reason := fault.ReasonOf(err); {
		case err == nil:
			out = append(out, claim.evidence(layer))
		case reason == fault.Corrupt || reason == fault.NotFound:
			out = append(out, Evidence{problem: "unreadable (" + err.Error() + ")"})
		default:
			return nil, fmt.Errorf("read signature: %w", err)
		}
	}
	return out, nil
}

// claim reads a claim, once.
func (r *evidenceReader) claim(ctx context.Context, layer ocispec.Descriptor) (*claimText, error) {
	key := claimKey{layer.Digest.String(), layer.Size}
	if c, ok := r.claims[key]; ok {
		return c, c.err
	}
	if err := r.room(0, min(layer.Size, maxClaim)); err != nil {
		return nil, err
	}
	data, err := fetch(ctx, r.fetcher, layer, maxClaim)
	c := &claimText{data: data, err: err}
	r.claims[key] = c
	return c, err
}

// layersOf returns the layers of a manifest that hold signatures, by their type.
func layersOf(data []byte, wanted func(mediaType string) bool) ([]ocispec.Descriptor, error) {
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("not an image manifest: %w", err)
	}
	var out []ocispec.Descriptor
	for _, l := range m.Layers {
		if wanted(l.MediaType) {
			out = append(out, l)
		}
	}
	if len(out) > maxSignatures {
		return nil, fmt.Errorf("%d signatures are more than %d", len(out), maxSignatures)
	}
	return out, nil
}

// fetch reads a descriptor's bytes, at most limit, and checks size and digest.
func fetch(ctx context.Context, fetcher Fetcher, d ocispec.Descriptor, limit int64) ([]byte, error) {
	corrupt := func(why string) ([]byte, error) {
		return nil, &fault.Error{Reason: fault.Corrupt, Op: "read", Subject: d.Digest.String(), Err: errors.New(why)}
	}
	want, err := image.ParseDigest(d.Digest.String())
	switch {
	case err != nil:
		return corrupt("its digest is not a sha256 digest")
	case d.Size < 0 || d.Size > limit:
		return corrupt(fmt.Sprintf("its size of %d bytes is not between 0 and %d", d.Size, limit))
	}
	body, err := fetcher.Fetch(ctx, d)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(body, d.Size+1))
	if closeErr := body.Close(); err == nil {
		err = closeErr
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", d.Digest, err)
	case int64(len(data)) != d.Size:
		return corrupt(fmt.Sprintf("it does not have the %d bytes that it should", d.Size))
	case image.DigestOf(data) != want:
		return corrupt("its bytes have another digest: " + image.DigestOf(data).String())
	}
	return data, nil
}
