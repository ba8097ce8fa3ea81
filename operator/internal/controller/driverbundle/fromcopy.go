package driverbundle

import (
	"context"
	"fmt"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// lookAtCopy accepts or refuses what the reference names by its digest, which the mirror did not
// give, by the copy that a revision keeps of it: its signatures and contents are judged as those
// of the mirror are. The mirror's fault stays, since nodes pull images from there.
func (o *outcome) lookAtCopy(ctx context.Context, r *Reconciler, b *v1alpha1.DriverBundle, p policies) {
	c, ok := namedByDigest(b)
	if !ok {
		return
	}
	why := o.unread
	if c.isAccepted(b) {
		if o.held.good() {
			o.fault = fromCopy(why)
		}
		return
	}
	copied := copyOf(r.Store, b, c)
	if _, err := copied.Evidence(ctx, c.root); fault.ReasonOf(err) == fault.NotFound {
		return
	}
	var err error
	if o.accepted, err = r.consider(ctx, b, p, copied, c, o); err != nil {
		o.fault = &fault.Error{
			Reason: fault.ReasonOf(o.fault), Hint: fault.HintOf(o.fault),
			Err: fmt.Errorf("%w; nor is it accepted from the copy in the cluster: %s", o.fault, fault.Text(err)),
		}
		return
	}
	o.fault = fromCopy(why)
}

// namedByDigest is what a reference names without the mirror, in the repository of the accepted
// bundle: a repository that nothing was accepted from has to be asked.
func namedByDigest(b *v1alpha1.DriverBundle) (candidate, bool) {
	ref, err := image.ParseReference(b.Spec.Reference)
	if err != nil || ref.Digest().IsZero() || b.Spec.Versions != "" || ref.Repository() != b.Status.Repository {
		return candidate{}, false
	}
	return candidate{repository: ref, tag: ref.Tag(), root: ocispec.Descriptor{Digest: digest.Digest(ref.Digest().String())}}, true
}

// fromCopy is the mirror's fault where the copy in the cluster serves.
func fromCopy(why error) error {
	return &fault.Error{
		Reason: fault.ReasonOf(why), Hint: fault.HintOf(why),
		Err: fmt.Errorf("%w; the bundle is taken from the copy in the cluster, and images that nodes do not have may be missing", why),
	}
}

// copied is the copy of a bundle, in the place of the mirror: what is read is verified from the
// digest that is asked for.
type copied struct {
	store  Store
	bundle *v1alpha1.DriverBundle // as if it had accepted that digest
}

func copyOf(s Store, b *v1alpha1.DriverBundle, c candidate) copied {
	as := b.DeepCopy()
	as.Status.Repository, as.Status.Digest = c.repository.Repository(), c.root.Digest.String()
	return copied{store: s, bundle: as}
}

// Evidence is that of the copy alone.
func (c copied) Evidence(ctx context.Context, _ ocispec.Descriptor) ([]trust.Evidence, error) {
	return c.store.Evidence(ctx, c.bundle)
}

// Contents are those of the digest.
func (c copied) Contents(ctx context.Context, _ ocispec.Descriptor) (*bundle.Contents, error) {
	return c.store.Contents(ctx, c.bundle)
}

// Keep has the DriverBundle own the copy: it may be there for revisions alone, and would go with
// the last of them.
func (c copied) Keep(ctx context.Context, _ ocispec.Descriptor, _ *bundle.Contents) error {
	return c.store.Own(ctx, c.bundle)
}
