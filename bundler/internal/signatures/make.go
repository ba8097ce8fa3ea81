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
	subject := bundle.DigestOf(r.Subject)
	made, err := Maker{
		Has: func(a bundle.Referrer) bool {
			if a.Tag != "" {
				return false // Sign finds the claim in it, with the identity
			}
			evidence, err := trust.ReadEvidence(ctx, Carried(a), a.Node.Descriptor)
			return err == nil && r.Signer.HasSigned(subject, evidence)
		},
		Tagged: func(existing bundle.Referrer) (bundle.Referrer, error) {
			return r.Signer.Sign(subject, r.Identity, existing)
		},
		Referrer: func() (bundle.Referrer, error) { return r.Signer.SignBundle(r.Subject) },
	}.Make(r.Format, exists)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", subject, err)
	}
	return made, nil
}

// Maker creates a statement about a subject, in each form.
type Maker struct {
	Has      func(bundle.Referrer) bool                              // whether an existing attachment makes it
	Tagged   func(existing bundle.Referrer) (bundle.Referrer, error) // adds to the content of the tag
	Referrer func() (bundle.Referrer, error)
}

// Make returns the attachments for a format: existing ones, or new ones.
func (m Maker) Make(f Format, exists Existing) (out []bundle.Referrer, err error) {
	made := exists.Tagged
	if f != SigstoreBundle {
		if !m.Has(made) {
			if made, err = m.Tagged(made); err != nil {
				return nil, err
			}
		}
		out = append(out, made)
	}
	if f == Simple {
		return out, nil
	}
	if n := slices.IndexFunc(exists.Referring, m.Has); n >= 0 {
		return append(out, exists.Referring[n]), nil
	}
	if made, err = m.Referrer(); err != nil {
		return nil, err
	}
	return append(out, made), nil
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
	return (&bundle.Graph{Attachments: []bundle.Referrer{a}}).InMemory()
}
