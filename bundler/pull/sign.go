package pull

import (
	"context"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
)

// presign signs a graph before it is written, so that a bundle never shows without
// its signature. Where the key has signed the bundle in its registry before, that signature
// is taken.
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
	}.Make(ctx, in.exists(ctx, subject))
	g.Attachments = append(g.Attachments, made...)
	return err
}

// exists is what the bundle's registry has about a subject already. Where a repository is not there
// yet, or cannot be read, nothing is known of it.
func (in Input) exists(ctx context.Context, subject image.Digest) (exists signatures.Existing) {
	if in.Mirror != nil {
		exists.Referring, _ = signatures.Referring(ctx, in.Mirror(in.Reference), subject)
	}
	return exists
}
