// Package diff compares two bundles: releases, images, the matrix, and the bytes that a delta
// would hold. It compares values that were read and verifies nothing.
//
//	d, err := diff.Bundles(ctx, from, to)
package diff

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Difference is how two bundles differ. It is not verified: see package verify.
type Difference struct {
	From     image.Digest `json:"from"` // root of the first bundle
	To       image.Digest `json:"to"`   // root of the second bundle
	Releases Changes      `json:"releases"`
	Images   Changes      `json:"images"`
	Matrix   MatrixChange `json:"matrix"`
	Layers   LayerChange  `json:"layers"`
}

// Changes are sorted by name.
type Changes struct {
	Added   []Change `json:"added"`
	Removed []Change `json:"removed"`
	Changed []Change `json:"changed"`
}

// Empty reports whether there are no changes.
func (c Changes) Empty() bool { return len(c.Added)+len(c.Removed)+len(c.Changed) == 0 }

// Change is one difference.
type Change struct {
	Name string   `json:"name"` // csi@3.5.1, or an image reference
	From string   `json:"from,omitempty"`
	To   string   `json:"to,omitempty"`
	What []string `json:"what,omitempty"` // each difference, for people
}

// MatrixChange is how two matrix documents differ, over all releases.
type MatrixChange struct {
	FromSerial int64   `json:"fromSerial"`
	ToSerial   int64   `json:"toSerial"`
	Expires    *Change `json:"expires,omitempty"`
	Changes
}

// LayerChange compares manifests, configurations and layers.
type LayerChange struct {
	Shared  Weight `json:"shared"`
	Added   Weight `json:"added"` // content of a delta, beside manifests
	Removed Weight `json:"removed"`
}

// Weight is a count and its bytes.
type Weight struct {
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"`
}

func (w *Weight) add(d ocispec.Descriptor) {
	w.Count++
	w.Bytes += d.Size
}

// Bundles returns the differences between two bundles.
func Bundles(ctx context.Context, from, to *pinned.Bundle) (*Difference, error) {
	a, err := from.Describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the first bundle: %w", err)
	}
	b, err := to.Describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the second bundle: %w", err)
	}
	return &Difference{
		From: a.Root, To: b.Root,
		Releases: compare(a.Contents.Lock.Releases, b.Contents.Lock.Releases, bundle.Release.ID, diffRelease),
		Images:   compare(a.Contents.Lock.Images, b.Contents.Lock.Images, imageName, diffImage),
		Matrix:   Matrices(a.Matrix, b.Matrix),
		Layers:   diffLayers(a.Graph, b.Graph),
	}, nil
}

func imageName(i bundle.Image) string { return i.Reference.String() }

// compare compares two lists of named elements.
func compare[T any](a, b []T, name func(T) string, diff func(a, b T) Change) Changes {
	return compareMaps(byName(a, name), byName(b, name), diff)
}

func byName[T any](list []T, name func(T) string) map[string]T {
	out := map[string]T{}
	for _, v := range list {
		out[name(v)] = v
	}
	return out
}

// compareMaps returns what only one side has, and what differs. It omits pairs for which diff returns neither What
// nor different From and To.
func compareMaps[T any](a, b map[string]T, diff func(a, b T) Change) Changes {
	c := Changes{Added: []Change{}, Removed: []Change{}, Changed: []Change{}}
	all := map[string]T{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, had := a[name]
		is, has := b[name]
		switch {
		case !had:
			c.Added = append(c.Added, Change{Name: name})
		case !has:
			c.Removed = append(c.Removed, Change{Name: name})
		default:
			d := diff(was, is)
			if d.Name = name; len(d.What) > 0 || d.From != d.To {
				c.Changed = append(c.Changed, d)
			}
		}
	}
	return c
}

// diffRelease compares what a release installs.
func diffRelease(a, b bundle.Release) Change {
	var c Change
	name := func(f bundle.File) string { return f.Name }
	c.words("manifest", compare(a.Manifests, b.Manifests, name, func(a, b bundle.File) Change {
		return Change{From: a.Digest.String(), To: b.Digest.String()}
	}))
	c.words("image", compareMaps(a.Images, b.Images, func(a, b string) Change { return Change{From: a, To: b} }))
	return c
}

