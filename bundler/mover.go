package bundler

import (
	"bytes"
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
)

// origin is a place that a blob can be read from.
type origin struct {
	host string // queue; "" for what is at hand
	from reader
}

// reader reads a descriptor from an offset.
type reader interface {
	FetchFrom(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error)
}

// item is one thing to put.
type item struct {
	descriptor ocispec.Descriptor
	name       string   // for messages
	origins    []origin // tried in turn; the first one's host is the queue
}

// move puts everything that the target lacks: blobs first, then manifests,
// children before parents. What fails does not stop the rest, an origin that cannot be
// read included, except for a target that can take no more at all (a full disk).
func move(ctx context.Context, what string, g *bundle.Graph, missing []ocispec.Descriptor, target Target, origins func(ocispec.Descriptor) []origin, o Options) error {
	blobs, manifests := sortOut(g, missing, origins)
	o.progress().Phase(what, len(blobs)+len(manifests), total(blobs)+total(manifests))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	m := mover{target: target, options: o, stop: stop}
	m.queues(ctx, blobs)
	if len(m.failed) == 0 {
		m.inOrder(ctx, manifests)
	}
	return m.result(ctx, len(blobs)+len(manifests))
}

func total(items []item) (n int64) {
	for _, i := range items {
		n += i.descriptor.Size
	}
	return n
}

// sortOut parts what is missing into blobs and manifests in the order of the graph.
func sortOut(g *bundle.Graph, missing []ocispec.Descriptor, origins func(ocispec.Descriptor) []origin) (blobs, manifests []item) {
	names := g.Owners()
	rank := map[string]int{}
	for i, n := range g.All() {
		rank[n.Descriptor.Digest.String()] = i + 1
	}
	for _, d := range missing {
		i := item{descriptor: d, name: names.Name(d), origins: origins(d)}
		if rank[d.Digest.String()] > 0 {
			manifests = append(manifests, i)
		} else {
			blobs = append(blobs, i)
		}
	}
	slices.SortStableFunc(manifests, func(a, b item) int {
		return rank[a.descriptor.Digest.String()] - rank[b.descriptor.Digest.String()]
	})
	return blobs, manifests
}

// mover carries the state of one move.
type mover struct {
	target  Target
	options Options
	stop    context.CancelCauseFunc

	mu     sync.Mutex
	failed []failure
}

type failure struct {
	item item
	err  error
}

// queues runs two queues for each host, largest first: large and small items.
func (m *mover) queues(ctx context.Context, items []item) {
	byHost := map[string][]item{}
	for _, i := range items {
		byHost[i.origins[0].host] = append(byHost[i.origins[0].host], i)
	}
	var hosts errgroup.Group
	for _, queue := range byHost {
		slices.SortStableFunc(queue, largestFirst)
		first := slices.IndexFunc(queue, func(i item) bool { return i.descriptor.Size <= smallItem })
		if first < 0 {
			first = len(queue)
		}
		hosts.Go(func() error { return m.queue(ctx, queue[:first], m.options.limit()) })
		hosts.Go(func() error { return m.queue(ctx, queue[first:], m.options.small()) })
	}
	_ = hosts.Wait() // failures are in m.failed
}

// smallItem is up to how many bytes an item costs a round trip rather than a part
// of the link: those do not wait behind the large ones.
const smallItem = 128 << 10

func largestFirst(a, b item) int {
	if a.descriptor.Size != b.descriptor.Size {
		if a.descriptor.Size > b.descriptor.Size {
			return -1
		}
		return 1
	}
	return strings.Compare(a.descriptor.Digest.String(), b.descriptor.Digest.String())
}

// queue puts items, so many at a time. Failures are in m.failed.
func (m *mover) queue(ctx context.Context, queue []item, limit int) error {
	var group errgroup.Group
	group.SetLimit(limit)
	for _, i := range queue {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			m.put(ctx, i)
			return nil
		})
	}
	return group.Wait()
}

func (m *mover) inOrder(ctx context.Context, items []item) {
	for _, i := range items {
		if ctx.Err() != nil {
			return
		}
		m.put(ctx, i)
	}
}

func (m *mover) put(ctx context.Context, i item) {
	p := &position{progress: m.options.progress()}
	ofTarget, err := m.tryOrigins(ctx, i, p)
	if err != nil {
		p.set(0)
	} else {
		p.set(i.descriptor.Size)
	}
	m.options.progress().Done(i.name, err)
	if err == nil {
		return
	}
	m.mu.Lock()
	m.failed = append(m.failed, failure{i, err})
	m.mu.Unlock()
	if ofTarget && fault.ReasonOf(err) == fault.Storage {
		m.stop(err) // every further write would fail as well
	}
}

