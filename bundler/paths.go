package bundler

import (
	"context"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// PathsInput is what is put beside a bundle's repository, and where.
type PathsInput struct {
	Bundle    *Bundle
	Reference image.Reference // the bundle's, in the registry; images go below it
	// Open gives the repository of a reference, to write to.
	Open func(image.Reference) Target
	// Registry gives it to read from, so that its blobs can be mounted.
	Registry Registry
}

// PushPaths puts every image of a bundle, with what is attached to it, below the
// bundle's repository under its upstream name, for nodes that pull by that name. The
// bundle itself has been pushed before, so that a registry that can mount is sent no
// blob twice. It returns the references, sorted.
func PushPaths(ctx context.Context, in PathsInput, o Options) ([]image.Reference, error) {
	g, lock, err := Whole(ctx, in.Bundle)
	if err != nil {
		return nil, err
	}
	out := make([]image.Reference, len(lock.Images))
	o.progress().Phase("images under their upstream names", len(out), 0)
	quiet := o
	quiet.Progress = Silent{}
	err = forEach(ctx, o.limit(), len(out), func(n int) error {
		i := lock.Images[n]
		var err error
		if out[n], err = beside(in.Reference, i); err == nil {
			err = pushBeside(ctx, in, g.Below(i.Descriptor()), out[n], quiet)
		}
		o.progress().Done(i.Reference.String(), err)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.Reference, err)
		}
		return nil
	})
	if err == nil || ctx.Err() != nil {
		return out, err
	}
	return nil, &fault.Error{
		Reason: fault.Incomplete, Op: "put images beside", Subject: in.Reference.String(), Err: err,
		Hint: "run the same command again: the bundle itself has arrived, and what is there is not sent twice",
	}
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
		tag = "digest-" + i.Digest.Hex()[:16]
	}
	return ref.WithTag(tag)
}

func pushBeside(ctx context.Context, in PathsInput, g *bundle.Graph, at image.Reference, o Options) error {
	target := in.Open(at)
	defer target.Close() //nolint:errcheck // a registry keeps nothing open
	known, whole := atHandOf(g), in.Registry(in.Reference)
	_, err := deliver(ctx, "push", g, target, nil, func(d ocispec.Descriptor) []origin {
		if data, ok := known[d.Digest.String()]; ok {
			return []origin{{from: data}}
		}
		return []origin{{from: in.Bundle.source}, {from: whole}} // the second one to be mounted from
	}, o)
	return err
}