// words appends the changes to c.What as text.
func (c *Change) words(what string, in Changes) {
	for _, a := range in.Added {
		c.What = append(c.What, fmt.Sprintf("%s %s is new", what, a.Name))
	}
	for _, r := range in.Removed {
		c.What = append(c.What, fmt.Sprintf("%s %s is gone", what, r.Name))
	}
	for _, d := range in.Changed {
		c.What = append(c.What, fmt.Sprintf("%s %s: %s, was %s", what, d.Name, d.To, d.From))
	}
}

func diffImage(a, b bundle.Image) Change {
	return Change{From: a.Digest.String(), To: b.Digest.String()}
}

func (c *Change) text(what, a, b string) {
	if a != b {
		c.What = append(c.What, fmt.Sprintf("%s: %s, was %s", what, cmp.Or(b, "nothing"), cmp.Or(a, "nothing")))
	}
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Matrices compares two matrix documents.
func Matrices(a, b *matrix.Document) MatrixChange {
	name := func(r matrix.Release) string { return r.ReleaseID.String() }
	m := MatrixChange{FromSerial: a.Serial, ToSerial: b.Serial}
	m.Changes = compare(a.Releases, b.Releases, name, func(was, is matrix.Release) Change {
		return Change{What: Listed(a, b, was.ReleaseID, is.ReleaseID)}
	})
	if from, to := day(a.Expires), day(b.Expires); from != to {
		m.Expires = &Change{Name: "expires", From: from, To: to}
	}
	return m
}

// Listed returns how two releases differ, as text: their matrix entries and, line by line, their needs of a cluster.
func Listed(from, to *matrix.Document, was, is matrix.ReleaseID) []string {
	var c Change
	a, _ := from.Release(was)
	b, _ := to.Release(is)
	c.text("state", strings.TrimSpace(string(a.State)+" "+a.Reason), strings.TrimSpace(string(b.State)+" "+b.Reason))
	c.text("kubernetes", a.Kubernetes.String(), b.Kubernetes.String())
	c.text("vsphere", a.VSphere.String(), b.VSphere.String())
	c.text("requires", join(a.Requires, matrix.Requirement.String), join(b.Requires, matrix.Requirement.String))
	file := func(f matrix.Manifest) string { return f.Name + " " + f.SHA256[:min(len(f.SHA256), 12)] }
	c.text("manifests", join(a.Manifests, file), join(b.Manifests, file))
	override := func(i matrix.ImageOverride) string { return i.From + " → " + i.To }
	c.text("images", join(a.Images, override), join(b.Images, override))
	needed, needs := needLines(from, was), needLines(to, is)
	for _, line := range needs {
		if !slices.Contains(needed, line) {
			c.What = append(c.What, "+ "+line)
		}
	}
	for _, line := range needed {
		if !slices.Contains(needs, line) {
			c.What = append(c.What, "- "+line)
		}
	}
	return c.What
}

// needLines returns the objects that a release needs, each with its lines.
func needLines(doc *matrix.Document, id matrix.ReleaseID) (out []string) {
	objects, _ := doc.NeedsOf(id)
	for _, object := range slices.Sorted(maps.Keys(objects)) {
		out = append(out, object)
		for _, line := range objects[object] {
			out = append(out, object+": "+line)
		}
	}
	return out
}

func join[T any](list []T, text func(T) string) string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = text(v)
	}
	return strings.Join(out, ", ")
}

func diffLayers(a, b *bundle.Graph) LayerChange {
	list := func(g *bundle.Graph) map[string]ocispec.Descriptor {
		all := slices.Clone(g.Blobs)
		for _, n := range g.Manifests {
			all = append(all, n.Descriptor)
		}
		return byName(all, func(d ocispec.Descriptor) string { return d.Digest.String() })
	}
	var c LayerChange
	was, is := list(a), list(b)
	for digest, d := range was {
		if _, stays := is[digest]; stays {
			c.Shared.add(d)
		} else {
			c.Removed.add(d)
		}
	}
	for digest, d := range is {
		if _, had := was[digest]; !had {
			c.Added.add(d)
		}
	}
	return c
}
