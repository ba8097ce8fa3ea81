package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// PickPlatform finds the one manifest of a platform in the bytes of an image
// index. Attestations are passed over. A platform without a variant takes any
// variant where there is only one. Where the index has no such platform the fault
// is NotFound and names those it has; where it has several (Windows builds of one
// processor), it is Conflict.
func PickPlatform(index []byte, p image.Platform) (ocispec.Descriptor, error) {
	bad := func(reason fault.Reason, format string, args ...any) (ocispec.Descriptor, error) {
		return ocispec.Descriptor{}, fault.Errorf(reason, "pick platform", p.String(),
			"keep all platforms with --platform all", format, args...)
	}
	var doc manifestForm
	if len(index) > MaxManifestSize {
		return bad(fault.Corrupt, "the image index is larger than %d bytes", MaxManifestSize)
	}
	if err := json.Unmarshal(index, &doc); err != nil {
		return bad(fault.Corrupt, "it is not an image index: %w", err)
	}
	var found []ocispec.Descriptor
	var has []string
	for _, d := range doc.Manifests {
		if d.Platform == nil || d.Platform.OS == "unknown" || !isManifest(d.MediaType) {
			continue
		}
		got := image.Platform{OS: d.Platform.OS, Architecture: d.Platform.Architecture, Variant: d.Platform.Variant}
		has = append(has, got.String())
		if got == p || (p.Variant == "" && got.OS == p.OS && got.Architecture == p.Architecture) {
			found = append(found, Plain(d))
		}
	}
	found = slices.CompactFunc(found, func(a, b ocispec.Descriptor) bool { return a.Digest == b.Digest })
	switch len(found) {
	case 0:
		return bad(fault.NotFound, "the image has %s", few(has))
	case 1:
		return found[0], CheckDescriptor(found[0])
	}
	return bad(fault.Conflict, "the image has %d manifests for it", len(found))
}

// few lists platforms, each once, as many as a person reads.
func few(platforms []string) string {
	const most = 50
	slices.Sort(platforms)
	platforms = slices.Compact(platforms)
	switch n := len(platforms); {
	case n == 0:
		return "no platforms"
	case n > most:
		return fmt.Sprintf("%s and %d more", strings.Join(platforms[:most], ", "), n-most)
	}
	return strings.Join(platforms, ", ")
}

// ConfiguredPlatform reads the platform of an image's configuration, as its manifest
// names it, and tells whether it says one. A configuration that is not there says none.
func ConfiguredPlatform(ctx context.Context, f Fetcher, manifest []byte) (p ocispec.Platform, ok bool, err error) {
	var m manifestForm
	if json.Unmarshal(manifest, &m) != nil || m.Config == nil || m.Config.Size > MaxManifestSize {
		return p, false, nil //nolint:nilerr // what cannot be read says nothing
	}
	data, err := Read(ctx, f, Plain(*m.Config), MaxManifestSize)
	if fault.ReasonOf(err) == fault.NotFound {
		return p, false, nil
	}
	ok = err == nil && json.Unmarshal(data, &p) == nil && p.OS != "" && p.Architecture != ""
	return p, ok, err
}

// Platforms are those that each image of the bundle is for, by the digest that pods are
// pinned to: sorted, each once. They are what was verified says: the lock, where it keeps one
// platform; of an index its manifests, and where an index does not say it of one, or the image
// is a manifest by itself, the image's configuration, which is read. An image of which it is
// not known is not in the map: its configuration is not to be had (a copy without blobs) or
// says nothing. Attestations count for nothing. An error is one of reading.
func (g *Graph) Platforms(ctx context.Context, f Fetcher, lock *Lock) (map[image.Digest][]image.Platform, error) {
	r, out := g.PlatformReader(f), map[image.Digest][]image.Platform{}
	for _, d := range g.Images() {
		id := digestOf(d)
		if !IsIndex(d.MediaType) && len(lock.Platforms) == 1 && lock.Platforms[0] != (image.Platform{}) {
			out[id] = slices.Clone(lock.Platforms)
			continue
		}
		found, all, err := r.Of(ctx, d)
		if err != nil {
			return nil, err
		}
		if all && len(found) > 0 {
			out[id] = found
		}
	}
	return out, nil
}

// Platforms are those that the image is for, as in [Graph.Platforms]; none where a part of
// it does not say.
func (t Tree) Platforms(ctx context.Context, f Fetcher) ([]image.Platform, error) {
	found, all, err := (&Graph{Manifests: t.Nodes}).PlatformReader(f).Of(ctx, t.Root)
	if err != nil || !all {
		return nil, err
	}
	return found, nil
}

// PlatformReader reads the platforms of a graph's images, each manifest and configuration once.
type PlatformReader struct {
	f     Fetcher
	nodes map[digest.Digest]Node
	read  map[digest.Digest]*platforms
}

// platforms are those of one manifest or index.
type platforms struct {
	found   map[image.Platform]bool // that it says
	below   []digest.Digest         // of which it does not say it
	unknown bool
}

// PlatformReader returns a reader of the platforms of the graph's images.
func (g *Graph) PlatformReader(f Fetcher) *PlatformReader {
	r := &PlatformReader{f: f, nodes: map[digest.Digest]Node{}, read: map[digest.Digest]*platforms{}}
	for _, n := range g.Manifests {
		r.nodes[n.Descriptor.Digest] = n
	}
	return r
}

// Of returns the platforms of an image, sorted, each once, and whether they are all.
func (r *PlatformReader) Of(ctx context.Context, d ocispec.Descriptor) (out []image.Platform, all bool, err error) {
	found, seen, todo := map[image.Platform]bool{}, map[digest.Digest]bool{}, []digest.Digest{d.Digest}
	all = true
	for len(todo) > 0 {
		next := todo[len(todo)-1]
		if todo = todo[:len(todo)-1]; seen[next] {
			continue
		}
		seen[next] = true
		if r.read[next] == nil {
			p, bad := r.readOne(ctx, r.nodes[next])
			r.read[next], err = p, errors.Join(err, bad)
		}
		p := r.read[next]
		maps.Copy(found, p.found)
		todo, all = append(todo, p.below...), all && !p.unknown
	}
	compare := func(a, b image.Platform) int { return strings.Compare(a.String(), b.String()) }
	return slices.SortedFunc(maps.Keys(found), compare), all, err
}

func (r *PlatformReader) readOne(ctx context.Context, n Node) (*platforms, error) {
	p := &platforms{found: map[image.Platform]bool{}}
	if !IsIndex(n.Descriptor.MediaType) {
		says, ok, err := ConfiguredPlatform(ctx, r.f, n.Data)
		if p.unknown = !ok; ok {
			p.note(says)
		}
		if err != nil {
			err = fmt.Errorf("platform of %s: %w", n.Descriptor.Digest, err)
		}
		return p, err
	}
	for _, d := range n.Children() {
		switch {
		case !IsManifest(d.MediaType): // passed over by whoever reads an index
		case d.Platform != nil && d.Platform.OS != "":
			p.note(*d.Platform)
		default:
			p.below = append(p.below, d.Digest)
		}
	}
	return p, nil
}

func (p *platforms) note(o ocispec.Platform) {
	if o.OS != "unknown" {
		p.found[image.Platform{OS: o.OS, Architecture: o.Architecture, Variant: o.Variant}] = true
	}
}
