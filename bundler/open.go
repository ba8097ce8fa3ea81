package bundler

import (
	"context"
	"io"
	"slices"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Bundle is a bundle at one digest. Its source was asked once what its name stands
// for, and never is again: a tag may move meanwhile. Everything is read by digest from
// there on, and what is attached to a digest is the list that was given first.
//
// [Open] makes one of which nothing is proven, [Verify] one that satisfies a policy.
// The flows read nothing else, so that what a policy has accepted and what is then
// pushed, printed or served cannot be two things.
type Bundle struct {
	source   Source
	root     ocispec.Descriptor
	digest   image.Digest
	verified *Verification // nil: nothing is proven

	attached attachedOnce

	mu    sync.Mutex
	graph *bundle.Graph // once it was read
}

var _ Source = (*Bundle)(nil)

// Open resolves a source. Closing the bundle closes it.
func Open(ctx context.Context, s Source) (*Bundle, error) {
	root, err := s.Root(ctx)
	if err != nil {
		return nil, err
	}
	digest, err := image.ParseDigest(root.Digest.String())
	if err != nil {
		return nil, err
	}
	return &Bundle{source: s, root: root, digest: digest}, nil
}

// Verification is what was proven of the bundle; nil where nothing was.
func (b *Bundle) Verification() *Verification { return b.verified }

// Root returns the descriptor of the root that the source was resolved to.
func (b *Bundle) Root(context.Context) (ocispec.Descriptor, error) { return b.root, nil }

// Fetch returns the bytes of a descriptor, not verified.
func (b *Bundle) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	return b.source.Fetch(ctx, d)
}

// FetchFrom returns the bytes of a descriptor from an offset, not verified.
func (b *Bundle) FetchFrom(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	return b.source.FetchFrom(ctx, d, offset)
}

// Attachments returns what refers to subject, as it was when that was asked first.
func (b *Bundle) Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	return b.attached.of(ctx, b.source, subject)
}

// attachedOnce are the lists of attachments as they were when each was asked for
// first: what was verified of a subject and what is then taken along are one list.
type attachedOnce struct {
	mu    sync.Mutex
	lists map[image.Digest][]ocispec.Descriptor
}

func (a *attachedOnce) of(ctx context.Context, s asked, subject image.Digest) ([]ocispec.Descriptor, error) {
	a.mu.Lock()
	list, ok := a.lists[subject]
	a.mu.Unlock()
	if ok {
		return slices.Clone(list), nil
	}
	list, err := s.Attachments(ctx, subject)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if first, ok := a.lists[subject]; ok {
		return slices.Clone(first), nil
	}
	if a.lists == nil {
		a.lists = map[image.Digest][]ocispec.Descriptor{}
	}
	a.lists[subject] = list
	return slices.Clone(list), nil
}

// Close closes the source.
func (b *Bundle) Close() error { return b.source.Close() }

// open returns the structure of the bundle, of a delta as such. The caller does not
// change it.
func (b *Bundle) open(ctx context.Context) (*bundle.Graph, error) {
	g, err := b.load(ctx)
	return g, b.diagnosed(ctx, err)
}

// load is open without a look at what may be damaged. Where only the delta's list is
// wrong there is a graph all the same.
func (b *Bundle) load(ctx context.Context) (*bundle.Graph, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.graph != nil {
		return b.graph, nil
	}
	g, err := bundle.Load(ctx, b.source, b.root)
	if err != nil {
		return nil, err
	}
	if d, ok := b.source.(Delta); ok {
		err = g.LeaveTo(d.Base())
	}
	if err == nil {
		b.graph = g
	}
	return g, err
}

// opened is a bundle as far as it is read to describe it.
type opened struct {
	graph    *bundle.Graph
	contents *bundle.Contents
	matrix   *matrix.Document // of describe only
	root     image.Digest
}

// read reads the structure of a bundle and what it holds apart from images.
func (b *Bundle) read(ctx context.Context) (*opened, error) {
	g, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	o := &opened{graph: g, root: b.digest}
	o.contents, err = g.Contents(ctx, b)
	return o, err
}

// describe is read, with the matrix.
func (b *Bundle) describe(ctx context.Context) (*opened, error) {
	o, err := b.read(ctx)
	if err != nil {
		return nil, err
	}
	o.matrix, err = matrix.Parse("the bundle's matrix", o.contents.Matrix)
	return o, err
}
