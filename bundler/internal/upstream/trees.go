package upstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// ReadTrees reads the indexes and manifests of all images of a lock, in its order.
func ReadTrees(ctx context.Context, lock *bundle.Lock, registry medium.Registry, o run.Options) ([]bundle.Tree, error) {
	o.Reporter().Phase("image manifests", len(lock.Images), 0)
	trees := make([]bundle.Tree, len(lock.Images))
	err := run.Each(ctx, o.Small(), len(trees), func(n int) error {
		i := lock.Images[n]
		tree, err := bundle.ReadTree(ctx, registry(i.FetchedFrom()), i.Descriptor())
		o.Reporter().Done(i.Reference.String(), err)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.Reference, err)
		}
		if tree.IsEmpty() {
			return &fault.Error{
				Reason: fault.Incomplete, Op: "image", Subject: i.Reference.String(), Err: errors.New("its index names no image manifest: nothing of it could run"),
				Hint: "ask who publishes it, or name a mirror that has it whole with --source-map",
			}
		}
		for _, d := range tree.Ignored {
			o.Reporter().Say(fmt.Sprintf("left out: %s of %s, of the unknown media type %.100q", d.Digest, i.Reference, d.MediaType))
		}
		tree.Reference = i.Reference
		trees[n] = tree
		return nil
	})
	return trees, err
}
