package push

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/mover"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// ImagesInput is the images to put beside a bundle's repository, and the target.
type ImagesInput struct {
	Bundle    *pinned.Bundle
	Reference image.Reference // of the bundle in the registry; images go below it
	// Open opens the repository of a reference for writing.
	Open func(image.Reference) medium.Target
	// Registry opens it for reading, so that its blobs can be mounted.
	Registry medium.Registry
}

// Images puts every image of a bundle, with its attachments, below the bundle's repository under its upstream name,
// for nodes that pull by that name. Push the bundle first: a registry that can mount then receives no blob twice. The
// notices name what the registry was allowed to leave out.
func Images(ctx context.Context, in ImagesInput, o run.Options) (notices []string, err error) {
	g, lock, err := in.Bundle.Whole(ctx, run.Options{})
	if err != nil {
		return nil, err
	}
	of := make([][]string, len(lock.Images))
	o.Progress.Phase("images under their upstream names", len(lock.Images), 0)
	err = run.Each(ctx, o.Limit(), len(lock.Images), func(n int) error {
		i := lock.Images[n]
		at, err := beside(in.Reference, i)
		if err == nil {
			of[n], err = pushBeside(ctx, in, g.Below(i.Descriptor()), at, o)
		}
		o.Progress.Done(i.Reference.String(), err)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.Reference, err)
		}
		return nil
	})
	if err == nil || ctx.Err() != nil {
		return slices.Concat(of...), err
	}
	return nil, fault.Errorf(fault.Incomplete, "put images beside", in.Reference.String(),
		"run the same command again: the bundle itself has arrived, and existing blobs are not sent again", "%w", err)
}

// Repositories returns the repositories that a push writes to: the bundle's and, with paths, those of images.
func Repositories(lock *bundle.Lock, mirror image.Reference, paths bool) ([]string, error) {
	out := []string{mirror.Repository()}
	for _, i := range lock.Images {
		at, err := beside(mirror, i)
		switch {
		case !paths:
		case err != nil:
			return nil, fmt.Errorf("image %s: %w", i.Reference, err)
		default:
			out = append(out, at.Repository())
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// beside returns the target of an image. One without a tag gets one, as registries delete untagged manifests.
func beside(mirror image.Reference, i bundle.Image) (image.Reference, error) {
	ref, err := i.Reference.Below(mirror)
	if err != nil {
		return ref, err
	}
	tag := ref.Tag()
	if tag == "" {
		tag = bundle.DigestTag(i.Digest.Hex())
	}
	return ref.WithTag(tag)
}

func pushBeside(
	ctx context.Context, in ImagesInput, g *bundle.Graph, at image.Reference, o run.Options,
) (notices []string, err error) {
	if lost := in.lost(ctx, at, g); len(lost) > 0 {
		o.Progress.Warn("warning: %s no longer has %s: push a bundle with all platforms that the nodes need", at, strings.Join(lost, ", "))
	}
	o.Progress = o.Progress.Warnings() // each image counts as one item
	target := in.Open(at)
	defer target.Close() //nolint:errcheck // a registry keeps nothing open
	d, err := mover.Begin(ctx, mover.Job{What: "push", Graph: g, Target: target}, o)
	if err != nil {
		return nil, err
	}
	mounted := mover.From(in.Registry(in.Reference))
	done, err := d.Deliver(ctx, d.Origins(mover.From(in.Bundle), mounted))
	if err != nil {
		return nil, err
	}
	return done.Notices, nil
}

// lost returns the platforms that the old image of a tag has and the new one lacks. It returns none if an image is
// unreadable or does not name its platforms.
func (in ImagesInput) lost(ctx context.Context, at image.Reference, g *bundle.Graph) (lost []string) {
	exists := in.Registry(at)
	defer exists.Close() //nolint:errcheck // only read
	d, err := exists.Root(ctx)
	if err != nil || d.Digest == g.Root.Digest {
		return nil
	}
	old, err := bundle.ReadTree(ctx, exists, d)
	if err != nil {
		return nil
	}
	had, hadAll, hadErr := (&bundle.Graph{Manifests: old.Nodes}).PlatformReader(exists).Of(ctx, d)
	has, hasAll, hasErr := g.PlatformReader(in.Bundle).Of(ctx, g.Root)
	if hadErr != nil || hasErr != nil || !hadAll || !hasAll || len(has) == 0 {
		return nil
	}
	for _, p := range had {
		if !slices.Contains(has, p) {
			lost = append(lost, p.String())
		}
	}
	return lost
}
