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

// ImagesInput is what is put beside a bundle's repository, and where.
type ImagesInput struct {
	Bundle    *pinned.Bundle
	Reference image.Reference // the bundle's, in the registry; images go below it
	// Open gives the repository of a reference, to write to.
	Open func(image.Reference) medium.Target
	// Registry gives it to read from, so that its blobs can be mounted.
	Registry medium.Registry
}

// Images puts every image of a bundle, with what is attached to it, below the
// bundle's repository under its upstream name, for nodes that pull by that name. The
// bundle itself has been pushed before, so that a registry that can mount is sent no
// blob twice.
func Images(ctx context.Context, in ImagesInput, o run.Options) error {
	g, lock, err := in.Bundle.Whole(ctx, run.Options{})
	if err != nil {
		return err
	}
	o.Reporter().Phase("images under their upstream names", len(lock.Images), 0)
	err = run.Each(ctx, o.Limit(), len(lock.Images), func(n int) error {
		i := lock.Images[n]
		at, err := beside(in.Reference, i)
		if err == nil {
			err = pushBeside(ctx, in, g.Below(i.Descriptor()), at, o)
		}
		o.Reporter().Done(i.Reference.String(), err)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.Reference, err)
		}
		return nil
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	return fault.Errorf(fault.Incomplete, "put images beside", in.Reference.String(),
		"run the same command again: the bundle itself has arrived, and what is there is not sent twice", "%w", err)
}

// Repositories names where a push writes: the repository of the bundle and, where images go
// below it under their upstream names, those.
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

// beside is where an image of a lock goes. One that upstream names by digest alone
// gets a tag, since registries throw away what has none.
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

func pushBeside(ctx context.Context, in ImagesInput, g *bundle.Graph, at image.Reference, o run.Options) error {
	if lost := in.lost(ctx, at, g); len(lost) > 0 {
		o.Reporter().Say(fmt.Sprintf("warning: %s no longer has %s: push a bundle with all platforms that the nodes need", at, strings.Join(lost, ", ")))
	}
	o.Progress = said{by: o.Reporter()}
	target := in.Open(at)
	defer target.Close() //nolint:errcheck // a registry keeps nothing open
	d, err := mover.Begin(ctx, mover.Job{What: "push", Graph: g, Target: target}, o)
	if err != nil {
		return err
	}
	mounted := mover.From(in.Registry(in.Reference))
	_, err = d.Deliver(ctx, d.Origins(mover.From(in.Bundle), mounted))
	return err
}

// said is progress of which only lines are passed on: images count as a whole.
type said struct {
	run.Silent
	by run.Progress
}

func (s said) Say(line string) { s.by.Say(line) }

// lost returns the platforms of the image that a tag names and of the one that takes its
// place no more. An image that cannot be read, or does not name its platforms, has none.
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
