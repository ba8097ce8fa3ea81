package bundler

import (
	"context"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
)

// Whole returns everything that a bundle holds, with what is attached to it, and
// its lock, held against each other. Layers are not read.
func Whole(ctx context.Context, s Source) (*bundle.Graph, *bundle.Lock, error) {
	_, g, err := open(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	contents, err := g.Contents(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	return g, contents.Lock, attachments(ctx, s, g, Options{})
}
