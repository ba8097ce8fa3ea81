// Package mover moves a graph into a target. It knows everything to move before the first byte moves
// (see [bundle.Graph]). Items of all images share one queue per source host, largest first, each
// digest once, with small ones in parallel to large ones. A failed item does not stop the others.
// The result of a failed run names all failures and is never a complete bundle. No blob is held in
// memory.
//
//	d, err := mover.Begin(ctx, "push", g, target, o)
//	done, err := d.Deliver(ctx, mover.All(mover.From(source)))
package mover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// Delivery is the transfer of a graph into a target.
type Delivery struct {
	what    string // for progress: "pull", "push", "copy"
	graph   *bundle.Graph
	target  medium.Target
	can     medium.Capabilities
	missing []ocispec.Descriptor
	options run.Options
	stop    context.CancelCauseFunc
	mounted atomic.Int64 // bytes

	mu     sync.Mutex
	failed []*item
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
	names, out := d.graph.Owners(), make([]Planned, 0, len(d.missing))
	for _, m := range slices.SortedStableFunc(slices.Values(d.missing), largestFirst) {
		out = append(out, Planned{names.Name(m), m.MediaType, m.Digest.String(), m.Size})
	}
	return out
}

func largestFirst(a, b ocispec.Descriptor) int {
	return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Digest, b.Digest))
}

// Begin announces a graph to a target, and learns what is missing there. In a dry run the target changes nothing; for
// a file or directory, missing is all that the graph does not carry.
func Begin(
	ctx context.Context, what string, g *bundle.Graph, target medium.Target, o run.Options,
) (d *Delivery, err error) {
	d = &Delivery{what: what, graph: g, target: target, can: target.Can(), options: o}
	if o.DryRun && d.can.Lacks == nil {
		d.missing = slices.DeleteFunc(g.Order(), func(d ocispec.Descriptor) bool { return d.Data != nil })
		return d, nil
	}
	d.missing, err = target.Begin(ctx, g)
	return d, err
}

// Missing returns what the target lacks.
func (d *Delivery) Missing() []ocispec.Descriptor { return d.missing }

// Also moves more items.
func (d *Delivery) Also(more []ocispec.Descriptor) { d.missing = slices.Concat(more, d.missing) }

// Deliver moves what is missing and commits it. In a dry run it returns the plan. Items with Data need no origin.
func (d *Delivery) Deliver(ctx context.Context, from Origins) (*Delivered, error) {
	if len(d.missing) > 0 {
		if err := d.target.Ready(ctx, bundle.SizeOf(d.missing)); err != nil {
			return nil, err
		}
	}
	done := &Delivered{
		Root: d.graph.Root, Images: len(d.graph.Images()), Bytes: d.graph.HeldSize(),
		Moved: bundle.SizeOf(d.missing), Missing: len(d.missing), Left: d.graph.OmittedList(),
	}
	if d.options.DryRun {
		done.Plan = d.planned()
		return done, nil
	}
	if err := d.move(ctx, from); err != nil {
		return nil, err
	}
	done.Moved -= d.mounted.Load()
	err := d.target.Commit(ctx)
	if d.can.Notices != nil && err == nil {
		done.Notices = d.can.Notices()
		for _, line := range done.Notices {
			d.options.Progress.Warn("%s", line)
		}
	}
	return done, err
}

type item struct {
	descriptor ocispec.Descriptor
	name       string       // for messages
	origins    []Origin     // in the order to try
	at         atomic.Int64 // a target may still read in its own goroutine when another attempt starts
	err        error        // why it failed
}

// move puts all that the target lacks. A failure, such as an unreadable origin, does not stop the rest, unless the
// target cannot store more (a full disk) or needs an order.
func (d *Delivery) move(ctx context.Context, from Origins) error {
	d.options.Progress.Phase(d.what, len(d.missing), bundle.SizeOf(d.missing))
	ctx, d.stop = context.WithCancelCause(ctx)
	defer d.stop(nil)
	names, items := d.graph.Owners(), make([]*item, len(d.missing))
	for n, m := range d.missing {
		memory := []Origin{{From: bundle.InMemory{m.Digest: m.Data}}}
		items[n] = &item{descriptor: m, name: names.Name(m), origins: memory}
		if m.Data == nil {
			items[n].origins = from(m)
		}
	}
	if !d.can.InOrder {
		d.queues(ctx, items)
		return d.result(ctx)
	}
	for _, i := range items {
		if ctx.Err() == nil && len(d.failed) == 0 {
			d.put(ctx, i)
		}
	}
	return d.result(ctx)
}

// smallItem is the size, in bytes, up to which an item costs a round trip rather than bandwidth. Such items do not
// wait behind large ones.
const smallItem = 128 << 10

// queues runs two queues per host, each largest first: large and small items.
func (d *Delivery) queues(ctx context.Context, items []*item) {
	type queue struct {
		host    string
		isSmall bool
	}
	queues := map[queue][]*item{}
	slices.SortStableFunc(items, func(a, b *item) int { return largestFirst(a.descriptor, b.descriptor) })
	for _, i := range items {
		q := queue{isSmall: i.descriptor.Size <= smallItem}
		if len(i.origins) > 0 {
			q.host = i.origins[0].Host
		}
		queues[q] = append(queues[q], i)
	}
	var all errgroup.Group
	for q, items := range queues {
		limit := d.options.Limit()
		if q.isSmall {
			limit = d.options.Small()
		}
		all.Go(func() error {
			return run.Each(ctx, limit, len(items), func(n int) error {
				d.put(ctx, items[n])
				return nil
			})
		})
	}
	_ = all.Wait() // failures are in d.failed
}

