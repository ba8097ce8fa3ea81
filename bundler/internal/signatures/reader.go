// Package signatures reads and makes the attachments of a bundle: signatures, attestations and SBOMs
// of the root and everything below it. They are under cosign's tags or are referrers. The package
// bounds all attachments of one bundle together, before reading them ([Reader]). It keeps the first
// list of a subject ([Kept]), so that a flow moves exactly what it verified.
//
// Package api/trust decides whether a signature is valid.
package signatures

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// Source returns the attachments of a digest.
type Source interface {
	bundle.Fetcher
	Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error)
}

// Reader reads and counts attachments of one bundle. It is safe for concurrent use.
type Reader struct {
	mu     sync.Mutex
	number int
	bytes  int64
}

// Room counts attachments before they are read, and refuses those above the limits.
func (r *Reader) Room(ds []ocispec.Descriptor) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number += len(ds)
	r.bytes += bundle.SizeOf(ds)
	if r.number <= bundle.MaxNodes && r.bytes <= bundle.MaxManifestBytes {
		return nil
	}
	return fault.Errorf(fault.Refused, "read signatures and attestations", "", "remove those that are out of use",
		"there are more than %d, or their manifests have more than %d bytes", bundle.MaxNodes, bundle.MaxManifestBytes)
}

// Below reads the attachments of subjects, their attachments, and so on, such as a signature of an attestation. It
// asks for each subject, since no medium is sure to list all.
func (r *Reader) Below(ctx context.Context, s Source, subjects []image.Digest, o run.Options) ([]bundle.Referrer, error) {
	var out []bundle.Referrer
	known := map[image.Digest]bool{}
	for len(subjects) > 0 {
		for _, d := range subjects {
			known[d] = true
		}
		found, err := r.attachedTo(ctx, s, subjects, o)
		if err != nil {
			return nil, fault.Distinct(err)
		}
		out, subjects = append(out, found...), nil
		for _, a := range found {
			if d := bundle.DigestOf(a.Node.Descriptor); !known[d] {
				known[d] = true
				subjects = append(subjects, d)
			}
		}
	}
	return out, nil
}

// attachedTo reads the attachments of subjects, in their order.
func (r *Reader) attachedTo(ctx context.Context, s Source, subjects []image.Digest, o run.Options) ([]bundle.Referrer, error) {
	found := make([][]bundle.Referrer, len(subjects))
	err := run.Each(ctx, o.Small(), len(subjects), func(n int) (err error) {
		found[n], err = r.Read(ctx, s, subjects[n])
		return err
	})
	return slices.Concat(found...), err
}

// Read reads the manifests of a subject's attachments. It skips indexes: signatures, attestations and SBOMs never have
// that form.
func (r *Reader) Read(ctx context.Context, s Source, subject image.Digest) ([]bundle.Referrer, error) {
	if err := r.Room(nil); err != nil {
		return nil, err
	}
	attached, err := s.Attachments(ctx, subject)
	if err != nil {
		return nil, err
	}
	attached = slices.DeleteFunc(attached, func(d ocispec.Descriptor) bool { return bundle.IsIndex(d.MediaType) })
	if err := r.Room(attached); err != nil {
		return nil, err
	}
	out := make([]bundle.Referrer, 0, len(attached))
	var problems []error
	for _, d := range attached {
		a, err := bundle.ReadReferrer(ctx, s, subject, d)
		if err != nil {
			problems = append(problems, fmt.Errorf("referrer %s of %s: %w", d.Digest, subject, err))
			continue
		}
		out = append(out, a)
	}
	return out, fault.Join(problems...)
}

// Kept is a source with the first list of attachments of each subject, so that a flow moves exactly what it verified.
type Kept struct {
	medium.Source
	lists sync.Map // by subject
}

// None says that nothing is attached to a subject, which the source does not know.
func (k *Kept) None(subject image.Digest) { k.lists.Store(subject, []ocispec.Descriptor(nil)) }

// Attachments returns the attachments of a subject, as at the first call.
func (k *Kept) Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	list, ok := k.lists.Load(subject)
	if !ok {
		asked, err := k.Source.Attachments(ctx, subject)
		if err != nil {
			return nil, err
		}
		list, _ = k.lists.LoadOrStore(subject, asked)
	}
	return slices.Clone(list.([]ocispec.Descriptor)), nil //nolint:forcetypeassert // of the map's only kind
}

