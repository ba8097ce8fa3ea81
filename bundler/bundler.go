// Package bundler makes, signs, checks and moves driver bundles: the flows of
// vdo-bundle. Each is one function that reads from interfaces declared here, does
// one thing, and returns a value that the command line prints:
//
//	lock     matrix, request             → which releases and images, by digest
//	pull     lock, upstream registries   → a bundle on disk or in a registry
//	sign     a bundle, a key             → a signature beside it
//	verify   a bundle, a policy          → all that is wrong with it
//	inspect  a bundle                    → what is inside
//	sbom     a bundle                    → its bill of materials
//	push     a bundle, a registry        → the bundle there, reference by digest
//
// What is read is a [Bundle]: a source that was resolved to a digest once, by [Open] or,
// where a policy was satisfied, by [Verify]. No flow asks again what a tag names.
//
// The media satisfy the interfaces: bundler/internal/archive for files and folders,
// bundler/internal/registry for registries. The flows know neither.
//
// # Moving bytes
//
// Everything that is to be moved is known before the first byte moves (see
// [bundle.Graph]). Blobs of all images go into one queue for each host that they
// come from, largest first, each digest once, the small ones beside the large; a blob that fails does not stop the
// others; and the result of a run in which something failed names all of it and is
// never a complete bundle. No blob is held in memory.
package bundler

import (
	"context"
	"io"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Source is a bundle that can be read.
type Source interface {
	// Root returns the descriptor of the bundle's root.
	Root(ctx context.Context) (ocispec.Descriptor, error)
	// Fetch returns the bytes of a descriptor, not verified.
	Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error)
	// FetchFrom returns the bytes of a descriptor from an offset, not verified.
	FetchFrom(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error)
	// Attachments returns the manifests of signatures and other things that refer to subject.
	Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error)
	Close() error
}

// Target is where a bundle is written to.
type Target interface {
	// Begin learns everything that will be written and returns what is still to put.
	Begin(ctx context.Context, g *bundle.Graph) (missing []ocispec.Descriptor, err error)
	// Put writes one blob or manifest, verified as it streams. It may be called
	// concurrently, and calls open with the offset at which it goes on.
	Put(ctx context.Context, d ocispec.Descriptor, open func(offset int64) (io.ReadCloser, error)) error
	// Commit makes the bundle visible, once everything is there.
	Commit(ctx context.Context) error
	// Close without Commit leaves what a later run can go on with.
	Close() error
}

// Omitter is a Target that may have been allowed to leave something out.
type Omitter interface {
	// Omitted tells, after Commit, what was left out and why.
	Omitted() []string
}

// Preflighter is a Target that can tell, before anything is fetched, whether it can
// be written to.
type Preflighter interface {
	Preflight(ctx context.Context) error
}

// Preflight asks a target whether it can be written to, where it can tell.
func Preflight(ctx context.Context, target Target) error {
	if p, ok := target.(Preflighter); ok {
		return p.Preflight(ctx)
	}
	return nil
}

// Planner is a Target that can tell what Begin would return without writing
// anything.
type Planner interface {
	Plan(ctx context.Context, g *bundle.Graph) (missing []ocispec.Descriptor, err error)
}

// Tagger is a Target that can say what is attached to a bundle that is at its place
// already. Who signs what he writes there adds to it.
type Tagger interface {
	// Tagged returns what is attached to a digest under a tag, its blobs with their
	// bytes; nil where there is nothing.
	Tagged(ctx context.Context, subject image.Digest, tag string) (*bundle.Attachment, error)
}

// Streamer is a Target that takes everything at once, in an order of its own, and
// nothing by Put.
type Streamer interface {
	Stream(ctx context.Context, f bundle.Fetcher) error
}

// Mounter is a Target that can take a blob over from another place of its own
// without the bytes passing through here.
type Mounter interface {
	// Mount tells whether it did so; from is what FetchFrom would be asked of. Where
	// it did not, the blob has to be put.
	Mount(ctx context.Context, d ocispec.Descriptor, from any) (bool, error)
}

// Rememberer is a Target that notes what has arrived, so that a later push of the
// same bundle has little to ask.
type Rememberer interface {
	// Confirmed tells, after Begin, whether an earlier push has noted that all of
	// the bundle is there, and nothing is known to be missing since.
	Confirmed() bool
	// Sampled tells then how many parts were asked for, and of how many, besides the
	// root and all that is attached to it.
	Sampled() (asked, of int)
	// Remember notes it, after Commit and once the bundle was read back.
	Remember(ctx context.Context) error
}

// Attacher adds a signature to a bundle that is there already.
type Attacher interface {
	Attach(ctx context.Context, a bundle.Attachment) error
}

// LayoutChecker is implemented by media with bytes outside blobs and manifests.
type LayoutChecker interface {
	CheckLayout(ctx context.Context) error
}

// Delta is implemented by media that may leave layers to another bundle.
type Delta interface {
	// Base returns what is left out; nil where everything is there.
	Base() *bundle.Base
}

// Keeper is implemented by repositories that can say what they lack.
type Keeper interface {
	// Lacks returns those that are not there.
	Lacks(ctx context.Context, ds []ocispec.Descriptor) ([]ocispec.Descriptor, error)
}

// Holder is an Upstream that can say which of some blobs it has.
type Holder interface {
	Holds(ctx context.Context, blobs []ocispec.Descriptor) ([]ocispec.Descriptor, error)
}

// Diagnoser is implemented by media that are made of parts.
type Diagnoser interface {
	// Damage reads everything and names the parts that are not what they were.
	Damage(ctx context.Context) error
}

// Upstream is one repository that images are read from.
type Upstream interface {
	// Resolve returns what the repository's reference names now.
	Resolve(ctx context.Context) (ocispec.Descriptor, error)
	Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error)
	FetchFrom(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error)
}

// Registry opens repositories by reference.
type Registry func(image.Reference) Upstream

// Manifests fetches upstream manifest files.
type Manifests interface {
	// Get returns the file that m names, with m's size and sha256.
	Get(ctx context.Context, m matrix.Manifest) ([]byte, error)
}

// Progress hears how long work goes on. Its methods are called concurrently.
type Progress interface {
	// Phase starts a phase of so many items and bytes (0: not counted in bytes).
	Phase(name string, items int, bytes int64)
	// Moved says that n more bytes of the phase are done; n is negative where bytes
	// have to be moved again.
	Moved(n int64)
	// Done says that an item of the phase is done, or why it is not.
	Done(item string, err error)
	// Say gives the user a line to read.
	Say(line string)
}

// Silent is a Progress that nobody hears.
type Silent struct{}

// Phase does nothing.
func (Silent) Phase(string, int, int64) {}

// Moved does nothing.
func (Silent) Moved(int64) {}

// Done does nothing.
func (Silent) Done(string, error) {}

// Say does nothing.
func (Silent) Say(string) {}

// Options are common to the flows.
type Options struct {
	Concurrency int              // transfers of large blobs at a time for each host; 0: 6
	Progress    Progress         // nil: Silent
	Now         func() time.Time // nil: time.Now
	DryRun      bool             // pull and push write nothing, and tell what they would move
}

const defaultConcurrency = 6

func (o Options) limit() int {
	if o.Concurrency <= 0 {
		return defaultConcurrency
	}
	return o.Concurrency
}

// small is how many small things may be under way at a time: they cost round trips,
// not bytes. The host's own limit, which grows to this many, is the registry
// client's.
func (o Options) small() int { return 16 * o.limit() }

func (o Options) progress() Progress {
	if o.Progress == nil {
		return Silent{}
	}
	return o.Progress
}

func (o Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}
