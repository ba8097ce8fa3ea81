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

// choose returns the manifests of an index for the wanted platforms, and all platforms of the
// index. It skips attestations and entries without a platform.
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

// PickPlatform returns the one manifest of a platform in an image index. A platform without a
// variant matches a single variant. A missing platform is NotFound, with the existing ones; several
// matches (Windows builds of one processor) are a Conflict.
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
			why = image.JoinPlatforms(has[:min(len(has), 50)]) // as many as the author of the index wrote
		}
	}
	return d, fault.Errorf(reason, "pick platform", p.String(), "keep all platforms with --platform all",
		"the image has %s", why)
}

func byName(a, b image.Platform) int { return strings.Compare(a.String(), b.String()) }

// KeepPlatforms returns an index with only the manifests of some platforms, or the same index if
// they are all. Its bytes depend on index and platforms only. It also returns the platforms that
// the image lacks, and refuses an image without any of them.
func KeepPlatforms(data []byte, platforms []image.Platform) (kept []byte, lacks []image.Platform, err error) {
	var index struct {
		ocispec.Index
		Manifests entries `json:"manifests"` // bounded, instead of Index's
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

// ConfiguredPlatform reads the platform from the image config that a manifest names; ok reports
// whether the config has one. A missing config has none.
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
	if err != nil || json.Unmarshal(data, &says) != nil || says.OS == "" || says.Architecture == "" {
		return p, false, err
	}
	return platformOf(says), true, nil
}

// Platforms returns the platforms of each image by the pinned digest, sorted, each once. Sources
// are the lock (if it keeps one platform), the index, or else the image's config. An image without
// a known platform is not in the map; attestations do not count; errors are read errors.
func (g *Graph) Platforms(ctx context.Context, f Fetcher, lock *Lock) (map[image.Digest][]image.Platform, error) {
	out := map[image.Digest][]image.Platform{}
	for _, d := range g.Images() {
		id := DigestOf(d)
		if !IsIndex(d.MediaType) && len(lock.Platforms) == 1 && lock.Platforms[0] != (image.Platform{}) {
			out[id] = slices.Clone(lock.Platforms)
			continue
		}
		found, all, err := g.PlatformsOf(ctx, f, d)
		if err != nil {
			return nil, err
		}
		if all && len(found) > 0 {
			out[id] = found
		}
	}
	return out, nil
}

// PlatformsOf returns the platforms of an image, sorted, each once; all reports whether the list is complete.
func (g *Graph) PlatformsOf(
	ctx context.Context, f Fetcher, d ocispec.Descriptor,
) (out []image.Platform, all bool, err error) {
	left, found, todo := map[digest.Digest]Node{}, map[image.Platform]bool{}, []digest.Digest{d.Digest}
	for _, n := range g.Manifests {
		left[n.Descriptor.Digest] = n
	}
	all = true
	for len(todo) > 0 {
		n, fresh := left[todo[0]]
		delete(left, todo[0])
		todo = todo[1:]
		switch {
		case !fresh:
			continue
		case !IsIndex(n.Descriptor.MediaType):
			is, ok, bad := ConfiguredPlatform(ctx, f, n.Data)
			if bad != nil {
				err = errors.Join(err, fmt.Errorf("platform of %s: %w", n.Descriptor.Digest, bad))
			}
			found[is], all = true, all && ok
			continue
		}
		for _, c := range n.Children() {
			switch {
			case !IsManifest(c.MediaType): // readers of an index skip it
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
