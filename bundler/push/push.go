// Package push copies a bundle with all its attachments into a registry's repository, a file or a
// directory. If requested, it also puts every image below the repository under its upstream name.
//
//	pushed, err := push.Bundle(ctx, push.Input{Bundle: b, Target: repository, Reference: at, Registry: open}, o)
//
// It does not send what the registry has. Before sending, it refuses a delta if no reachable
// repository has one of the omitted layers.
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

// Input is a bundle and its target.
type Input struct {
	Bundle *pinned.Bundle
	Target medium.Target
	// Reference is a registry target's own; Registry opens other repositories there. Zero for files and directories.
	Reference image.Reference
	Registry  medium.Registry
	// MountFrom are repositories of the same registry to mount parts of the bundle from.
	MountFrom []image.Reference
}

// Pushed is the result of a push.
type Pushed struct {
	mover.Delivered
	Receipt *bundle.Receipt // nil for a dry run, and for files and directories
}

// Bundle copies a bundle with its attachments. Every byte is verified as it streams, or was verified with the bundle
// and its files have not changed since.
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

// deliver sends what is missing, once it has found all of it.
func (in Input) deliver(ctx context.Context, g *bundle.Graph, lock *bundle.Lock, o run.Options) (*mover.Delivered, error) {
	d, err := mover.Begin(ctx, mover.Job{What: "push", Graph: g, Target: in.Target}, o)
	if err != nil {
		return nil, err
	}
	origins := d.Origins(mover.From(in.Bundle))
	if in.Registry == nil { // a file holds a delta unchanged
		return d.Deliver(ctx, origins)
	}
	found, err := in.elsewhere(ctx, g, lock, d.Missing(), o.Progress)
	if err != nil {
		return nil, err
	}
	for blob, at := range found.at { // last: it is mounted from there or not at all
		origins[blob] = slices.Concat(origins[blob], at)
	}
	d.Also(found.lacks)
	return d.Deliver(ctx, origins)
}
