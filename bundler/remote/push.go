package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

const (
	opPush  = "push"
	opCheck = "check"
)

// push is what a repository knows between Begin and Close.
type push struct {
	graph *bundle.Graph

	mu    sync.Mutex
	lacks map[string]ocispec.Descriptor // by digest, not yet there
	sent  map[string]ocispec.Descriptor // blobs that the registry has accepted and not yet shown
	// tagged is when the root got its tag, or was written, by this push; zero: it had it.
	tagged time.Time
	// listed is what is listed about a subject in a list that clients keep.
	listed map[image.Digest][]bundle.Node
	// omitted is why the registry does not have an attachment, by digest.
	omitted map[string]string
}

// Begin asks the registry for every blob and every manifest of the graph, one by
// one: that a root is there says nothing about what is below it, since a push that
// broke off may have left anything. Where nothing of a sample is there, small blobs and
// manifests are taken to be missing, unasked, and are sent. It returns what is missing, in
// the graph's order. Nothing is written.
func (r *Repository) Begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	return r.begin(ctx, g, true)
}

// Plan tells what is missing as Begin does, and presumes nothing.
func (r *Repository) Plan(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	return r.begin(ctx, g, false)
}

func (r *Repository) begin(ctx context.Context, g *bundle.Graph, presume bool) ([]ocispec.Descriptor, error) {
	if want := r.ref.Digest(); !want.IsZero() && want.String() != g.Root.Digest.String() {
		return nil, &fault.Error{
			Reason: fault.Conflict, Op: opPush, Subject: r.ref.String(),
			Hint: "name a tag, or the digest of the bundle: " + g.Root.Digest.String(),
			Err:  fmt.Errorf("the bundle is %s", g.Root.Digest),
		}
	}
	// The first that is asked of the registry: what is wrong is told of the reference.
	_, found, err := r.Stat(ctx, Look{Op: "push to", Subject: r.ref.String(), ID: g.Root.Digest.String(), Access: r.Pushes()})
	if err == nil && presume && !found {
		presume, err = r.seemsEmpty(ctx, g)
	}
	if err != nil {
		return nil, err
	}
	missing, err := r.lacking(ctx, g.Order(), presume && !found)
	if err != nil {
		return nil, err
	}
	p := &push{graph: g, lacks: map[string]ocispec.Descriptor{}, sent: map[string]ocispec.Descriptor{}, omitted: map[string]string{}, listed: map[image.Digest][]bundle.Node{}}
	for _, d := range missing {
		p.lacks[d.Digest.String()] = d
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.push = p
	return missing, nil
}

// emptySample is how many small blobs are asked for before the others are taken to
// be missing as well, and least how many of them make that worth while.
const (
	emptySample = 32
	emptyLeast  = 4 * emptySample
)

// seemsEmpty tells whether none of a random sample of the small blobs is here, where there
// are many.
func (r *Repository) seemsEmpty(ctx context.Context, g *bundle.Graph) (bool, error) {
	small := slices.DeleteFunc(g.Order(), func(d ocispec.Descriptor) bool {
		return bundle.IsManifest(d.MediaType) || d.Size > SmallBlob
	})
	if len(small) < emptyLeast {
		return false, nil
	}
	rand.Shuffle(len(small), func(i, j int) { small[i], small[j] = small[j], small[i] }) //nolint:gosec // no secret
	absent, err := r.Lacks(ctx, small[:emptySample])
	return len(absent) == emptySample, err
}

// lacking asks for everything, or where it is presumed that little is here, for what
// would cost more to send than to ask for.
func (r *Repository) lacking(ctx context.Context, ds []ocispec.Descriptor, presumed bool) ([]ocispec.Descriptor, error) {
	ask := slices.Clone(ds)
	if presumed {
		ask = slices.DeleteFunc(ask, presumable)
	}
	absent, err := r.Lacks(ctx, ask)
	if err != nil || !presumed {
		return absent, err
	}
	lacks := map[godigest.Digest]bool{}
	for _, d := range absent {
		lacks[d.Digest] = true
	}
	return slices.DeleteFunc(slices.Clone(ds), func(d ocispec.Descriptor) bool { return !presumable(d) && !lacks[d.Digest] }), nil
}

// presumable tells what is taken to be missing in a repository that seems to be empty.
func presumable(d ocispec.Descriptor) bool {
	return bundle.IsManifest(d.MediaType) || d.Size <= SmallBlob
}

// Put writes a blob. open gives its bytes from an offset and is called again when
// the upload has to start anew; size and digest are verified before the last byte
// is sent. A manifest is read and verified, and written by Commit.
func (r *Repository) Put(ctx context.Context, d ocispec.Descriptor, open func(offset int64) (io.ReadCloser, error)) error {
	if err := bundle.CheckDescriptor(d); err != nil {
		return err
	}
	var err error
	if bundle.IsManifest(d.MediaType) {
		err = readOver(d, open)
	} else {
		err = r.putBlob(ctx, d, open)
	}
	if err != nil {
		return err
	}
	if !bundle.IsManifest(d.MediaType) {
		r.arrived(d)
	}
	return nil
}

// arrived takes note that the registry says that it has taken a blob.
func (r *Repository) arrived(d ocispec.Descriptor) {
	if p := r.begun(); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.lacks, d.Digest.String())
		p.sent[d.Digest.String()] = d
	}
}

func (r *Repository) begun() *push {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.push
}

// readOver verifies a manifest that the graph holds already.
func readOver(d ocispec.Descriptor, open func(int64) (io.ReadCloser, error)) error {
	src, err := open(0)
	if err != nil {
		return err
	}
	defer src.Close() //nolint:errcheck // only read
	_, err = io.Copy(io.Discard, bundle.Verify(src, d))
	return err
}

// Close forgets what Begin found. What was put stays in the registry, so that the
// next push does not send it again.
func (r *Repository) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.push = nil
	return nil
}

// decode reads JSON that came from outside.
func decode(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("it is not JSON of the right form: %w", err)
	}
	return nil
}
