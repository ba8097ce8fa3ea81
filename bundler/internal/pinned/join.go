package pinned

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
)

// Join is the whole bundle that a delta and its base are together: what the delta
// left out is read from the base. Closing it closes both.
func Join(ctx context.Context, delta, base *Bundle) (medium.Source, error) {
	g, err := delta.Graph(ctx)
	if err != nil {
		return nil, err
	}
	if g.Base == nil {
		return nil, fault.Errorf(fault.InvalidInput, "add base to", g.Root.Digest.String(), "leave --base out",
			"it is a whole bundle")
	}
	other, err := base.Graph(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the base: %w", err)
	}
	held, left := byDigest(other.Held()), g.Left()
	lacks := slices.DeleteFunc(slices.Clone(left), func(d ocispec.Descriptor) bool { return held[d.Digest] })
	if len(lacks) > 0 {
		return nil, fault.Errorf(fault.Incomplete, "add base to", g.Root.Digest.String(),
			fmt.Sprintf("give the bundle %s", g.Base.Root), "%s lacks %d of the %d layers that were left to %s",
			other.Root.Digest, len(lacks), len(left), g.Base.Root)
	}
	return &joined{Bundle: delta, base: base, left: byDigest(left)}, nil
}

type joined struct {
	*Bundle
	base *Bundle
	left map[digest.Digest]bool
}

var _ medium.Source = (*joined)(nil)

func (j *joined) of(d ocispec.Descriptor) *Bundle {
	if j.left[d.Digest] {
		return j.base
	}
	return j.Bundle
}

// Fetch reads from where it is.
func (j *joined) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	return j.of(d).Fetch(ctx, d)
}

// FetchFrom reads from where it is.
func (j *joined) FetchFrom(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	return j.of(d).FetchFrom(ctx, d, offset)
}

// Can tells what the delta can do, but that nothing is left out, and that damaged parts
// may be of either. Of the base only layers count, so that its layout does not.
func (j *joined) Can() medium.Capabilities {
	can := j.Bundle.Can()
	can.Base, can.Repository = nil, image.Reference{}
	can.Damage = func(ctx context.Context) error {
		var errs []error
		for _, b := range []*Bundle{j.Bundle, j.base} {
			if damage := b.Can().Damage; damage != nil {
				errs = append(errs, damage(ctx))
			}
		}
		return fault.Join(errs...)
	}
	return can
}

// Close closes both.
func (j *joined) Close() error { return errors.Join(j.Bundle.Close(), j.base.Close()) }

func byDigest(ds []ocispec.Descriptor) map[digest.Digest]bool {
	out := make(map[digest.Digest]bool, len(ds))
	for _, d := range ds {
		out[d.Digest] = true
	}
	return out
}
