package bundler

import (
	"context"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
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
func Sign(ctx context.Context, s Signable, signer *trust.Signer, identity string) (ocispec.Descriptor, error) {
	b, err := Open(ctx, s)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	if _, err := b.read(ctx); err != nil {
		return b.root, err
	}
	existing, err := existingSignature(ctx, b, b.digest)
	if err != nil {
		return b.root, err
	}
	attachment, err := signature(signer, b.digest, identity, existing)
	if err != nil {
		return b.root, err
	}
	return b.root, s.Attach(ctx, attachment)
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
	for _, d := range a.Node.Children() {
		d.Annotations = nil
		d.Data = data[d.Digest.String()]
		a.Blobs = append(a.Blobs, d)
	}
	return a
}

// presign signs a graph before it is written, so that a bundle never shows without
// its signature. Signatures that the target has already stay, and where the key has
// signed there before, nothing is added: the same pull again gives the same bundle.
func presign(ctx context.Context, g *bundle.Graph, signer *trust.Signer, target Target, reference image.Reference) error {
	if signer == nil {
		return nil
	}
	subject, err := image.ParseDigest(g.Root.Digest.String())
	if err != nil {
		return err
	}
	there, err := atPlace(ctx, target, subject, trust.SignatureTag(subject))
	if err != nil {
		return err
	}
	a, err := signature(signer, subject, reference.Repository(), there.Node.Data)
	if err != nil {
		return err
	}
	g.Attachments = append(g.Attachments, withData(a, there))
	return nil
}

// atPlace returns what a target has under a tag; nothing where it cannot say.
func atPlace(ctx context.Context, target Target, subject image.Digest, tag string) (bundle.Attachment, error) {
	t, ok := target.(Tagger)
	if !ok {
		return bundle.Attachment{}, nil
	}
	a, err := t.Tagged(ctx, subject, tag)
	if err != nil || a == nil {
		return bundle.Attachment{}, err
	}
	return *a, nil
}

// withData gives the blobs of an attachment the bytes that another one has.
func withData(a, from bundle.Attachment) bundle.Attachment {
	for i, b := range a.Blobs {
		for _, o := range from.Blobs {
			if b.Data == nil && b.Digest == o.Digest {
				a.Blobs[i].Data = o.Data
			}
		}
	}
	return a
}
