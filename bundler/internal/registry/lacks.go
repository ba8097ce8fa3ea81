package registry

import (
	"context"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Lacks asks for blobs and manifests, and returns those that the repository does
// not have. Nothing is written.
func (r *Repository) Lacks(ctx context.Context, ds []ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	absent := make([]bool, len(ds))
	group, ctx := r.group(ctx)
	for i, d := range ds {
		group.Go(func() error {
			found, err := r.has(ctx, d)
			absent[i] = !found
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var out []ocispec.Descriptor
	for i, d := range ds {
		if absent[i] {
			out = append(out, d)
		}
	}
	return out, nil
}
