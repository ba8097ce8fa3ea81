package signatures

import (
	"context"
	"fmt"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

// Format is the form of a signature.
type Format string

// Both, the default, serves verifiers that know only one of the other two forms.
const (
	Both           Format = "both"
	SigstoreBundle Format = "sigstore-bundle" // a manifest that refers to the bundle, as cosign 3 writes it
	Simple         Format = "simple"          // simple signing under the tag sha256-HEX.sig, as cosign 2 writes it
)

// Formats returns the names of all formats.
func Formats() []string { return []string{string(Both), string(SigstoreBundle), string(Simple)} }

// Request says what to sign, for whom and how.
type Request struct {
	Signer   *trust.Signer
	Subject  ocispec.Descriptor
	Identity string // the signer's name for the subject
	Format   Format
}

// Existing is what the target already has attached to the subject.
type Existing struct {
	Tagged    bundle.Referrer   // under the tag; zero: none
	Referring []bundle.Referrer // referrers, with their bytes
}

// Make returns the attachments of a signature. It reuses the signer's existing ones: signing again adds nothing.
func (r Request) Make(ctx context.Context, exists Existing) ([]bundle.Referrer, error) {
	subject, err := image.ParseDigest(r.Subject.Digest.String())
	if err != nil {
		return nil, err
	}
	made, err := Maker{
		Has: func(a bundle.Referrer) bool {
			if a.Tag != "" {
				return false // Sign finds the claim in it, with the identity
			}
			evidence, err := trust.ReadEvidence(ctx, Carried(a), a.Node.Descriptor)
			return err == nil && r.Signer.HasSigned(subject, evidence)
		},
		Tagged:   func(existing []byte) (trust.Signed, error) { return r.Signer.Sign(subject, r.Identity, existing) },
		Referrer: func() (trust.Signed, error) { return r.Signer.SignBundle(r.Subject) },
	}.Make(subject, r.Format, exists)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", subject, err)
	}
	return made, nil
}

// Maker creates a statement about a subject, in each form.
type Maker struct {
	Has      func(bundle.Referrer) bool                  // whether an existing attachment already makes the statement
	Tagged   func(existing []byte) (trust.Signed, error) // adds to the content of the tag
	Referrer func() (trust.Signed, error)
}

// Make returns the attachments for a format: existing ones, or new ones.
func (m Maker) Make(subject image.Digest, f Format, exists Existing) (out []bundle.Referrer, err error) {
	var signed trust.Signed
	if f != SigstoreBundle {
		made := exists.Tagged
		if !m.Has(made) {
			if signed, err = m.Tagged(made.Node.Data); err != nil {
				return nil, err
			}
			made = withData(Of(subject, signed), made)
		}
		out = append(out, made)
	}
	if f == Simple {
		return out, nil
	}
	if n := slices.IndexFunc(exists.Referring, m.Has); n >= 0 {
		return append(out, exists.Referring[n]), nil
	}
	if signed, err = m.Referrer(); err != nil {
		return nil, err
	}
	return append(out, Of(subject, signed)), nil
}

// ReadExisting returns what a source has attached to a subject: the manifest under a tag of cosign, and the referrers
// that may hold a signature, with their bytes. The blobs under the tag have their bytes if withBlobs.
func ReadExisting(
	ctx context.Context, s Source, subject image.Digest, under image.Suffix, withBlobs bool,
) (exists Existing, err error) {
	attached, err := s.Attachments(ctx, subject)
	if err != nil {
		return exists, err
	}
	if exists.Referring, err = bundle.ReadReferrers(ctx, s, subject, attached, trust.BundleMediaType); err != nil {
		return exists, err
	}
	for _, d := range attached {
		if d.Annotations[ocispec.AnnotationRefName] != under.TagOf(subject) {
			continue
		}
		tagged, err := bundle.ReadReferrer(ctx, s, subject, d)
		if err == nil && withBlobs {
			err = tagged.Fill(ctx, s)
		}
		if err != nil {
			return exists, err
		}
		exists.Tagged = tagged
	}
	return exists, nil
}

// Carried returns the content of an attachment that has its bytes.
func Carried(a bundle.Referrer) bundle.InMemory {
	out := bundle.InMemory{a.Node.Descriptor.Digest: a.Node.Data}
	for _, b := range a.Blobs {
		out[b.Digest] = b.Data
	}
	return out
}

// Of returns a signed statement as an attachment.
func Of(subject image.Digest, signed trust.Signed) bundle.Referrer {
	a := bundle.Referrer{
		Subject: subject, Tag: signed.Tag,
		Node: bundle.Node{Descriptor: signed.Descriptor, Data: signed.Manifest},
	}
	data := map[string][]byte{}
	for _, b := range signed.Blobs {
		data[b.Descriptor.Digest.String()] = b.Data
	}
	for _, d := range a.Node.Children() {
		d.Annotations = nil
		d.Data = data[d.Digest.String()]
		a.Blobs = append(a.Blobs, d)
	}
	return a
}

// withData copies the bytes of blobs from another attachment.
func withData(a, from bundle.Referrer) bundle.Referrer {
	for i, b := range a.Blobs {
		for _, o := range from.Blobs {
			if b.Data == nil && b.Digest == o.Digest {
				a.Blobs[i].Data = o.Data
			}
		}
	}
	return a
}
