package pull

import (
	"context"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
)

// presign signs a graph before it is written, so that a bundle never appears without its signature. It reuses the
// key's existing signature in the bundle's registry.
func (in Input) presign(ctx context.Context, g *bundle.Graph) error {
	if in.Signer == nil {
		return nil
	}
	exists, err := in.exists(ctx, bundle.DigestOf(g.Root), image.Signatures)
	if err != nil {
		return err
	}
	made, err := signatures.Request{
		Signer: in.Signer, Subject: g.Root, Identity: in.Reference.Repository(), Format: in.SignatureFormat,
	}.Make(ctx, exists)
	g.Attachments = append(g.Attachments, made...)
	return err
}

// exists returns the subject's attachments in the bundle's registry; none if it has no such subject, which registries
// also answer with 401 or 403. Any other fault is an error, as the new attachment would take the existing one's place.
func (in Input) exists(ctx context.Context, subject image.Digest, under image.Suffix) (signatures.Existing, error) {
	if in.Mirror == nil {
		return signatures.Existing{}, nil
	}
	exists, err := signatures.ReadExisting(ctx, in.Mirror(in.Reference), subject, under, true)
	switch reason := fault.ReasonOf(err); reason {
	case fault.NotFound, fault.Unauthorized, fault.Forbidden:
		return signatures.Existing{}, nil
	case fault.Corrupt, fault.Incomplete:
		return exists, &fault.Error{Reason: reason, Op: "add to", Err: err,
			Subject: in.Reference.Repository() + ":" + under.TagOf(subject), Hint: "delete that tag in the registry"}
	}
	return exists, err
}
