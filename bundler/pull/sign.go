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
	there, err := signatures.At(ctx, in.Target, subject, trust.SignatureTag(subject))
	if err != nil {
		return err
	}
	a, err := signatures.New(in.Signer, subject, in.Reference.Repository(), there.Node.Data)
	if err != nil {
		return err
	}
	g.Attachments = append(g.Attachments, signatures.WithData(a, there))
	return nil
}
