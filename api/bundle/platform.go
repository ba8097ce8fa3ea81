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

// choose finds the manifests of an index that are for some platforms, and tells all platforms that it
// says it has. Attestations, and what it says no platform of, are passed over.
func choose(index []ocispec.Descriptor, wanted []image.Platform) (chosen []ocispec.Descriptor, has []image.Platform) {
	for _, d := range index {
		p := d.Platform
		if p == nil || p.OS == "unknown" || !IsManifest(d.MediaType) {
			continue
		}
		is := platformOf(*p)
		has = append(has, is)
		if slices.ContainsFunc(wanted, is.Is) {
			chosen = append(chosen, d)
		}
	}
	return chosen, has
}

func notIndex(err error) error {
	return fault.Errorf(fault.Corrupt, "read", "image index",
		"ask who publishes the image, or name a mirror that has it whole with --source-map", "%w", err)
}

// PickPlatform finds the one manifest of a platform in the bytes of an image index. A platform
// without a variant takes any variant where there is only one. Where the index has no such
// platform the fault is NotFound and names those it has; where it has several (Windows builds of
// one processor), it is Conflict.
func PickPlatform(index []byte, p image.Platform) (d ocispec.Descriptor, err error) {
	var doc manifestForm
	if err := json.Unmarshal(index, &doc); err != nil {
		return d, notIndex(err)
	}
	flat := slices.DeleteFunc(doc.Manifests, func(d ocispec.Descriptor) bool { return IsIndex(d.MediaType) })
	found, has := choose(flat, []image.Platform{p})
	found = slices.CompactFunc(found, func(a, b ocispec.Descriptor) bool { return a.Digest == b.Digest })
	if len(found) == 1 {
		return Plain(found[0]), CheckDescriptor(found[0])
	}
	reason, why := fault.Conflict, fmt.Sprintf("%d manifests for it", len(found))
	if len(found) == 0 {
		reason, why = fault.NotFound, "no platforms"
		if len(has) > 0 {
			why = image.JoinPlatforms(has[:min(len(has), 50)]) // whoever made the index
		}
	}
	return d, fault.Errorf(reason, "pick platform", p.String(), "keep all platforms with --platform all",
		"the image has %s", why)
}

func byName(a, b image.Platform) int { return strings.Compare(a.String(), b.String()) }

// KeepPlatforms returns an index with those of its manifests alone that are for some platforms: the
// same bytes for the same index and platforms, and the index itself where nothing is left
// out. It tells which platforms the image lacks, and refuses one that has none of them.
func KeepPlatforms(data []byte, platforms []image.Platform) (kept []byte, lacks []image.Platform, err error) {
	var index struct {
		ocispec.Index
		Manifests entries `json:"manifests"` // as many as are bounded, instead of Index's
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, nil, notIndex(err)
	}
	chosen, has := choose(index.Manifests, platforms)
	for _, p := range platforms {
		if !slices.ContainsFunc(has, func(is image.Platform) bool { return is.Is(p) }) {
			lacks = append(lacks, p)
		}
	}
	switch len(chosen) {
	case 0:
		return nil, nil, fault.Errorf(fault.NotFound, "pick platforms", image.JoinPlatforms(platforms),
			"ask for a platform that all images have, or lock again with --platform all", "the image has none of them")
	case len(index.Manifests):
		return data, lacks, nil
	}
	index.Index.Manifests, index.Subject = chosen, nil
	kept, err = json.Marshal(index.Index)
	return kept, lacks, err
}

func platformOf(p ocispec.Platform) image.Platform {
	return image.Platform{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant}
}

// ConfiguredPlatform reads the platform of an image's configuration, as its manifest
// names it, and tells whether it says one. A configuration that is not there says none.
func ConfiguredPlatform(ctx context.Context, f Fetcher, manifest []byte) (p image.Platform, ok bool, err error) {
	var m manifestForm
	if json.Unmarshal(manifest, &m) != nil || m.Config == nil || m.Config.Size > MaxManifestSize {
		return p, false, nil //nolint:nilerr // what cannot be read says nothing
	}
	data, err := Read(ctx, f, Plain(*m.Config), MaxManifestSize)
	if fault.ReasonOf(err) == fault.NotFound {
		return p, false, nil
	}
	var says ocispec.Platform
	ok = err == nil && json.Unmarshal(data, &says) == nil && says.OS != "" && says.Architecture != ""
	return platformOf(says), ok, err
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

// PlatformReader reads the platforms of a graph's images, each configuration once.
type PlatformReader struct {
	f     Fetcher
	nodes map[digest.Digest]Node
	says  map[digest.Digest]configured // by manifest
}

type configured struct {
	image.Platform
	ok bool
}

// PlatformReader returns a reader of the platforms of the graph's images.
func (g *Graph) PlatformReader(f Fetcher) *PlatformReader {
	r := &PlatformReader{f: f, nodes: map[digest.Digest]Node{}, says: map[digest.Digest]configured{}}
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
		n := r.nodes[todo[len(todo)-1]]
		if todo = todo[:len(todo)-1]; seen[n.Descriptor.Digest] {
			continue
		}
		seen[n.Descriptor.Digest] = true
		if !IsIndex(n.Descriptor.MediaType) {
			says, bad := r.configured(ctx, n)
			found[says.Platform], all, err = true, all && says.ok, errors.Join(err, bad)
			continue
		}
		for _, c := range n.Children() {
			switch {
			case !IsManifest(c.MediaType): // passed over by whoever reads an index
			case c.Platform != nil && c.Platform.OS != "":
				found[platformOf(*c.Platform)] = true
			default:
				todo = append(todo, c.Digest)
			}
		}
	}
	maps.DeleteFunc(found, func(p image.Platform, _ bool) bool { return p.OS == "" || p.OS == "unknown" })
	return slices.SortedFunc(maps.Keys(found), byName), all, err
}

// configured reads the configuration that a manifest names.
func (r *PlatformReader) configured(ctx context.Context, n Node) (c configured, err error) {
	c, known := r.says[n.Descriptor.Digest]
	if known {
		return c, nil
	}
	if c.Platform, c.ok, err = ConfiguredPlatform(ctx, r.f, n.Data); err != nil {
		err = fmt.Errorf("platform of %s: %w", n.Descriptor.Digest, err)
	}
	if !c.ok {
		c.Platform = image.Platform{}
	}
	r.says[n.Descriptor.Digest] = c
	return c, err
}
