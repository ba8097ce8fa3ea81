// Package pinned resolves a source to a digest, once. A tag may move afterwards; a [Bundle] keeps
// reading the same content.
//
//	b, err := pinned.Open(ctx, source)
//	g, lock, err := b.Whole(ctx, run.Options{})
//
// [Join] opens a delta and its base as one whole bundle.
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

// Bundle is a bundle at one digest. It resolves its source's name once, since a tag may move, then reads by digest,
// and keeps the first list of attachments. Flows read nothing else, so that they push, print or serve only what a
// policy has accepted.
type Bundle struct {
	source
	root   ocispec.Descriptor
	digest image.Digest

	mu    sync.Mutex
	graph *bundle.Graph // cached
}

// source answers what Bundle has not cached; the owner of the bundle closes it.
type source = signatures.Kept

var _ medium.Source = (*Bundle)(nil)

// Open resolves a source. Closing the bundle closes the source; a failure closes it too.
func Open(ctx context.Context, s medium.Source) (*Bundle, error) {
	root, err := s.Root(ctx)
	var digest image.Digest
	if err == nil {
		digest, err = image.ParseDigest(root.Digest.String())
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &Bundle{source: source{Source: s}, root: root, digest: digest}, nil
}

// Digest returns the digest of the root.
func (b *Bundle) Digest() image.Digest { return b.digest }

// Descriptor returns the descriptor of the root.
func (b *Bundle) Descriptor() ocispec.Descriptor { return b.root }

// Root returns the descriptor that the source was resolved to.
func (b *Bundle) Root(context.Context) (ocispec.Descriptor, error) { return b.root, nil }

// Graph returns the structure of the bundle; a delta stays a delta. The caller must not change it.
func (b *Bundle) Graph(ctx context.Context) (*bundle.Graph, error) {
	g, err := b.Load(ctx)
	return g, b.Diagnosed(ctx, err, Mixed...)
}

// Load is Graph without diagnosis of damaged parts. It returns a graph even if the delta's list is wrong.
func (b *Bundle) Load(ctx context.Context) (*bundle.Graph, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.graph != nil {
		return b.graph, nil
	}
	g, err := bundle.Load(ctx, &b.source, b.root)
	if err != nil {
		return nil, err
	}
	err = g.OmitFor(b.source.Can().Base)
	if err == nil {
		b.graph = g
	}
	return g, err
}

// Opened is the readable description of a bundle.
type Opened struct {
	Graph    *bundle.Graph
	Contents *bundle.Contents
	Matrix   *matrix.Document // of [Bundle.Describe] only
	Root     image.Digest
}

// Read reads the structure of a bundle and its contents, without images.
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

// Whole returns the graph with all attachments, and the lock, checked against each other. It reads no layers.
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

// Mixed are the reasons of further faults of reading a medium, if parts of another bundle are among its own.
var Mixed = []fault.Reason{fault.NotFound, fault.Incomplete}

// Diagnosed adds the damaged parts of the medium to a fault of corruption, or of the other reasons: the user has to
// copy these again.
func (b *Bundle) Diagnosed(ctx context.Context, err error, or ...fault.Reason) error {
	damage := b.source.Can().Damage
	isOf := func(f *fault.Error) bool { return f.Reason == fault.Corrupt || slices.Contains(or, f.Reason) }
	if damage == nil || !slices.ContainsFunc(fault.All(err), isOf) {
		return err
	}
	return fault.Join(err, damage(ctx))
}

// Join returns a delta and its base as one bundle; omitted layers come from the base. Closing it closes both.
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
		name, hint := other.Root.Digest.String(), fmt.Sprintf("give the bundle %s", g.Base.Root)
		if other.Base != nil {
			name += ", a delta itself,"
			hint = fmt.Sprintf("make that one whole first: `vdo-bundle copy DELTA.tar WHOLE.tar --base BASE.tar` with the bundle %s as base", other.Base.Root)
		}
		return nil, fault.Errorf(fault.Incomplete, "add base to", g.Root.Digest.String(), hint,
			"%s lacks %d of the %d layers expected from base %s", name, len(lacks), len(left), g.Base.Root)
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

// Fetch reads from the bundle that has d.
func (j *joined) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	return j.of(d).Fetch(ctx, d, offset)
}

// Can returns the delta's capabilities, without its base and repository, and with both bundles' damage. It ignores
// the base's layout, since only its layers are read.
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

// Close closes both bundles.
func (j *joined) Close() error { return errors.Join(j.Bundle.Close(), j.base.Close()) }

func byDigest(ds []ocispec.Descriptor) map[digest.Digest]bool {
	out := make(map[digest.Digest]bool, len(ds))
	for _, d := range ds {
		out[d.Digest] = true
	}
	return out
}