func (d *Delivery) put(ctx context.Context, i *item) {
	var ofTarget bool
	ofTarget, i.err = d.tryOrigins(ctx, i)
	if i.err != nil {
		d.moved(i, 0)
	} else {
		d.moved(i, i.descriptor.Size)
	}
	d.options.Progress.Done(i.name, i.err)
	if i.err == nil {
		return
	}
	d.mu.Lock()
	d.failed = append(d.failed, i)
	d.mu.Unlock()
	if ofTarget && fault.ReasonOf(i.err) == fault.Storage {
		d.stop(i.err) // every further write would fail too
	}
}

// moved reports the progress of an item.
func (d *Delivery) moved(i *item, to int64) {
	if was := i.at.Swap(to); was != to {
		d.options.Progress.Moved(to - was)
	}
}

// tryOrigins puts from the first origin that works, and reports whether the target was the last to fail. A storage
// fault of the target is final; an origin's fault is not, since another origin may have the item.
func (d *Delivery) tryOrigins(ctx context.Context, i *item) (ofTarget bool, err error) {
	if done, err := d.mount(ctx, i); done || err != nil {
		return true, err
	}
	if len(i.origins) == 0 { // a defect
		return false, fmt.Errorf("no image of the lock has %s", i.descriptor.Digest)
	}
	var errs []error
	for _, from := range i.origins {
		r := &reading{ctx: ctx, of: d, item: i, from: from}
		err := d.target.Put(ctx, i.descriptor, r.open)
		if err == nil {
			return false, nil
		}
		errs = append(errs, err)
		ofTarget = !r.failed.Load()
		if ctx.Err() != nil || ofTarget && fault.ReasonOf(err) == fault.Storage {
			return ofTarget, err
		}
	}
	return ofTarget, fault.Join(errs...)
}

// mount lets the target mount an item from one of its origins, if it can.
func (d *Delivery) mount(ctx context.Context, i *item) (bool, error) {
	if d.can.Mount == nil {
		return false, nil
	}
	for _, from := range i.origins {
		if from.Repository.IsZero() {
			continue
		}
		if done, err := d.can.Mount(ctx, i.descriptor, from.Repository); done || err != nil {
			if done {
				d.mounted.Add(i.descriptor.Size)
			}
			return done, err
		}
	}
	return false, nil
}

// result returns a fault that names what is missing, if anything.
func (d *Delivery) result(ctx context.Context) error {
	cause := context.Cause(ctx)
	switch {
	case len(d.failed) > 0 && fault.ReasonOf(cause) == fault.Storage:
		return cause
	case cause != nil:
		return run.Interrupted(ctx)
	case len(d.failed) == 0:
		return nil
	case d.can.InOrder:
		return d.failed[0].err // the written bytes are useless
	}
	slices.SortFunc(d.failed, func(a, b *item) int { return strings.Compare(a.name, b.name) })
	errs := make([]error, len(d.failed))
	for i, f := range d.failed {
		errs[i] = fmt.Errorf("%s (%s, %d bytes): %w", f.name, f.descriptor.Digest, f.descriptor.Size, f.err)
	}
	what := fmt.Sprintf("incomplete: missing %d of %d items, with which the same command goes on", len(errs), len(d.missing))
	hint := cmp.Or(fault.HintOf(d.failed[0].err), "run the same command again")
	return fault.Errorf(fault.Incomplete, what, "", hint, "%w", fault.Join(errs...))
}

// Origin is a source of a blob.
type Origin struct {
	Host string // the queue; "" for memory, and if hosts do not matter
	From bundle.Fetcher
	// Repository is the registry's repository to mount from; zero if it is in no registry.
	Repository image.Reference
}

// From returns a source as an origin.
func From(s medium.Source) Origin { return Origin{From: s, Repository: s.Can().Repository} }

// Origins returns the origins of an item, in the order to try.
type Origins func(ocispec.Descriptor) []Origin

// All returns the same origins for every item.
func All(from ...Origin) Origins { return func(ocispec.Descriptor) []Origin { return from } }

// reading reads an item from one origin and records its failure, as Put does not tell it from the target's.
type reading struct {
	ctx    context.Context //nolint:containedctx // of the one Put that it serves
	of     *Delivery
	item   *item
	from   Origin
	failed atomic.Bool // the target may read in its own goroutine
}

func (r *reading) open(offset int64) (io.ReadCloser, error) {
	r.of.moved(r.item, offset)
	rc, err := r.from.From.Fetch(r.ctx, r.item.descriptor, offset)
	r.failed.Store(err != nil)
	if err != nil {
		return nil, err
	}
	return &counted{rc, r}, nil
}

// counted reports the bytes read through it.
type counted struct {
	io.ReadCloser
	by *reading
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.by.of.moved(c.by.item, c.by.item.at.Load()+int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		c.by.failed.Store(true)
	}
	return n, err
}
