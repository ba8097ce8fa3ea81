package mover

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

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
		errs[i] = fmt.Errorf("%s (%s, %d bytes): %w", f.item.name, f.item.descriptor.Digest, f.item.descriptor.Size, f.err)
	}
	what := fmt.Sprintf("incomplete: missing %d of %d items, with which the same command goes on", len(errs), len(d.missing))
	hint := cmp.Or(fault.HintOf(d.failed[0].err), "run the same command again")
	return fault.Errorf(fault.Incomplete, what, "", hint, "%w", fault.Join(errs...))
}
