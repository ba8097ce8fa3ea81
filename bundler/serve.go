package bundler

import (
	"context"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
)

// Whole returns everything that a bundle holds, with what is attached to it, and
// its lock, held against each other. Layers are not read.
func Whole(ctx context.Context, s Source) (*bundle.Graph, *bundle.Lock, error) {
	return whole(ctx, s, Options{})
}

func whole(ctx context.Context, s Source, o Options) (*bundle.Graph, *bundle.Lock, error) {
	b, err := read(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	return b.graph, b.contents.Lock, attachments(ctx, s, b.graph, o)
}
