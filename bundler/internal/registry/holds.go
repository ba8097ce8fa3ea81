package registry

import (
	"context"
	"net/http"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Holds asks for blobs, with no more than the right to pull, and returns those that
// the repository has.
func (r *Repository) Holds(ctx context.Context, blobs []ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	there := make([]bool, len(blobs))
	group, ctx := r.group(ctx)
	for i, d := range blobs {
		group.Go(func() error {
			a, err := r.small(ctx, "look for", r.at(d.Digest.String()), call{
				method: http.MethodHead, url: r.address("blobs", d.Digest.String()), access: r.pulls(), ok: []int{200, 404},
			}, 0)
			there[i] = err == nil && a.status == http.StatusOK && (a.length < 0 || a.length == d.Size)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var out []ocispec.Descriptor
	for i, d := range blobs {
		if there[i] {
			out = append(out, d)
		}
	}
	return out, nil
}
