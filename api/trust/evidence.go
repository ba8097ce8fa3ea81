package trust

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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
	subjects  []image.Digest // that the claim names
	candidate candidate
	stamped   []byte     // what time stamps are of
	holder    *certified // the certificate of the key that signed, or nil
	doubt     string     // why the certificate that came along cannot count, or ""
	problem   string     // why it cannot count, or ""
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
// Everything together is bounded before it is read, by number and by size. More than that
// is a fault with reason Untrusted, and no evidence.
func ReadEvidence(ctx context.Context, fetcher Fetcher, manifests ...ocispec.Descriptor) ([]Evidence, error) {
	r := layerReader{fetcher: fetcher, what: "signature", most: maxEvidence, largest: maxClaim}
	var out []Evidence
	var problems []error
	for _, m := range manifests {
		layers, err := r.read(ctx, m, func(d ocispec.Descriptor) bool {
			return d.MediaType == SimpleSigningMediaType || strings.HasPrefix(d.MediaType, bundleMediaPrefix)
		})
		if err != nil && fault.ReasonOf(err) == fault.Untrusted {
			return nil, err
		}
		problems = append(problems, err)
		for _, l := range layers {
			out = append(out, l.evidence())
		}
	}
	return out, fault.Join(problems...)
}

// layerReader reads layers that hold signatures, and counts them: all that is read for one
// verification is bounded together.
type layerReader struct {
	fetcher Fetcher
	what    string // "signature" or "attestation", for messages
	most    int    // layers
	largest int64  // bytes of one
	number  int    // of layers, so far
	bytes   int64  // of manifests and layers, so far
}

// layer is one as it was read: its bytes, or why they cannot be had.
type layer struct {
	ocispec.Descriptor
	data    []byte
	problem string
}

// evidence reads the signature that a layer is or has.
func (l layer) evidence() Evidence {
	switch {
	case l.problem != "":
		return Evidence{problem: l.problem}
	case l.MediaType != SimpleSigningMediaType:
		return readSigstoreBundle(l.data, acceptingStatement)
	}
	e := readClaim(l.data).signedBy(l.Annotations[SignatureAnnotation])
	e.addCertificate(l.Annotations)
	return e
}

// room takes a part of what one verification may hold, before that is read.
func (r *layerReader) room(number int, size int64) error {
	r.number += number
	r.bytes += max(size, 0)
	if r.number <= r.most && r.bytes <= maxEvidenceBytes {
		return nil
	}
	return fault.Errorf(fault.Untrusted, "read "+r.what+"s", "", "remove "+r.what+"s that are out of use from the repository",
		"there are more than %d, or more than %d bytes of them", r.most, maxEvidenceBytes)
}

// read reads the layers of a manifest that are wanted. One that is damaged or not there is
// no error, since others may be enough.
func (r *layerReader) read(ctx context.Context, manifest ocispec.Descriptor, wanted func(ocispec.Descriptor) bool) ([]layer, error) {
	if err := r.room(0, min(manifest.Size, maxManifest)); err != nil {
		return nil, err
	}
	data, err := fetch(ctx, r.fetcher, manifest, maxManifest)
	if err != nil {
		return nil, fmt.Errorf("read %s manifest: %w", r.what, err)
	}
	descriptors, err := layersOf(data, wanted)
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
		out[n].data, err = fetch(ctx, r.fetcher, d, r.largest)
		switch reason := fault.ReasonOf(err); {
		case err == nil:
		case reason == fault.Corrupt || reason == fault.NotFound:
			out[n].problem = "unreadable (" + err.Error() + ")"
		default:
			return nil, fmt.Errorf("read %s: %w", r.what, err)
		}
	}
	return out, nil
}

// layersOf returns the layers of a manifest that are wanted.
func layersOf(data []byte, wanted func(ocispec.Descriptor) bool) ([]ocispec.Descriptor, error) {
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("not an image manifest: %w", err)
	}
	out := slices.DeleteFunc(m.Layers, func(l ocispec.Descriptor) bool { return !wanted(l) })
	if len(out) > maxSignatures {
		return nil, fmt.Errorf("%d signatures are more than %d", len(out), maxSignatures)
	}
	return out, nil
}

// fetch reads a descriptor's bytes, at most limit, and checks size and digest.
func fetch(ctx context.Context, fetcher Fetcher, d ocispec.Descriptor, limit int64) ([]byte, error) {
	corrupt := func(format string, args ...any) ([]byte, error) {
		return nil, fault.Errorf(fault.Corrupt, "read", d.Digest.String(), "", format, args...)
	}
	want, err := image.ParseDigest(d.Digest.String())
	switch {
	case err != nil:
		return corrupt("its digest is not a sha256 digest")
	case d.Size < 0 || d.Size > limit:
		return corrupt("its size of %d bytes is not between 0 and %d", d.Size, limit)
	}
	body, err := fetcher.Fetch(ctx, d)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(body, d.Size+1))
	err = errors.Join(err, body.Close())
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", d.Digest, err)
	case int64(len(data)) != d.Size:
		return corrupt("it does not have the %d bytes that it should", d.Size)
	case image.DigestOf(data) != want:
		return corrupt("its bytes have another digest: %s", image.DigestOf(data))
	}
	return data, nil
}
