// Package pinned has the opened bundle: a source that was resolved to a digest once.
// A tag may move afterwards; what is read through a [Bundle] stays what it was.
//
//	b, err := pinned.Open(ctx, source)
//	g, lock, err := b.Whole(ctx, run.Options{})
//
// A delta and its base are opened as one whole bundle by [Join].
package pinned

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Bundle is a bundle at one digest. Its source was asked once what its name stands
// for, and never is again: a tag may move meanwhile. Everything is read by digest from
// there on, and what is attached to a digest is the list that was given first.
//
// The flows read nothing else, so that what a policy has accepted and what is then
// pushed, printed or served cannot be two things.
type Bundle struct {
	source
	root   ocispec.Descriptor
	digest image.Digest

	attached signatures.Lists

	mu    sync.Mutex
	graph *bundle.Graph // once it was read
}

// source is read but for what has been asked already; who has the bundle closes it.
type source = medium.Source

var _ medium.Source = (*Bundle)(nil)

// Open resolves a source. Closing the bundle closes it.
func Open(ctx context.Context, s medium.Source) (*Bundle, error) {
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

// Digest is that of the root.
func (b *Bundle) Digest() image.Digest { return b.digest }

// Descriptor is that of the root.
func (b *Bundle) Descriptor() ocispec.Descriptor { return b.root }

// Root returns the descriptor of the root that the source was resolved to.
func (b *Bundle) Root(context.Context) (ocispec.Descriptor, error) { return b.root, nil }

// Attachments returns what refers to subject, as it was when that was asked first.
func (b *Bundle) Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	return b.attached.Of(ctx, b.source, subject)
}

// Graph returns the structure of the bundle, of a delta as such. The caller does not
// change it.
func (b *Bundle) Graph(ctx context.Context) (*bundle.Graph, error) {
	g, err := b.Load(ctx)
	return g, b.Diagnosed(ctx, err)
}

// Load is Graph without a look at what may be damaged. Where only the delta's list is
// wrong there is a graph all the same.
func (b *Bundle) Load(ctx context.Context) (*bundle.Graph, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.graph != nil {
		return b.graph, nil
	}
	g, err := bundle.Load(ctx, b.source, b.root)
	if err != nil {
		return nil, err
	}
	err = g.OmitFor(b.source.Can().Base)
	if err == nil {
		b.graph = g
	}
	return g, err
}

// Opened is a bundle as far as it is read to describe it.
type Opened struct {
	Graph    *bundle.Graph
	Contents *bundle.Contents
	Matrix   *matrix.Document // of [Bundle.Describe] only
	Root     image.Digest
}

// Read reads the structure of a bundle and what it holds apart from images.
func (b *Bundle) Read(ctx context.Context) (*Opened, error) {
	g, err := b.Graph(ctx)
	if err != nil {
		return nil, err
	}
	o := &Opened{Graph: g, Root: b.digest}
	o.Contents, err = g.Contents(ctx, b)
	return o, err
}

// Describe is Read, with the matrix.
func (b *Bundle) Describe(ctx context.Context) (*Opened, error) {
	o, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}
	o.Matrix, err = matrix.Parse("the bundle's matrix", o.Contents.Matrix)
	return o, err
}

// Whole returns everything that the bundle holds, with what is attached to it, and
// its lock, held against each other. Layers are not read.
func (b *Bundle) Whole(ctx context.Context, o run.Options) (*bundle.Graph, *bundle.Lock, error) {
	d, err := b.Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	g := *d.Graph
	var r signatures.Reader
	g.Attachments, err = r.Below(ctx, b, g.Subjects(), o)
	return &g, d.Contents.Lock, err
}

// Diagnosed adds to what is wrong with content the parts of the medium that are
// damaged: that is what the user has to copy again.
func (b *Bundle) Diagnosed(ctx context.Context, err error) error {
	damage := b.source.Can().Damage
	if damage == nil || !slices.ContainsFunc(fault.All(err), func(f *fault.Error) bool { return f.Reason == fault.Corrupt }) {
		return err
	}
	return fault.Join(err, damage(ctx))
}

// Join is the whole bundle that a delta and its base are together: what the delta
// left out is read from the base. Closing it closes both.
func Join(ctx context.Context, delta, base *Bundle) (medium.Source, error) {
	g, err := delta.Graph(ctx)
	if err != nil {
		return nil, err
	}
	if g.Base == nil {
		return nil, fault.Errorf(fault.InvalidInput, "add base to", g.Root.Digest.String(), "leave --base out",
			"it is a whole bundle")
	}
	other, err := base.Graph(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the base: %w", err)
	}
	held, left := byDigest(other.Held()), g.Omitted()
	lacks := slices.DeleteFunc(slices.Clone(left), func(d ocispec.Descriptor) bool { return held[d.Digest] })
	if len(lacks) > 0 {
		return nil, fault.Errorf(fault.Incomplete, "add base to", g.Root.Digest.String(),
			fmt.Sprintf("give the bundle %s", g.Base.Root), "%s lacks %d of the %d layers that were left to %s",
			other.Root.Digest, len(lacks), len(left), g.Base.Root)
	}
	return &joined{Bundle: delta, base: base, left: byDigest(left)}, nil
}

type joined struct {
	*Bundle
	base *Bundle
	left map[digest.Digest]bool
}

var _ medium.Source = (*joined)(nil)

func (j *joined) of(d ocispec.Descriptor) *Bundle {
	if j.left[d.Digest] {
		return j.base
	}
	return j.Bundle
}

// Fetch reads from where it is.
func (j *joined) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	return j.of(d).Fetch(ctx, d, offset)
}

// Can tells what the delta can do, but that nothing is left out, and that damaged parts
// may be of either. Of the base only layers count, so that its layout does not.
func (j *joined) Can() medium.Capabilities {
	can := j.Bundle.Can()
	can.Base, can.Repository = nil, image.Reference{}
	can.Damage = func(ctx context.Context) error {
		var errs []error
		for _, b := range []*Bundle{j.Bundle, j.base} {
			if damage := b.Can().Damage; damage != nil {
				errs = append(errs, damage(ctx))
			}
		}
		return fault.Join(errs...)
	}
	return can
}

// Close closes both.
func (j *joined) Close() error { return errors.Join(j.Bundle.Close(), j.base.Close()) }

func byDigest(ds []ocispec.Descriptor) map[digest.Digest]bool {
	out := make(map[digest.Digest]bool, len(ds))
	for _, d := range ds {
		out[d.Digest] = true
	}
	return out
}
