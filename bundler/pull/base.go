package pull

import (
	"context"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// Base is what the target site already has: a delta omits it.
type Base struct {
	root image.Digest
	has  func(image.Digest) bool
}

// BaseOf returns a bundle as base, with all that its root reaches. For a delta this includes what it omits.
func BaseOf(ctx context.Context, b *pinned.Bundle) (*Base, error) {
	g, err := b.Graph(ctx)
	if err != nil {
		return nil, err
	}
	blobs := map[string]bool{}
	for _, d := range g.Blobs {
		blobs[d.Digest.String()] = true
	}
	return &Base{b.Digest(), func(d image.Digest) bool { return blobs[d.String()] }}, nil
}

// BaseOfReceipt returns the base that an inventory of a push describes.
func BaseOfReceipt(r *bundle.Receipt) *Base { return &Base{r.Root, r.Has} }

// leaveOut turns a graph into a delta without the base's layers.
func (b *Base) leaveOut(g *bundle.Graph, p *run.Progress) error {
	if b == nil {
		return nil
	}
	base := g.Without(b.root, b.has)
	if base == nil {
		p.Warn("the base %s has none of the layers: this is a whole bundle", b.root)
	}
	return g.OmitFor(base)
}
