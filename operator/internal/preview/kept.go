package preview

import (
	"context"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/driverbundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/store"
)

// kept is the operator's store, but that what is accepted is kept here and not in the cluster.
type kept struct {
	*store.Store

	contents map[string]*bundle.Contents // by the digest that was verified
	evidence map[string][]trust.Evidence // likewise
}

func newKept(s *store.Store) *kept {
	return &kept{Store: s, contents: map[string]*bundle.Contents{}, evidence: map[string][]trust.Evidence{}}
}

// Contents returns what was accepted here, or is in the cluster.
func (k *kept) Contents(ctx context.Context, b *v1alpha1.DriverBundle) (*bundle.Contents, error) {
	if c := k.contents[b.Status.Digest]; c != nil {
		return c, nil
	}
	return k.Store.Contents(ctx, b)
}

// Evidence returns the signatures of what was accepted here, or is in the cluster.
func (k *kept) Evidence(ctx context.Context, b *v1alpha1.DriverBundle) ([]trust.Evidence, error) {
	if e := k.evidence[b.Status.Digest]; e != nil {
		return e, nil
	}
	return k.Store.Evidence(ctx, b)
}

// RecordSerial records nothing.
func (*kept) RecordSerial(context.Context, *v1alpha1.DriverBundle, int64) error { return nil }

// Own owns nothing.
func (*kept) Own(context.Context, *v1alpha1.DriverBundle) error { return nil }

// Forget forgets nothing.
func (*kept) Forget(context.Context, *v1alpha1.DriverBundle) error { return nil }

func (k *kept) open(ctx context.Context, b *v1alpha1.DriverBundle) (driverbundle.Mirror, error) {
	m, err := k.Store.Open(ctx, b)
	if err != nil {
		return nil, err // rather than a nil *Mirror in the interface
	}
	return &session{Mirror: m, to: k}, nil
}

// session is one with the mirror, of which nothing is kept in the cluster.
type session struct {
	*store.Mirror

	to   *kept
	read []trust.Evidence
}

// Evidence returns the signatures of a root.
func (s *session) Evidence(ctx context.Context, root ocispec.Descriptor) ([]trust.Evidence, error) {
	var err error
	s.read, err = s.Mirror.Evidence(ctx, root)
	return s.read, err
}

// Keep keeps what was verified for as long as the preview is made.
func (s *session) Keep(_ context.Context, root ocispec.Descriptor, contents *bundle.Contents) error {
	s.to.contents[root.Digest.String()], s.to.evidence[root.Digest.String()] = contents, s.read
	return nil
}

// instead is the cluster with another state of one DriverBundle.
type instead struct {
	client.Client

	bundle *v1alpha1.DriverBundle
}

// Get reads, or returns the other state.
func (i instead) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := i.Client.Get(ctx, key, o, opts...)
	if b, is := o.(*v1alpha1.DriverBundle); is && err == nil {
		i.put(b)
	}
	return err
}

// List lists, with the other state.
func (i instead) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := i.Client.List(ctx, list, opts...)
	if all, is := list.(*v1alpha1.DriverBundleList); is && err == nil {
		for n := range all.Items {
			i.put(&all.Items[n])
		}
	}
	return err
}

func (i instead) put(b *v1alpha1.DriverBundle) {
	if b.UID == i.bundle.UID {
		i.bundle.DeepCopyInto(b)
	}
}
