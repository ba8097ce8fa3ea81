package bundle

import (
	"cmp"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Order returns everything that a medium holds, each digest once, in the order in
// which an archive holds it: manifests; configs and the contents' layers; image
// layers, without those that are left to a base; then what attachments add, each
// class sorted by digest. What is at hand carries Data.
func (g *Graph) Order() []ocispec.Descriptor {
	configs := g.configs()
	var classes [4][]ocispec.Descriptor
	for _, n := range g.Manifests {
		classes[classManifests] = append(classes[classManifests], n.withData())
	}
	for _, b := range g.Held() {
		class := classOf(b, configs)
		classes[class] = append(classes[class], b)
	}
	for _, a := range g.Attachments {
		classes[classAttached] = append(append(classes[classAttached], a.Node.withData()), a.Blobs...)
	}
	var out []ocispec.Descriptor
	seen := map[string]bool{}
	for _, class := range classes {
		slices.SortStableFunc(class, func(a, b ocispec.Descriptor) int { return cmp.Compare(a.Digest, b.Digest) })
		for _, d := range class {
			if !seen[d.Digest.String()] {
				seen[d.Digest.String()] = true
				out = append(out, d)
			}
		}
	}
	return out
}

// Classes of what a medium holds, in their order.
const (
	classManifests = iota
	classSmall     // configs, and the contents' layers
	classLayers    // of images
	classAttached
)

func classOf(d ocispec.Descriptor, configs map[string]bool) int {
	if configs[d.Digest.String()] || strings.HasPrefix(d.MediaType, "application/vnd.vdo.") {
		return classSmall
	}
	return classLayers
}

// configs are the digests of all configs.
func (g *Graph) configs() map[string]bool {
	out := map[string]bool{}
	for _, n := range g.Manifests {
		if m, err := decodeManifest(n.Descriptor, n.Data); err == nil && m.Config != nil {
			out[m.Config.Digest.String()] = true
		}
	}
	return out
}

func (n Node) withData() ocispec.Descriptor {
	d := n.Descriptor
	d.Data = n.Data
	return d
}
