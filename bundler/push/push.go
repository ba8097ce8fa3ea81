// Package push copies a bundle, with all that is attached to it, into a repository of a
// registry, a file or a folder; and where that is requested every image below the
// repository under its upstream name as well.
//
//	pushed, err := push.Bundle(ctx, push.Input{Bundle: b, Target: repository, Reference: at, Registry: open}, o)
//
// What the registry has is not sent. A delta is refused before anything is sent, where a
// layer that it left out is in no repository that may be asked.
package push

import (
	"context"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/mover"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// Input is what is pushed, and where.
type Input struct {
	Bundle *pinned.Bundle
	Target medium.Target
	// Of a target in a registry: its reference, and what opens other repositories there. nil
	// of files and folders.
	Reference image.Reference
	Registry  medium.Registry
	// MountFrom are repositories of the same registry that may have parts of the
	// bundle: those are taken over from there.
	MountFrom []image.Reference
}

// Pushed is a bundle that was pushed.
type Pushed struct {
	mover.Delivered
	Receipt *bundle.Receipt // nil of a dry run, and of files and folders
}

// Bundle copies a bundle, with what is attached to it. Every byte is verified as it streams, or was
// when the bundle was verified, and its files have not changed since.
func Bundle(ctx context.Context, in Input, o run.Options) (*Pushed, error) {
	g, lock, err := in.Bundle.Whole(ctx, o)
	if err != nil {
		return nil, err
	}
	done, err := in.deliver(ctx, g, lock, o)
	if err != nil {
		return nil, in.Bundle.Diagnosed(ctx, err)
	}
	pushed := &Pushed{Delivered: *done}
	if !o.DryRun && in.Registry != nil {
		pushed.Receipt = bundle.NewReceipt(in.Reference.Repository(), g)
	}
	return pushed, nil
}

// deliver sends what is missing, once it is known where all of it is.
func (in Input) deliver(ctx context.Context, g *bundle.Graph, lock *bundle.Lock, o run.Options) (*mover.Delivered, error) {
	d, err := mover.Begin(ctx, mover.Job{What: "push", Graph: g, Target: in.Target}, o)
	if err != nil {
		return nil, err
	}
	origins := d.Origins(mover.From(in.Bundle))
	if in.Registry == nil { // a file holds a delta as it is
		return d.Deliver(ctx, origins)
	}
	found, err := in.elsewhere(ctx, g, lock, d.Missing(), o.Reporter())
	if err != nil {
		return nil, err
	}
	for blob, at := range found.at { // last, since it is mounted from there or not at all
		origins[blob] = slices.Concat(origins[blob], at)
	}
	d.Also(found.lacks)
	return d.Deliver(ctx, origins)
}
