package registry

import (
	"context"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// Holds asks for blobs, with no more than the right to pull, and returns those that
// the repository has.
func (r *Repository) Holds(ctx context.Context, blobs []ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	return r.ask(ctx, blobs, r.Pulls(), true)
}

// Lacks asks for blobs and manifests, and returns those that the repository does
// not have. Nothing is written.
func (r *Repository) Lacks(ctx context.Context, ds []ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	return r.ask(ctx, ds, r.Pushes(), false)
}

// ask returns those that are there, or those that are not.
func (r *Repository) ask(ctx context.Context, ds []ocispec.Descriptor, a remote.Access, there bool) (out []ocispec.Descriptor, err error) {
	found := make([]bool, len(ds))
	group, ctx := r.group(ctx)
	for i, d := range ds {
		group.Go(func() (err error) {
			found[i], err = r.has(ctx, d, a)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, d := range ds {
		if found[i] == there {
			out = append(out, d)
		}
	}
	return out, nil
}
