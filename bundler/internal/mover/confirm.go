package mover

import (
	"context"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// Mirror is a repository that a bundle was delivered to.
type Mirror struct {
	Reference image.Reference
	Registry  medium.Registry // opens it for reading
}

// Confirm reads the bundle in the repository, and has the target note the push.
func (m Mirror) Confirm(ctx context.Context, d *Delivery, lock *bundle.Lock) error {
	want, o := []ocispec.Descriptor{d.graph.Root}, d.options
	for _, i := range lock.Images {
		want = append(want, i.Descriptor())
	}
	if err := m.readAll(ctx, want, o); err != nil || d.can.Remember == nil {
		return err
	}
	if err := d.can.Remember(ctx); err != nil && ctx.Err() == nil { // the bundle itself is there
		o.Reporter().Say(fmt.Sprintf("`vdo-bundle list` will not show when this was pushed: the registry did not take the note: %v", err))
	}
	return nil
}

// readAll reads manifests from the registry as the operator does, each as
// REPOSITORY@DIGEST. Commit has made sure that they are named so.
func (m Mirror) readAll(ctx context.Context, want []ocispec.Descriptor, o run.Options) error {
	o.Reporter().Phase("check", len(want), 0)
	err := run.Each(ctx, o.Small(), len(want), func(n int) error {
		pinned, err := pin(m.Reference, want[n])
		if err == nil {
			_, err = bundle.Read(ctx, m.Registry(pinned), bundle.Plain(want[n]), bundle.MaxManifestSize)
		}
		o.Reporter().Done(pinned.String(), err)
		return err
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &fault.Error{
		Reason: fault.Incomplete, Op: "check", Subject: m.Reference.String(), Err: err,
		Hint: "push again; if it happens again, the registry does not keep what it accepts",
	}
}

func pin(at image.Reference, d ocispec.Descriptor) (image.Reference, error) {
	digest, err := image.ParseDigest(d.Digest.String())
	return at.Pin(digest), err
}
