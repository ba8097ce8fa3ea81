package bundler

import (
	"context"
	"errors"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Base is what is at the far side already: a delta leaves it out.
type Base struct {
	root image.Digest
	has  func(image.Digest) bool
}

// BaseOf is the base that a bundle is, with all that its root reaches: of a delta
// also what that left out.
func BaseOf(ctx context.Context, s Source) (*Base, error) {
	root, g, err := open(ctx, s)
	if err != nil {
		return nil, err
	}
	digest, err := image.ParseDigest(root.Digest.String())
	if err != nil {
		return nil, err
	}
	blobs := map[string]bool{}
	for _, b := range g.Blobs {
		blobs[b.Digest.String()] = true
	}
	return &Base{digest, func(d image.Digest) bool { return blobs[d.String()] }}, nil
}

// BaseOfReceipt is the base that a push has left behind.
func BaseOfReceipt(r *bundle.Receipt) *Base { return &Base{r.Root, r.Has} }

// Left is what a delta leaves to its base.
type Left struct {
	Base   image.Digest `json:"base"` // root of the bundle that has it
	Layers int          `json:"layers"`
	Bytes  int64        `json:"bytes"`
}

func leftOf(g *bundle.Graph) *Left {
	if g.Base == nil {
		return nil
	}
	left := g.Left()
	return &Left{Base: g.Base.Root, Layers: len(left), Bytes: sizeOf(left)}
}

// heldSize is the size of what is not left to a base.
func heldSize(g *bundle.Graph) int64 { return graphSize(g) - sizeOf(g.Left()) }

// leave makes a graph that of a delta.
func leave(g *bundle.Graph, b *Base, p Progress) error {
	if b == nil {
		return nil
	}
	base := g.Without(b.root, b.has)
	if base == nil {
		p.Say(fmt.Sprintf("the base %s has none of the layers: this is a whole bundle", b.root))
	}
	return g.LeaveTo(base)
}

const maxNamed = 20 // of missing layers; the rest is counted

// checkBase demands, before anything is sent, that a target has what a delta left
// out.
func checkBase(ctx context.Context, g *bundle.Graph, target Target, at image.Reference, p Progress) error {
	left := g.Left()
	if len(left) == 0 {
		return nil
	}
	keeper, ok := target.(Keeper)
	if !ok {
		return &fault.Error{
			Reason: fault.Refused, Op: "push", Subject: at.String(), Hint: "push a delta into a registry that holds its base",
			Err: errors.New("it is a delta, and this target cannot say what it holds"),
		}
	}
	p.Phase("base", len(left), 0)
	lacks, err := keeper.Lacks(ctx, left)
	if err != nil {
		return err
	}
	for _, d := range left {
		p.Done(d.Digest.String(), nil)
	}
	return lacking(g, lacks, at)
}

// lacking names the layers that are not there.
func lacking(g *bundle.Graph, lacks []ocispec.Descriptor, at image.Reference) error {
	if len(lacks) == 0 {
		return nil
	}
	names := owners(g)
	var errs []error
	for i, d := range lacks {
		if i == maxNamed {
			errs = append(errs, fmt.Errorf("and %d more", len(lacks)-i))
			break
		}
		errs = append(errs, fmt.Errorf("%s (%s, %d bytes)", names.of(d), d.Digest, d.Size))
	}
	return &fault.Error{
		Reason: fault.Incomplete, Op: "check base in", Subject: at.Repository(), Err: fmt.Errorf("of the base %s, %d layers with %d bytes are missing, and nothing was sent:\n%w",
			g.Base.Root, len(lacks), sizeOf(lacks), errors.Join(errs...)),
		Hint: fmt.Sprintf("push the bundle %s there first, or pull without --base and --have", g.Base.Root),
	}
}
