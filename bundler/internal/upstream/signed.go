package upstream

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
)

// Carry says whose signatures, attestations and SBOMs travel in a bundle, besides
// the root's own.
type Carry string

// The values of Carry. Signatures upstream may become more at any time: a bundle
// that carries them is not the same bytes at every pull, so that none is the default.
const (
	CarryNone   Carry = "none"
	CarryImages Carry = "images" // of each image of the lock
	CarryAll    Carry = "all"    // of each image, of the manifest of each platform, and of what is attached
)

// Signed is what is attached to the images of a lock.
type Signed struct {
	Verified    []VerifiedImage // in the order of the lock; none where there is no policy
	Attachments []bundle.Attachment
	From        map[digest.Digest]bundle.Image // of their blobs, an image to which each is attached
}

// Carried is how many signatures, attestations and SBOMs travel beside their image.
func (u Signed) Carried() (n int) {
	for _, a := range u.Attachments {
		if a.Node.Descriptor.ArtifactType != bundle.EvidenceType {
			n++
		}
	}
	return n
}

// Input says of which images what is read.
type Input struct {
	Lock     *bundle.Lock
	Trees    []bundle.Tree // of the images, in the lock's order
	Registry medium.Registry
	Policy   *Policy // whose signatures the images need; nil: they are not verified
	Carry    Carry   // what travels; "": nothing
}

func (in Input) carries() bool { return in.Carry != "" && in.Carry != CarryNone }

// ReadSigned looks at what is attached to the images of a lock: it verifies their
// signatures where there is a policy, and reads what is to travel. All images that
// fail are named together.
func ReadSigned(ctx context.Context, in Input, o run.Options) (Signed, error) {
	u := Signed{From: map[digest.Digest]bundle.Image{}}
	indexed := func(i bundle.Image) bool { _, ok := i.Index(); return ok }
	if in.Policy == nil && !in.carries() && !slices.ContainsFunc(in.Lock.Images, indexed) {
		return u, nil
	}
	o.Reporter().Phase("upstream signatures and indexes", len(in.Lock.Images), 0)
	found := make([][]bundle.Attachment, len(in.Lock.Images))
	verified := make([]VerifiedImage, len(in.Lock.Images))
	a := attachedReader{in: in, options: o}
	err := run.Each(ctx, o.Limit(), len(in.Lock.Images), func(n int) error {
		i := in.Lock.Images[n]
		var err error
		verified[n], found[n], err = a.read(ctx, i, in.Trees[n])
		o.Reporter().Done(i.Reference.String(), err)
		return err
	})
	if err != nil {
		return u, err
	}
	if in.Policy != nil {
		u.Verified = verified
	}
	u.take(in.Lock.Images, found)
	return u, nil
}

// take keeps what was found for each image, everything once: one image may have two
// references.
func (u *Signed) take(images []bundle.Image, found [][]bundle.Attachment) {
	seen := map[string]bool{}
	for n, attachments := range found {
		for _, a := range attachments {
			key := a.Subject.String() + " " + cmp.Or(a.Tag, a.Node.Descriptor.Digest.String())
			if seen[key] {
				continue
			}
			seen[key] = true
			u.Attachments = append(u.Attachments, a)
			for _, b := range a.Blobs {
				u.From[b.Digest] = images[n]
			}
		}
	}
}

// attachedReader reads what is attached to images, all of it within one bound.
type attachedReader struct {
	in      Input
	options run.Options
	reader  signatures.Reader
}

// read verifies one image and reads what of its attachments travels.
func (a *attachedReader) read(ctx context.Context, i bundle.Image, tree bundle.Tree) (v VerifiedImage, out []bundle.Attachment, err error) {
	x, err := a.readIndex(ctx, i)
	if err != nil {
		return v, nil, err
	}
	if x != nil {
		e, err := a.evidence(ctx, x)
		if err != nil {
			return v, nil, fmt.Errorf("image %s: %w", i.Reference, err)
		}
		out = append(out, e)
	}
	if a.in.Policy == nil && !a.in.carries() {
		return v, out, nil
	}
	from, about := &sameList{Source: a.in.Registry(i.FetchedFrom())}, subjects(i, tree)
	var attached []ocispec.Descriptor
	if x != nil && bundle.IsIndex(i.MediaType) {
		about = about[1:] // upstream has no such index, and nothing that is about it
	} else if attached, err = from.Attachments(ctx, i.Digest); err != nil {
		return v, nil, fmt.Errorf("image %s: %w", i.Reference, err)
	}
	if a.in.Policy != nil {
		if v, err = a.in.Policy.verify(ctx, from, i, attached, x, a.options.Time()); err != nil {
			return v, nil, err
		}
	}
	var more []bundle.Attachment
	switch {
	case !a.in.carries():
	case a.in.Carry != CarryAll:
		more, err = a.reader.Read(ctx, from, i.Digest, attached)
	default:
		if more, err = a.reader.Below(ctx, from, about, a.options); err != nil {
			err = fmt.Errorf("image %s: %w", i.Reference, err)
		}
	}
	return v, append(out, more...), err
}

// subjects are the image and the manifests of its platforms.
func subjects(i bundle.Image, tree bundle.Tree) []image.Digest {
	out := []image.Digest{i.Digest}
	for _, n := range tree.Nodes {
		if d, err := image.ParseDigest(n.Descriptor.Digest.String()); err == nil && d != i.Digest {
			out = append(out, d)
		}
	}
	return out
}

// sameList is a source whose signatures are those that were verified.
type sameList struct {
	medium.Source
	attached signatures.Lists
}

// Attachments returns what refers to subject, as it was when that was asked first.
func (s *sameList) Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	return s.attached.Of(ctx, s.Source, subject)
}
