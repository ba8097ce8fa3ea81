package upstream

import (
	"context"
	"fmt"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// ReadTrees reads the indexes and manifests of all images of a lock, in its order.
func ReadTrees(ctx context.Context, lock *bundle.Lock, registry medium.Registry, o run.Options) ([]bundle.Tree, error) {
	o.Reporter().Phase("image manifests", len(lock.Images), 0)
	trees := make([]bundle.Tree, len(lock.Images))
	err := run.Each(ctx, o.Small(), len(trees), func(n int) error {
		i := lock.Images[n]
		var tree bundle.Tree
		source, err := treeSource(ctx, registry, i, lock.Platforms)
		if err == nil {
			tree, err = bundle.ReadTree(ctx, source, i.Descriptor())
		}
		o.Reporter().Done(i.Reference.String(), err)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.Reference, err)
		}
		if tree.IsEmpty() {
			return fault.Errorf(fault.Incomplete, "image", i.Reference.String(),
				"ask who publishes it, or name a mirror that has it whole with --source-map",
				"its index names no image manifest: nothing of it could run")
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

// treeSource is what an image's manifests are read from. Of an image whose platforms were
// chosen, the index is made again: nobody publishes it.
func treeSource(
	ctx context.Context, registry medium.Registry, i bundle.Image, platforms []image.Platform,
) (bundle.Fetcher, error) {
	if x, ok := i.Index(); ok && bundle.IsIndex(i.MediaType) {
		return derived(ctx, registry(i.Source.Pin(x)), i, platforms)
	}
	return registry(i.FetchedFrom()), nil
}
