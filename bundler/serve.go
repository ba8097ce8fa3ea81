package bundler

import (
	"context"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
)

// Whole returns everything that a bundle holds, with what is attached to it, and
// its lock, held against each other. Layers are not read.
func Whole(ctx context.Context, b *Bundle) (*bundle.Graph, *bundle.Lock, error) {
	return b.whole(ctx, Options{})
}

func (b *Bundle) whole(ctx context.Context, o Options) (*bundle.Graph, *bundle.Lock, error) {
	d, err := b.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	g := *d.graph
	var r attachmentReader
	g.Attachments, err = r.below(ctx, b, g.Subjects(), o)
	return &g, d.contents.Lock, err
}
