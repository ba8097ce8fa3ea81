package bundler

import (
	"context"
	"fmt"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// maxSignatureManifest bounds the manifest under a signature's tag, in bytes.
const maxSignatureManifest = 4 << 20

// Signable is a bundle that a signature can be added to.
type Signable interface {
	Source
	Attacher
}

// Sign adds a signature to a bundle that is there. The bundle's structure is read
// first, so that what is no bundle, or lacks a part, is not signed. Its layers are
// not read: they were verified when they arrived, and verify reads them.
func Sign(ctx context.Context, b Signable, signer *trust.Signer, identity string) (ocispec.Descriptor, error) {
	root, g, err := open(ctx, b)
	if err != nil {
		return root, err
	}
	if _, err := g.Contents(ctx, b); err != nil {
		return root, err
	}
	subject, err := image.ParseDigest(root.Digest.String())
	if err != nil {
		return root, err
	}
	existing, err := existingSignature(ctx, b, subject)
	if err != nil {
		return root, err
	}
	attachment, err := signature(signer, subject, identity, existing)
	if err != nil {
		return root, err
	}
	return root, b.Attach(ctx, attachment)
}

// open reads the structure of a bundle.
func open(ctx context.Context, s Source) (ocispec.Descriptor, *bundle.Graph, error) {
	root, err := s.Root(ctx)
	if err != nil {
		return root, nil, err
	}
	g, err := load(ctx, s, root)
	return root, g, diagnosed(ctx, s, err)
}

// opened is a bundle as far as it is read to describe it.
type opened struct {
	graph    *bundle.Graph
	contents *bundle.Contents
	matrix   *matrix.Document // of describe only
	root     image.Digest
}

// read reads the structure of a bundle and what it holds apart from images.
func read(ctx context.Context, s Source) (*opened, error) {
	root, g, err := open(ctx, s)
	if err != nil {
		return nil, err
	}
	o := &opened{graph: g}
	if o.root, err = image.ParseDigest(root.Digest.String()); err != nil {
		return nil, err
	}
	o.contents, err = g.Contents(ctx, s)
	return o, err
}

// describe is read, with the matrix.
func describe(ctx context.Context, s Source) (*opened, error) {
	o, err := read(ctx, s)
	if err != nil {
		return nil, err
	}
	o.matrix, err = matrix.Parse("the bundle's matrix", o.contents.Matrix)
	return o, err
}

// load reads the graph below a root, of a delta as such.
func load(ctx context.Context, s Source, root ocispec.Descriptor) (*bundle.Graph, error) {
	g, err := bundle.Load(ctx, s, root)
	if err != nil {
		return nil, err
	}
	if d, ok := s.(Delta); ok {
		err = g.LeaveTo(d.Base())
	}
	return g, err
}

// existingSignature returns the manifest under the signature's tag, or nil.
func existingSignature(ctx context.Context, s Source, subject image.Digest) ([]byte, error) {
	attached, err := s.Attachments(ctx, subject)
	if err != nil {
		return nil, err
	}
	for _, d := range attached {
		if d.Annotations[ocispec.AnnotationRefName] == trust.SignatureTag(subject) {
			return bundle.Read(ctx, s, d, maxSignatureManifest)
		}
	}
	return nil, nil
}

// signature makes an attachment that signs a digest.
func signature(signer *trust.Signer, subject image.Digest, identity string, existing []byte) (bundle.Attachment, error) {
	signed, err := signer.Sign(subject, identity, existing)
	if err != nil {
		return bundle.Attachment{}, fmt.Errorf("sign %s: %w", subject, err)
	}
	return attachmentOf(subject, signed), nil
}

// attachmentOf is what was signed as the media take it.
func attachmentOf(subject image.Digest, signed trust.Signed) bundle.Attachment {
	a := bundle.Attachment{
		Subject: subject, Tag: signed.Tag,
		Node: bundle.Node{Descriptor: signed.Descriptor, Data: signed.Manifest},
	}
	data := map[string][]byte{}
	for _, b := range signed.Blobs {
		data[b.Descriptor.Digest.String()] = b.Data
	}
	for _, d := range children(signed.Manifest) {
		d.Annotations = nil
		d.Data = data[d.Digest.String()]
		a.Blobs = append(a.Blobs, d)
	}
	return a
}

// presign signs a graph before it is written, so that a bundle never shows without
// its signature.
func presign(g *bundle.Graph, signer *trust.Signer, target image.Reference) error {
	if signer == nil {
		return nil
	}
	subject, err := image.ParseDigest(g.Root.Digest.String())
	if err != nil {
		return err
	}
	a, err := signature(signer, subject, target.Repository(), nil)
	if err != nil {
		return err
	}
	g.Attachments = append(g.Attachments, a)
	return nil
}

// attachments adds to a graph what is attached to its root, its images and what they
// consist of in a source.
func attachments(ctx context.Context, s Source, g *bundle.Graph, o Options) error {
	subjects, err := subjectsOf(ctx, s, g)
	if err != nil {
		return err
	}
	found := make([][]bundle.Attachment, len(subjects))
	err = forEach(ctx, o.limit(), len(subjects), func(n int) error {
		attached, err := s.Attachments(ctx, subjects[n])
		if err != nil {
			return err
		}
		found[n], err = readAttachments(ctx, s, subjects[n], attached)
		return err
	})
	g.Attachments = append(g.Attachments, slices.Concat(found...)...)
	return err
}