// tryOrigins puts from the first origin that works, and tells whether it is the target
// that failed last. A fault of the target's storage is final; one of an origin's is
// not, since another origin may have the item.
func (m *mover) tryOrigins(ctx context.Context, i item, p *position) (ofTarget bool, err error) {
	if done, err := m.mount(ctx, i); done || err != nil {
		return true, err
	}
	var errs []error
	for _, from := range i.origins {
		r := &reading{ctx: ctx, item: i, from: from, position: p}
		err := m.target.Put(ctx, i.descriptor, r.open)
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

// reading reads an item from one origin, and remembers whether that failed: a target's
// Put returns what is wrong with either.
type reading struct {
	ctx      context.Context //nolint:containedctx // of the one Put that it serves
	item     item
	from     origin
	position *position
	failed   atomic.Bool // the target may read in a goroutine of its own
}

func (r *reading) open(offset int64) (io.ReadCloser, error) {
	r.position.set(offset)
	r.failed.Store(false)
	rc, err := r.from.from.FetchFrom(r.ctx, r.item.descriptor, offset)
	if err != nil {
		r.failed.Store(true)
		return nil, err
	}
	return &counted{rc, r}, nil
}

// mount has the target take an item over from one of its origins, where it can.
func (m *mover) mount(ctx context.Context, i item) (bool, error) {
	mounter, ok := m.target.(Mounter)
	if !ok {
		return false, nil
	}
	for _, from := range i.origins {
		if done, err := mounter.Mount(ctx, i.descriptor, from.from); done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// remedy says what to do about what is missing: first what the faults ask for, unless
// one of them may pass by itself.
func (m *mover) remedy() string {
	const again = "run the same command again: it goes on with what is missing"
	hint := ""
	for _, f := range m.failed {
		switch fault.ReasonOf(f.err) {
		case fault.Unreachable, fault.Throttled, fault.Interrupted, fault.Internal:
			return again
		}
		if hint == "" {
			hint = fault.HintOf(f.err)
		}
	}
	if hint == "" {
		return again
	}
	return hint + "; then " + again
}

// result says what is missing, when anything is.
func (m *mover) result(ctx context.Context, items int) error {
	if len(m.failed) == 0 {
		if ctx.Err() != nil {
			return interrupted(ctx)
		}
		return nil
	}
	if err := context.Cause(ctx); err != nil {
		if fault.ReasonOf(err) == fault.Storage {
			return err
		}
		return interrupted(ctx)
	}
	errs := make([]error, len(m.failed))
	for i, f := range m.failed {
		errs[i] = fmt.Errorf("%s (%s, %d bytes): %w", f.item.name, f.item.descriptor.Digest, f.item.descriptor.Size, f.err)
	}
	return &fault.Error{
		Reason: fault.Incomplete, Op: "incomplete", Subject: fmt.Sprintf("%d of %d items are missing", len(errs), items),
		Err: fault.Join(errs...), Hint: m.remedy(),
	}
}

// position is how far an item is; it reports what changes.
type position struct {
	progress Progress
	at       int64
}

func (p *position) set(to int64) {
	if to != p.at {
		p.progress.Moved(to - p.at)
	}
	p.at = to
}

// counted reports what is read through it.
type counted struct {
	io.ReadCloser
	of *reading
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.of.position.set(c.of.position.at + int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		c.of.failed.Store(true)
	}
	return n, err
}

// atHand serves bytes that are in memory: manifests and the bundler's own files.
type atHand []byte

// FetchFrom returns the bytes from an offset.
func (a atHand) FetchFrom(_ context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	if offset < 0 || offset > int64(len(a)) {
		return nil, fmt.Errorf("offset %d is outside of %s", offset, d.Digest)
	}
	return io.NopCloser(bytes.NewReader(a[offset:])), nil
}

// foreign gives the origins of a layer that its maker calls not distributable a word
// about it: many registries have its descriptor and not its bytes, and to run the same
// command again changes nothing.
func foreign(d ocispec.Descriptor, origins []origin) []origin {
	if !bundle.IsForeign(d) {
		return origins
	}
	out := slices.Clone(origins)
	for n := range out {
		out[n].from = foreignOrigin{out[n].from}
	}
	return out
}

type foreignOrigin struct{ reader }

// FetchFrom returns the bytes from an offset.
func (f foreignOrigin) FetchFrom(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	r, err := f.reader.FetchFrom(ctx, d, offset)
	if fault.ReasonOf(err) == fault.NotFound {
		return nil, foreignFault(d, err)
	}
	return r, err
}

// foreignFault says where such a layer is, and what to do without it.
func foreignFault(d ocispec.Descriptor, err error) error {
	where := "nobody says where it is"
	if len(d.URLs) > 0 {
		where = fmt.Sprintf("its maker gives it away at %.2000s", strings.Join(d.URLs, ", "))
	}
	return &fault.Error{
		Reason: fault.Refused, Op: "read foreign layer", Subject: d.Digest.String(), Err: fmt.Errorf("it is called not distributable, and %s: %w", where, err),
		Hint: "do without the platforms that need it (--platform linux/amd64), or take the image from a registry that has the layer (--source-map HOST/PATH=MIRROR/PATH)",
	}
}

// nowhere stands for a blob that no image of the bundle has: a graph that is not
// what its trees are, which is a defect.
type nowhere struct{}

// FetchFrom says so.
func (nowhere) FetchFrom(_ context.Context, d ocispec.Descriptor, _ int64) (io.ReadCloser, error) {
	return nil, fmt.Errorf("no image of the lock has %s", d.Digest)
}

// atHandOf returns the content that a graph carries itself, by digest.
func atHandOf(g *bundle.Graph) map[string]atHand {
	out := map[string]atHand{}
	for digest, data := range g.InMemory() {
		out[digest.String()] = data
	}
	return out
}
