package pull

import (
	"context"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
)

// presign signs a graph before it is written, so that a bundle never appears without its signature. It reuses the
// key's existing signature in the bundle's registry.
func (in Input) presign(ctx context.Context, g *bundle.Graph) error {
	if in.Signer == nil {
		return nil
	}
	subject, err := image.ParseDigest(g.Root.Digest.String())
	if err != nil {
		return err
	}
	made, err := signatures.Request{
		Signer: in.Signer, Subject: g.Root, Identity: in.Reference.Repository(), Format: in.SignatureFormat,
	}.Make(ctx, in.exists(ctx, subject, image.Signatures))
	g.Attachments = append(g.Attachments, made...)
	return err
}

// exists returns the subject's attachments in the bundle's registry; none if the repository is unreadable.
func (in Input) exists(ctx context.Context, subject image.Digest, under image.Suffix) (exists signatures.Existing) {
	if in.Mirror != nil {
		exists, _ = signatures.ReadExisting(ctx, in.Mirror(in.Reference), subject, under, true)
	}
	return exists
}
