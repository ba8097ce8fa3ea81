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
	"reflect"
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
	From image.Digest `json:"from"` // root of the first bundle
	To   image.Digest `json:"to"`   // root of the second bundle
	// Platforms is the change of the kept platforms, which gives images other digests; nil if there is none.
	Platforms *Change      `json:"platforms,omitempty"`
	Releases  Changes      `json:"releases"`
	Images    Changes      `json:"images"`
	Matrix    MatrixChange `json:"matrix"`
	Layers    LayerChange  `json:"layers"`
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

// MatrixChange is how two matrix documents differ, over all entries.
type MatrixChange struct {
	FromSerial int64   `json:"fromSerial"`
	ToSerial   int64   `json:"toSerial"`
	Expires    *Change `json:"expires,omitempty"`
	Other      bool    `json:"other,omitempty"` // the documents differ, but in nothing of this value
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
	var platforms *Change
	was, is := image.JoinPlatforms(a.Contents.Lock.Platforms), image.JoinPlatforms(b.Contents.Lock.Platforms)
	if was != is {
		platforms = &Change{Name: "platforms", From: was, To: is}
	}
	imageName := func(i bundle.Image) string { return i.Reference.String() }
	diffImage := func(a, b bundle.Image) Change { return Change{From: a.Digest.String(), To: b.Digest.String()} }
	return &Difference{
		From: a.Root, To: b.Root, Platforms: platforms,
		Releases: compare(a.Contents.Lock.Releases, b.Contents.Lock.Releases, bundle.Release.ID, diffRelease),
		Images:   compare(a.Contents.Lock.Images, b.Contents.Lock.Images, imageName, diffImage),
		Matrix:   Matrices(a.Matrix, b.Matrix),
		Layers:   diffLayers(a.Graph, b.Graph),
	}, nil
}

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

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Matrices compares two matrix documents: releases, services and aliases of vSphere versions.
func Matrices(a, b *matrix.Document) MatrixChange {
	m := MatrixChange{FromSerial: a.Serial, ToSerial: b.Serial}
	all := entries(b)
	m.Changes = compareMaps(entries(a), all, func(was, is entry) Change { return Change{What: was.differences(is)} })
	for n, added := range m.Added {
		m.Added[n].What = entry{needs: needsBefore(a, added.Name)}.differences(all[added.Name])
	}
	if from, to := day(a.Expires), day(b.Expires); from != to {
		m.Expires = &Change{Name: "expires", From: from, To: to}
	}
	m.Other = m.Empty() && m.Expires == nil && a.Serial == b.Serial && !reflect.DeepEqual(a, b)
	return m
}

// Listed returns how two releases differ, as text: their matrix entries and, line by line, their needs of a cluster.
func Listed(from, to *matrix.Document, was, is matrix.ReleaseID) []string {
	a, _ := from.Release(was)
	b, _ := to.Release(is)
	return releaseEntry(from, a).differences(releaseEntry(to, b))
}

// needsBefore returns the needs of the newest older release of the same driver: a new release shows only other needs.
func needsBefore(doc *matrix.Document, name string) []string {
	id, err := matrix.ParseReleaseID(name)
	var older matrix.ReleaseID
	for _, r := range doc.Releases { // sorted
		if err == nil && r.Driver == id.Driver && r.Version.LessThan(id.Version) {
			older = r.ReleaseID
		}
	}
	return needLines(doc, older)
}

// entry is an entry of a matrix, with what people compare. It is complete, or has no fields.
type entry struct {
	fields []field
	needs  []string
}

type field struct{ name, text string }

// entries returns everything that a document lists, by name.
func entries(doc *matrix.Document) map[string]entry {
	out := map[string]entry{}
	for _, r := range doc.Releases {
		out[r.ReleaseID.String()] = releaseEntry(doc, r)
	}
	for _, s := range doc.Services {
		out[s.ReleaseID.String()] = entry{[]field{
			{"state", stateText(s.State, s.Reason)}, {"image", s.Image},
			{"basis", s.Basis}, {"notes", strings.Join(s.Notes, "; ")},
		}, nil}
	}
	for _, v := range doc.Aliases {
		name := fmt.Sprintf("vSphere %s from build %d", v.Reports, v.FromBuild)
		out[name] = entry{[]field{{"means", v.Means.String()}, {"basis", v.Basis}}, nil}
	}
	return out
}

func releaseEntry(doc *matrix.Document, r matrix.Release) entry {
	needed := func(q matrix.Requirement) string {
		return q.String() + map[bool]string{true: " (recommended)"}[q.Optional]
	}
	file := func(m matrix.Manifest) string { return fmt.Sprintf("%s %s, %d bytes", m.Name, m.SHA256, m.Size) }
	basis := func(text string, isDerived bool) string { return map[bool]string{true: "derived, "}[isDerived] + text }
	return entry{[]field{
		{"state", stateText(r.State, r.Reason)},
		{"oneWay", r.OneWay},
		{"kubernetes", r.Kubernetes.String()},
		{"kubernetes basis", basis(r.Kubernetes.Basis, r.Kubernetes.Derived)},
		{"vsphere", r.VSphere.String()},
		{"vsphere basis", basis(r.VSphere.Basis, r.VSphere.Derived)},
		{"requires", join(r.Requires, needed)},
		{"manifests", join(r.Manifests, file)},
		{"parts", join(r.Manifests, func(m matrix.Manifest) string { return cmp.Or(string(m.Part), "required") })},
		{"addresses", join(r.Manifests, func(m matrix.Manifest) string { return m.URL })},
		{"images", join(r.Images, func(i matrix.ImageOverride) string { return i.From + " → " + i.To })},
		{"images basis", join(r.Images, func(i matrix.ImageOverride) string { return i.Basis })},
		{"notes", strings.Join(r.Notes, "; ")},
	}, needLines(doc, r.ReleaseID)}
}

func stateText(s matrix.State, reason string) string {
	return strings.TrimSpace(string(s) + " " + reason)
}

// differences returns the differences to another entry of the same kind, as text. Without fields it returns all
// fields of the other.
func (e entry) differences(to entry) (out []string) {
	for n, is := range to.fields {
		switch {
		case e.fields == nil && is.text != "":
			out = append(out, is.name+": "+is.text)
		case e.fields != nil && is != e.fields[n]:
			now, before := cmp.Or(is.text, "nothing"), cmp.Or(e.fields[n].text, "nothing")
			out = append(out, fmt.Sprintf("%s: %s, was %s", is.name, now, before))
		}
	}
	for _, line := range to.needs {
		if !slices.Contains(e.needs, line) {
			out = append(out, "+ "+line)
		}
	}
	for _, line := range e.needs {
		if !slices.Contains(to.needs, line) {
			out = append(out, "- "+line)
		}
	}
	return out
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