// Signature is an attachment of a digest.
type Signature struct {
	Digest image.Digest `json:"digest"`
	Tag    string       `json:"tag,omitempty"`  // cosign's tag, if it has one
	Type   string       `json:"type,omitempty"` // artifact type of a referrer
}

// compare orders attachments the same way for every medium: tags first.
func (s Signature) compare(t Signature) int {
	if (s.Tag == "") != (t.Tag == "") {
		return strings.Compare(t.Tag, s.Tag)
	}
	return cmp.Or(strings.Compare(s.Tag, t.Tag), strings.Compare(s.Type, t.Type), strings.Compare(s.Digest.String(), t.Digest.String()))
}

// List returns the attachments of a subject, in the same order from every medium.
func List(ctx context.Context, s Source, subject image.Digest) ([]Signature, error) {
	attached, err := s.Attachments(ctx, subject)
	out := []Signature{}
	for _, d := range attached {
		digest, err := image.ParseDigest(d.Digest.String())
		if err != nil {
			return nil, err
		}
		out = append(out, Signature{Digest: digest, Tag: d.Annotations[ocispec.AnnotationRefName], Type: d.ArtifactType})
	}
	slices.SortFunc(out, Signature.compare)
	return out, err
}

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

// Request says what to sign, for whom and how: the subject itself or, with Type, a statement about it.
type Request struct {
	Signer   *trust.Signer
	Subject  ocispec.Descriptor
	Identity string // the signer's name for the subject
	Format   Format

	Type      string // of the predicate
	Predicate []byte
	Same      func(predicate []byte) bool // whether an existing one says the same
}

// Existing is what the target already has attached to the subject.
type Existing struct {
	Tagged    bundle.Referrer   // under the tag; zero: none
	Referring []bundle.Referrer // referrers, with their bytes
}

// Make returns the attachments. It reuses the signer's existing ones: signing again adds nothing.
func (r Request) Make(ctx context.Context, exists Existing) (out []bundle.Referrer, err error) {
	made, subject := exists.Tagged, bundle.DigestOf(r.Subject)
	if r.Format != SigstoreBundle {
		if r.Type == "" { // Sign finds the same claim, with the identity
			made, err = r.Signer.Sign(subject, r.Identity, made)
		} else if !r.isMade(ctx, made) {
			made, err = r.Signer.Attest(subject, r.Identity, r.Type, r.Predicate, made)
		}
		out = append(out, made)
	}
	if r.Format != Simple && err == nil {
		n := slices.IndexFunc(exists.Referring, func(a bundle.Referrer) bool { return r.isMade(ctx, a) })
		switch {
		case n >= 0:
			made = exists.Referring[n]
		case r.Type == "":
			made, err = r.Signer.SignBundle(r.Subject)
		default:
			made, err = r.Signer.AttestBundle(r.Subject, r.Identity, r.Type, r.Predicate)
		}
		out = append(out, made)
	}
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", subject, err)
	}
	return out, nil
}

// isMade reports whether an attachment with its bytes is the signer's, and says the same.
func (r Request) isMade(ctx context.Context, a bundle.Referrer) bool {
	subject, manifest := bundle.DigestOf(r.Subject), a.Node.Descriptor
	held := (&bundle.Graph{Attachments: []bundle.Referrer{a}}).InMemory()
	if r.Type == "" {
		evidence, err := trust.ReadEvidence(ctx, held, manifest)
		return err == nil && r.Signer.HasSigned(subject, evidence)
	}
	policy, policyErr := r.Signer.Policy()
	statements, err := trust.ReadStatements(ctx, held, []ocispec.Descriptor{manifest}, r.Type)
	return policyErr == nil && err == nil && slices.ContainsFunc(statements, func(s trust.Statement) bool {
		_, predicate, err := policy.VerifyStatement(subject, []trust.Statement{s}, time.Now())
		return err == nil && r.Same(predicate)
	})
}

// ReadExisting returns what a source has attached to a subject: the manifest under a tag of cosign, and referrers that
// may hold a signature. These have their bytes; the blobs under the tag have them if withBlobs.
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
