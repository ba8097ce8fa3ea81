// Package mover moves a graph into a target. It knows everything to move before the first byte moves
// (see [bundle.Graph]). Blobs of all images share one queue per source host, largest first, each
// digest once, with small ones in parallel to large ones. A failed blob does not stop the others.
// The result of a failed run names all failures and is never a complete bundle. No blob is held in
// memory.
//
//	d, err := mover.Begin(ctx, mover.Job{What: "push", Graph: g, Target: target}, o)
//	done, err := d.Deliver(ctx, d.Origins(mover.From(source)))
package mover

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// Job is a graph and its target.
type Job struct {
	What   string // for progress: "pull", "push"
	Graph  *bundle.Graph
	Target medium.Target
}

// Delivery is the transfer of a graph into a target.
type Delivery struct {
	job     Job
	can     medium.Capabilities
	names   bundle.Owners
	missing []ocispec.Descriptor
	options run.Options
	stop    context.CancelCauseFunc
	mounted atomic.Int64 // bytes

	mu     sync.Mutex
	failed []failure
}

// Delivered is the result of a delivery.
type Delivered struct {
	Root    ocispec.Descriptor `json:"-"`
	Images  int                `json:"images"`
	Bytes   int64              `json:"bytes"`                // of the whole bundle
	Moved   int64              `json:"moved"`                // bytes that this run had to write, without mounted ones
	Missing int                `json:"newItems"`             // blobs and manifests that this run had to write
	Left    *bundle.Omitted    `json:"leftToBase,omitempty"` // of a delta
	// Notices name what the target was allowed to leave out, and why.
	Notices []string `json:"notices,omitempty"`
	// Plan is what a dry run would write.
	Plan []Planned `json:"plan,omitempty"`
}

// Planned is one item of a dry run.
type Planned struct {
	Name      string `json:"name"` // owner in the bundle
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

// planned describes the missing items, largest first.
func (d *Delivery) planned() []Planned {
	out := make([]Planned, 0, len(d.missing))
	for _, m := range slices.SortedStableFunc(slices.Values(d.missing), largestFirst) {
		out = append(out, Planned{d.names.Name(m), m.MediaType, m.Digest.String(), m.Size})
	}
	return out
}

func largestFirst(a, b ocispec.Descriptor) int {
	return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Digest, b.Digest))
}

// Begin announces a graph to a target, and learns what is missing there. In a dry run the target changes nothing; for
// a file or directory, missing is all that the graph does not carry.
func Begin(ctx context.Context, job Job, o run.Options) (*Delivery, error) {
	d := &Delivery{job: job, can: job.Target.Can(), names: job.Graph.Owners(), options: o}
	if o.DryRun && d.can.Lacks == nil {
		d.missing = slices.DeleteFunc(job.Graph.Order(), func(d ocispec.Descriptor) bool { return d.Data != nil })
		return d, nil
	}
	var err error
	d.missing, err = job.Target.Begin(ctx, job.Graph)
	return d, err
}

// Missing returns what the target lacks.
func (d *Delivery) Missing() []ocispec.Descriptor { return d.missing }

// Origins returns the origins of the missing items: memory if the graph carries them, else from, in that order.
func (d *Delivery) Origins(from ...Origin) Origins {
	origins := InMemory(d.job.Graph)
	for _, m := range d.missing {
		if len(origins[m.Digest]) == 0 {
			origins[m.Digest] = from
		}
	}
	return origins
}

// Also moves more items, before the missing ones.
func (d *Delivery) Also(more []ocispec.Descriptor) {
	d.missing = append(slices.Clip(more), d.missing...)
}

// Deliver moves what is missing and commits it. In a dry run it returns the plan.
func (d *Delivery) Deliver(ctx context.Context, origins Origins) (*Delivered, error) {
	if len(d.missing) > 0 {
		if err := d.job.Target.Ready(ctx, bundle.SizeOf(d.missing)); err != nil {
			return nil, err
		}
	}
	done := &Delivered{
		Root: d.job.Graph.Root, Images: len(d.job.Graph.Images()), Bytes: d.job.Graph.HeldSize(),
		Moved: bundle.SizeOf(d.missing), Missing: len(d.missing), Left: d.job.Graph.OmittedList(),
	}
	if d.options.DryRun {
		done.Plan = d.planned()
		return done, nil
	}
	if err := d.move(ctx, origins); err != nil {
		return nil, err
	}
	done.Moved -= d.mounted.Load()
	err := d.job.Target.Commit(ctx)
	if d.can.Notices != nil && err == nil {
		done.Notices = d.can.Notices()
		for _, line := range done.Notices {
			d.options.Progress.Warn("%s", line)
		}
	}
	return done, err
}

// move puts all that the target lacks: blobs first, then manifests, children before parents. A failure, such as an
// unreadable origin, does not stop the rest, unless the target cannot store more (a full disk).
func (d *Delivery) move(ctx context.Context, origins Origins) error {
	blobs, manifests := d.sortOut(origins)
	d.options.Progress.Phase(d.job.What, len(d.missing), bundle.SizeOf(d.missing))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	d.stop = stop
	if d.can.InOrder {
		d.inOrder(ctx, blobs)
	} else {
		d.queues(ctx, blobs)
	}
	if len(d.failed) == 0 {
		d.inOrder(ctx, manifests)
	}
	return d.result(ctx)
}
