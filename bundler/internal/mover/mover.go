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
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// Job is a graph and its target.
type Job struct {
	What   string // for progress: "pull", "push", "copy"
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

type item struct {
	descriptor ocispec.Descriptor
	name       string   // for messages
	origins    []Origin // in the order to try; the first one's host is the queue
}

// sortOut splits the missing items into blobs and, in the order of the graph, manifests.
func (d *Delivery) sortOut(origins Origins) (blobs, manifests []item) {
	rank := map[digest.Digest]int{}
	for i, n := range d.job.Graph.All() {
		rank[n.Descriptor.Digest] = i + 1
	}
	for _, missing := range d.missing {
		i := item{descriptor: missing, name: d.names.Name(missing), origins: origins[missing.Digest]}
		if rank[missing.Digest] > 0 {
			manifests = append(manifests, i)
		} else {
			blobs = append(blobs, i)
		}
	}
	slices.SortStableFunc(manifests, func(a, b item) int {
		return rank[a.descriptor.Digest] - rank[b.descriptor.Digest]
	})
	return blobs, manifests
}

type failure struct {
	item item
	err  error
}

// queues runs two queues per host, each largest first: large and small items.
func (d *Delivery) queues(ctx context.Context, items []item) {
	byHost := map[string][]item{}
	for _, i := range items {
		host := ""
		if len(i.origins) > 0 {
			host = i.origins[0].Host
		}
		byHost[host] = append(byHost[host], i)
	}
	var hosts errgroup.Group
	add := func(queue []item, limit int) {
		hosts.Go(func() error {
			return run.Each(ctx, limit, len(queue), func(n int) error {
				d.put(ctx, queue[n])
				return nil
			})
		})
	}
	for _, queue := range byHost {
		slices.SortStableFunc(queue, func(a, b item) int { return largestFirst(a.descriptor, b.descriptor) })
		first := slices.IndexFunc(queue, func(i item) bool { return i.descriptor.Size <= smallItem })
		if first < 0 {
			first = len(queue)
		}
		add(queue[:first], d.options.Limit())
		add(queue[first:], d.options.Small())
	}
	_ = hosts.Wait() // failures are in d.failed
}

// smallItem is the size, in bytes, up to which an item costs a round trip rather than bandwidth. Such items do not
// wait behind large ones.
const smallItem = 128 << 10

// inOrder puts items one by one; if the target needs an order, it stops at the first failure.
func (d *Delivery) inOrder(ctx context.Context, items []item) {
	for _, i := range items {
		if ctx.Err() != nil || d.can.InOrder && len(d.failed) > 0 {
			return
		}
		d.put(ctx, i)
	}
}

func (d *Delivery) put(ctx context.Context, i item) {
	p := &position{progress: d.options.Progress}
	ofTarget, err := d.tryOrigins(ctx, i, p)
	if err != nil {
		p.set(0)
	} else {
		p.set(i.descriptor.Size)
	}
	d.options.Progress.Done(i.name, err)
	if err == nil {
		return
	}
	d.mu.Lock()
	d.failed = append(d.failed, failure{i, err})
	d.mu.Unlock()
	if ofTarget && fault.ReasonOf(err) == fault.Storage {
		d.stop(err) // every further write would fail too
	}
}

// tryOrigins puts from the first origin that works, and reports whether the target was the last to fail. A storage
// fault of the target is final; an origin's fault is not, since another origin may have the item.
func (d *Delivery) tryOrigins(ctx context.Context, i item, p *position) (ofTarget bool, err error) {
	if done, err := d.mount(ctx, i); done || err != nil {
		return true, err
	}
	if len(i.origins) == 0 { // a defect
		return false, fmt.Errorf("no image of the lock has %s", i.descriptor.Digest)
	}
	var errs []error
	for _, from := range i.origins {
		r := &reading{ctx: ctx, item: i, from: from, position: p}
		err := d.job.Target.Put(ctx, i.descriptor, r.open)
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
func (d *Delivery) mount(ctx context.Context, i item) (bool, error) {
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
	if len(d.failed) == 0 {
		if ctx.Err() != nil {
			return run.Interrupted(ctx)
		}
		return nil
	}
	if err := context.Cause(ctx); err != nil {
		if fault.ReasonOf(err) == fault.Storage {
			return err
		}
		return run.Interrupted(ctx)
	}
	if d.can.InOrder {
		return d.failed[0].err // the written bytes are useless
	}
	slices.SortFunc(d.failed, func(a, b failure) int { return strings.Compare(a.item.name, b.item.name) })
	errs := make([]error, len(d.failed))
	for i, f := range d.failed {
		what := f.item.descriptor
		errs[i] = fmt.Errorf("%s (%s, %d bytes): %w", f.item.name, what.Digest, what.Size, f.err)
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

// Origins are the origins of each digest, in the order to try.
type Origins map[digest.Digest][]Origin

// InMemory returns the origins of what a graph carries.
func InMemory(g *bundle.Graph) Origins {
	o := Origins{}
	held := g.InMemory()
	for d := range held {
		o[d] = []Origin{{From: held}}
	}
	return o
}

// Add adds an origin of a digest, after its others.
func (o Origins) Add(d digest.Digest, from Origin) { o[d] = append(o[d], from) }

// reading reads an item from one origin and records its failure, as Put does not tell it from the target's.
type reading struct {
	ctx      context.Context //nolint:containedctx // of the one Put that it serves
	item     item
	from     Origin
	position *position
	failed   atomic.Bool // the target may read in its own goroutine
}

func (r *reading) open(offset int64) (io.ReadCloser, error) {
	r.position.set(offset)
	r.failed.Store(false)
	rc, err := r.from.From.Fetch(r.ctx, r.item.descriptor, offset)
	if err != nil {
		r.failed.Store(true)
		return nil, err
	}
	return &counted{rc, r}, nil
}

// position is the progress of an item; it reports every change.
type position struct {
	progress *run.Progress
	at       atomic.Int64 // a target may still read in its own goroutine when another attempt starts
}

func (p *position) set(to int64) {
	if was := p.at.Swap(to); was != to {
		p.progress.Moved(to - was)
	}
}

// counted reports the bytes read through it.
type counted struct {
	io.ReadCloser
	of *reading
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.of.position.set(c.of.position.at.Load() + int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		c.of.failed.Store(true)
	}
	return n, err
}
