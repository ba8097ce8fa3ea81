package bundler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Joined is the whole bundle that a delta and its base are together: what the delta
// left out is read from the base. Closing it closes both.
func Joined(ctx context.Context, delta, base *Bundle) (Source, error) {
	g, err := delta.open(ctx)
	if err != nil {
		return nil, err
	}
	if g.Base == nil {
		return nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "add base to", Subject: g.Root.Digest.String(), Err: errors.New("it is a whole bundle"),
			Hint: "leave --base out",
		}
	}
	other, err := base.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the base: %w", err)
	}
	held, left := byDigest(other.Held()), g.Left()
	lacks := slices.DeleteFunc(slices.Clone(left), func(d ocispec.Descriptor) bool { return held[d.Digest.String()] })
	if len(lacks) > 0 {
		return nil, &fault.Error{
			Reason: fault.Incomplete, Op: "add base to", Subject: g.Root.Digest.String(),
			Err:  fmt.Errorf("%s lacks %d of the %d layers that were left to %s", other.Root.Digest, len(lacks), len(left), g.Base.Root),
			Hint: fmt.Sprintf("give the bundle %s", g.Base.Root),
		}
	}
	return &joined{Bundle: delta, base: base, left: byDigest(left)}, nil
}

// joined does not say that it is a delta: all of it is there.
type joined struct {
	*Bundle
	base *Bundle
	left map[string]bool
}

var _ bundle.Fetcher = (*joined)(nil)

func (j *joined) of(d ocispec.Descriptor) *Bundle {
	if j.left[d.Digest.String()] {
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

// CheckLayout checks that of the delta; of the base, only layers count.
func (j *joined) CheckLayout(ctx context.Context) error { return j.checkLayout(ctx) }

// Damage names damaged parts of both.
func (j *joined) Damage(ctx context.Context) error {
	var errs []error
	for _, b := range []*Bundle{j.Bundle, j.base} {
		if d, ok := b.source.(Diagnoser); ok {
			errs = append(errs, d.Damage(ctx))
		}
	}
	return fault.Join(errs...)
}

// Close closes both.
func (j *joined) Close() error { return errors.Join(j.Bundle.Close(), j.base.Close()) }
