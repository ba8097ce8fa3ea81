package verify

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// blobs verifies every blob on all cores, as hashing dominates, the largest first, so that all cores end together.
func (c *checker) blobs(ctx context.Context, g *bundle.Graph) error {
	names, held, o, v := g.Owners(), g.Held(), c.options, c.found
	o.Progress.Phase("verify", len(held), bundle.SizeOf(held))
	v.Blobs, v.Bytes, v.Left = len(held), g.HeldSize(), g.OmittedList()
	blobs := slices.SortedStableFunc(slices.Values(held), func(a, b ocispec.Descriptor) int { return cmp.Compare(b.Size, a.Size) })
	return run.Each(ctx, max(o.Limit(), runtime.GOMAXPROCS(0)), len(blobs), func(n int) error {
		d := blobs[n]
		err := c.readBlob(ctx, d)
		if err != nil && ctx.Err() == nil {
			err = damaged(names.Name(d), d, err)
		}
		o.Progress.Done(names.Name(d), err)
		return err
	})
}

// damaged names the owner of a blob, and keeps the reason of the medium's fault.
func damaged(name string, d ocispec.Descriptor, err error) error {
	hint := cmp.Or(fault.HintOf(err), "copy the bundle again from where it was made, or pull it again")
	reason := fault.ReasonOf(err)
	switch reason {
	case fault.Internal: // a fault without a reason
		reason = fault.Corrupt
	case fault.NotFound: // the bundle exists, this part is missing
		reason = fault.Incomplete
		hint = "copy the bundle again from where it was made; in a registry, `vdo-bundle push BUNDLE REGISTRY/REPO:TAG` adds whatever is missing"
	}
	return fault.Errorf(reason, "verify", fmt.Sprintf("%s (%s)", name, d.Digest), hint, "%w", fault.CauseOf(err))
}

// verifyBuffer is the read buffer in bytes: large enough for few calls, and fits a core's cache.
const verifyBuffer = 128 << 10

func (c *checker) readBlob(ctx context.Context, d ocispec.Descriptor) error {
	r, err := c.Fetch(ctx, d, 0)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // only read
	buf := make([]byte, min(max(d.Size, 1), verifyBuffer))
	_, err = io.CopyBuffer(&tick{c.options.Progress, ctx}, bundle.Verify(r, bundle.Plain(d)), buf)
	return err
}

// tick reports the bytes written to it, and stops when ctx ends.
type tick struct {
	progress *run.Progress
	ctx      context.Context //nolint:containedctx // io.Copy has no context of its own
}

func (t *tick) Write(b []byte) (int, error) {
	t.progress.Moved(int64(len(b)))
	return len(b), t.ctx.Err()
}
