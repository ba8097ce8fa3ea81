// Package push copies a bundle into a registry: into one repository, with all that is
// attached to it, and where that is asked for every image below it under its upstream
// name as well.
//
//	pushed, err := push.Bundle(ctx, push.Input{Bundle: b, Target: repository, Reference: at, Registry: open}, o)
//
// What the registry has is not sent. A delta is refused before anything is sent, where a
// layer that it left out is in no repository that may be asked.
package push

import (
	"context"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/mover"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// Input is what is pushed, and where.
type Input struct {
	Bundle    *pinned.Bundle
	Target    medium.Target
	Reference image.Reference // the target's
	Registry  medium.Registry // to look at what arrived, and into other repositories
	// MountFrom are repositories of the same registry that may have parts of the
	// bundle: those are taken over from there.
	MountFrom []image.Reference
}

// Pushed is a bundle that was pushed.
type Pushed struct {
	mover.Delivered
	Receipt *bundle.Receipt // nil of a dry run
}

// Bundle copies a bundle, with what is attached to it, into a registry, and then
// looks at it there as the operator will. Every byte is verified as it streams, or was
// when the bundle was verified, and its files have not changed since.
func Bundle(ctx context.Context, in Input, o run.Options) (*Pushed, error) {
	g, lock, err := in.Bundle.Whole(ctx, o)
	if err != nil {
		return nil, err
	}
	delivery, done, err := in.deliver(ctx, g, lock, o)
	if err != nil {
		return nil, in.Bundle.Diagnosed(ctx, err)
	}
	pushed := &Pushed{Delivered: *done}
	if o.DryRun {
		return pushed, nil
	}
	pushed.Receipt = bundle.NewReceipt(in.Reference.Repository(), g)
	return pushed, mover.Mirror{Reference: in.Reference, Registry: in.Registry}.Confirm(ctx, delivery, lock)
}

// deliver sends what is missing, once it is known where all of it is.
func (in Input) deliver(ctx context.Context, g *bundle.Graph, lock *bundle.Lock, o run.Options) (*mover.Delivery, *mover.Delivered, error) {
	d, err := mover.Begin(ctx, mover.Job{What: "push", Graph: g, Target: in.Target}, o)
	if err != nil {
		return nil, nil, err
	}
	found, err := in.elsewhere(ctx, g, lock, d.Missing(), o.Reporter())
	if err != nil {
		return nil, nil, err
	}
	d.Also(found.lacks)
	done, err := d.Deliver(ctx, in.origins(g, d.Missing(), found.at))
	return d, done, err
}

// origins are where what is missing is read from: from the bundle, or else from where it
// is in the registry; that comes last, since it is mounted from there or not at all.
func (in Input) origins(g *bundle.Graph, missing []ocispec.Descriptor, others mover.Origins) mover.Origins {
	origins, from := mover.InMemory(g), mover.From(in.Bundle)
	left := map[digest.Digest]bool{}
	for _, d := range g.Left() {
		left[d.Digest] = true
	}
	for _, d := range missing {
		if len(origins[d.Digest]) == 0 && !left[d.Digest] {
			origins.Add(d.Digest, from)
		}
		for _, other := range others[d.Digest] {
			origins.Add(d.Digest, other)
		}
	}
	return origins
}
