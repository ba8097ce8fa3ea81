// Package mover moves a graph into a target. Everything that is to be moved is known
// before the first byte moves (see [bundle.Graph]). Blobs of all images go into one queue
// for each host that they come from, largest first, each digest once, the small ones
// beside the large; a blob that fails does not stop the others; and the result of a run
// in which something failed names all of it and is never a complete bundle. No blob is
// held in memory.
//
//	d, err := mover.Begin(ctx, mover.Job{What: "push", Graph: g, Target: target}, o)
//	done, err := d.Deliver(ctx, d.Origins(mover.From(source)))
package mover

import (
	"cmp"
	"context"
	"slices"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// Job is what is moved where.
type Job struct {
	What   string // for progress: "pull", "push"
	Graph  *bundle.Graph
	Target medium.Target
}

// Delivery is a graph on its way into a target.
type Delivery struct {
	job     Job
	can     medium.Capabilities
	names   bundle.Owners
	missing []ocispec.Descriptor
	options run.Options
	stop    context.CancelCauseFunc

	mu     sync.Mutex
	failed []failure
}

// Delivered is a bundle that was written.
type Delivered struct {
	Root    ocispec.Descriptor `json:"-"`
	Images  int                `json:"images"`
	Bytes   int64              `json:"bytes"`                // of the whole bundle
	Moved   int64              `json:"moved"`                // of what had to be written now
	Missing int                `json:"newItems"`             // blobs and manifests that had to be written now
	Left    *bundle.Omitted    `json:"leftToBase,omitempty"` // of a delta
	// Plan is what would have to be written, in a dry run; nothing was.
	Plan []Planned `json:"plan,omitempty"`
}

// Planned is one item of a dry run.
type Planned struct {
	Name      string `json:"name"` // what it is part of
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

// planned describes what is missing, largest first.
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

// Begin tells a target what is to be written, and learns what of it is missing there.
// In a dry run the target changes nothing: of a file or folder it is all that the graph does not carry.
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

// Missing is what the target does not have.
func (d *Delivery) Missing() []ocispec.Descriptor { return d.missing }

// Origins are those of what is missing: memory where the graph carries it, else the places given,
// in the order in which they are tried.
func (d *Delivery) Origins(from ...Origin) Origins {
	origins := InMemory(d.job.Graph)
	for _, m := range d.missing {
		if len(origins[m.Digest]) == 0 {
			origins[m.Digest] = from
		}
	}
	return origins
}

// Also has something moved besides what is missing, before it.
func (d *Delivery) Also(more []ocispec.Descriptor) {
	d.missing = append(slices.Clip(more), d.missing...)
}

// Deliver moves what is missing and commits it; in a dry run it tells what it would
// move.
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
	err := d.job.Target.Commit(ctx)
	if d.can.Notices != nil && err == nil {
		for _, line := range d.can.Notices() {
			d.options.Reporter().Say(line)
		}
	}
	return done, err
}

// move puts everything that the target lacks: blobs first, then manifests,
// children before parents. What fails does not stop the rest, an origin that cannot be
// read included, except for a target that can take no more at all (a full disk).
func (d *Delivery) move(ctx context.Context, origins Origins) error {
	blobs, manifests := d.sortOut(origins)
	d.options.Reporter().Phase(d.job.What, len(d.missing), bundle.SizeOf(d.missing))
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
