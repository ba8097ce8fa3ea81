package pull

import (
	"context"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
)

// presign signs a graph before it is written, so that a bundle never shows without
// its signature. Signatures that the target has already stay, and where the key has
// signed there before, nothing is added: the same pull again gives the same bundle.
func (in Input) presign(ctx context.Context, g *bundle.Graph) error {
	if in.Signer == nil {
		return nil
	}
	subject, err := image.ParseDigest(g.Root.Digest.String())
	if err != nil {
		return err
	}
	there, err := in.there(ctx, subject, trust.SignatureTag(subject))
	if err != nil {
		return err
	}
	made, err := signatures.Request{
		Signer: in.Signer, Subject: g.Root, Identity: in.Reference.Repository(), Format: in.SignatureFormat,
	}.Make(ctx, there)
	g.Attachments = append(g.Attachments, made...)
	return err
}

// there is what the target has about a subject already. Where a repository is not there
// yet, or cannot be read, nothing is known of it.
func (in Input) there(ctx context.Context, subject image.Digest, tag string) (signatures.There, error) {
	there, err := signatures.AtTarget(ctx, in.Target, subject, tag)
	if err != nil || in.Mirror == nil {
		return there, err
	}
	if found, err := signatures.Referring(ctx, in.Mirror(in.Reference), subject); err == nil {
		there.Referring = append(there.Referring, found...)
	}
	return there, nil
}
