package bundle

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// RootName is the name of the root in an OCI layout's index.json.
const RootName = "bundle"

// Graph is all content of a bundle, known before the first layer byte moves: the manifests with
// their bytes, and the descriptors of all blobs.
type Graph struct {
	Root ocispec.Descriptor
	// Manifests are all indexes and image manifests, children before parents, the root last, each once.
	Manifests []Node
	// Blobs are all configs and layers, each digest once, sorted by digest. Blobs from Assemble
	// (the lock, the matrix, manifest files) carry Data.
	Blobs []ocispec.Descriptor
	// Names are the entries of an OCI layout's index.json: the root, and each
	// image under its reference in org.opencontainers.image.ref.name.
	Names []ocispec.Descriptor
	// Attachments are the referrers (signatures, attestations, SBOMs) that travel with the bundle.
	// The root does not name them; the caller adds them.
	Attachments []Referrer
	// Base names the layers omitted from a delta; nil for a whole bundle. See [Graph.OmitFor].
	Base *Base

	contents manifestForm
	images   []ocispec.Descriptor
	parts    map[digest.Digest]content
}

// content is the size of a manifest or blob of a graph, and the digests that it names.
type content struct {
	size  int64
	names []digest.Digest
}

// Node is one manifest of a Graph.
type Node struct {
	Descriptor ocispec.Descriptor
	Data       []byte
}

// Images returns the root's images: descriptors annotated with their reference, sorted by it.
func (g *Graph) Images() []ocispec.Descriptor { return g.images }

// All returns every manifest that travels: those of the graph, then those of its referrers.
func (g *Graph) All() []Node {
	nodes := slices.Clone(g.Manifests)
	for _, a := range g.Attachments {
		nodes = append(nodes, a.Node)
	}
	return nodes
}

// InMemory returns the content that the graph carries: all manifests, and the blobs with Data.
func (g *Graph) InMemory() InMemory {
	out := InMemory{}
	for _, n := range g.All() {
		out[n.Descriptor.Digest] = n.Data
	}
	blobs := slices.Clone(g.Blobs)
	for _, a := range g.Attachments {
		blobs = append(blobs, a.Blobs...)
	}
	for _, d := range blobs {
		if d.Data != nil && int64(len(d.Data)) == d.Size {
			out[d.Digest] = d.Data
		}
	}
	return out
}

// Size returns the size of all manifests and blobs in bytes, including omitted base layers.
func (g *Graph) Size() int64 {
	size := SizeOf(g.Blobs)
	for _, n := range g.Manifests {
		size += n.Descriptor.Size
	}
	return size
}

// HeldSize returns Size without the omitted base layers.
func (g *Graph) HeldSize() int64 { return g.Size() - SizeOf(g.Omitted()) }

// SizeOf adds up sizes, in bytes.
func SizeOf(ds []ocispec.Descriptor) (n int64) {
	for _, d := range ds {
		n += d.Size
	}
	return n
}

// Subjects returns the possible subjects of a referrer: every manifest of the graph, sorted.
func (g *Graph) Subjects() (all []image.Digest) {
	for _, n := range g.Manifests {
		all = append(all, DigestOf(n.Descriptor))
	}
	slices.SortFunc(all, func(a, b image.Digest) int { return cmp.Compare(a.String(), b.String()) })
	return all
}

// Below returns the part of the graph below some of its manifests, with their referrers. The first
// manifest becomes the root.
func (g *Graph) Below(roots ...ocispec.Descriptor) *Graph {
	reached, out := map[digest.Digest]bool{}, &Graph{parts: g.parts}
	if len(roots) > 0 {
		out.Root = roots[0]
	}
	for _, root := range roots {
		maps.Copy(reached, g.reach(root.Digest))
	}
	for _, n := range g.Manifests { // keeps children before parents
		if reached[n.Descriptor.Digest] {
			out.Manifests = append(out.Manifests, n)
		}
	}
	for _, b := range g.Blobs {
		if reached[b.Digest] {
			out.Blobs = append(out.Blobs, b)
		}
	}
	for _, a := range g.Attachments { // after their subjects
		if reached[digest.Digest(a.Subject.String())] {
			reached[a.Node.Descriptor.Digest] = true
			out.Attachments = append(out.Attachments, a)
		}
	}
	return out
}

// SizeBelow returns the size in bytes of everything that one manifest reaches, including itself, each digest once.
func (g *Graph) SizeBelow(root ocispec.Descriptor) (size int64) {
	for d := range g.reach(root.Digest) {
		size += g.parts[d].size
	}
	return size
}

func (g *Graph) reach(root digest.Digest) map[digest.Digest]bool {
	reached := map[digest.Digest]bool{}
	var add func(d digest.Digest)
	add = func(d digest.Digest) {
		if reached[d] {
			return
		}
		reached[d] = true
		for _, child := range g.parts[d].names {
			add(child)
		}
	}
	add(root)
	return reached
}

// Referrer returns the manifest's descriptor as lists of referrers have it (OCI distribution
// specification 1.1, "Listing Referrers").
func (n Node) Referrer() ocispec.Descriptor {
	var m ocispec.Manifest
	_ = json.Unmarshal(n.Data, &m) // a list without the type is still a list
	d := Plain(n.Descriptor)
	d.ArtifactType, d.Annotations = cmp.Or(m.ArtifactType, m.Config.MediaType), m.Annotations
	return d
}

// Children returns the descriptors that an index or manifest names: manifests, layers, then the
// config. An unreadable manifest names nothing.
func (n Node) Children() []ocispec.Descriptor {
	var m manifestForm
	if json.Unmarshal(n.Data, &m) != nil {
		return nil
	}
	out := slices.Concat(m.Manifests, m.Layers)
	if m.Config != nil {
		out = append(out, *m.Config)
	}
	return out
}

// Order returns everything that a store holds, each digest once, in archive order. The order is:
// manifests; configs and the contents' layers; image layers, without omitted base layers; then what
// referrers add. Each class is sorted by digest. Content in memory carries Data.
func (g *Graph) Order() []ocispec.Descriptor {
	var manifests, small, layers, attached []ocispec.Descriptor
	for _, n := range g.Manifests {
		manifests = append(manifests, n.withData())
	}
	isLayer := g.isLayer()
	for _, b := range g.Held() {
		if isLayer(b) {
			layers = append(layers, b)
		} else {
			small = append(small, b)
		}
	}
	for _, a := range g.Attachments {
		attached = append(append(attached, a.Node.withData()), a.Blobs...)
	}
	var out []ocispec.Descriptor
	seen := map[digest.Digest]bool{}
	for _, class := range [][]ocispec.Descriptor{manifests, small, layers, attached} {
		slices.SortStableFunc(class, func(a, b ocispec.Descriptor) int { return cmp.Compare(a.Digest, b.Digest) })
		for _, d := range class {
			if !seen[d.Digest] {
				seen[d.Digest] = true
				out = append(out, d)
			}
		}
	}
	return out
}

// isLayer returns what tells the blobs that are only layers of images.
func (g *Graph) isLayer() func(ocispec.Descriptor) bool {
	configs := map[digest.Digest]bool{}
	for _, n := range g.Manifests {
		if m, err := decodeManifest(n.Descriptor, n.Data); err == nil && m.Config != nil {
			configs[m.Config.Digest] = true
		}
	}
	return func(d ocispec.Descriptor) bool {
		return !configs[d.Digest] && !strings.HasPrefix(d.MediaType, "application/vnd.vdo.")
	}
}

func (n Node) withData() ocispec.Descriptor {
	d := n.Descriptor
	d.Data = n.Data
	return d
}

// Owners maps each digest of a graph to the images that it is part of, or a referrer of, for messages.
type Owners map[digest.Digest][]string

// ContentsName is what Owners calls the parts of a bundle that belong to no image.
const ContentsName = "the bundle's contents"

// Owners returns the images of every manifest and blob.
func (g *Graph) Owners() Owners {
	o := Owners{}
	add := func(d digest.Digest, name string) {
		for below := range g.reach(d) {
			o[below] = append(o[below], name)
		}
	}
	if names := g.parts[g.Root.Digest].names; len(names) > 0 {
		add(names[0], ContentsName)
	}
	for _, im := range g.images {
		add(im.Digest, im.Annotations[AnnotationReference])
	}
	for _, a := range g.Attachments { // after their subjects
		name := "the bundle"
		if owners := o[digest.Digest(a.Subject.String())]; len(owners) > 0 {
			name = strings.TrimPrefix(owners[0], referrerOf)
		}
		for _, d := range append([]ocispec.Descriptor{a.Node.Descriptor}, a.Blobs...) {
			if !slices.Contains(o[d.Digest], referrerOf+name) {
				o[d.Digest] = append(o[d.Digest], referrerOf+name)
			}
		}
	}
	return o
}

const referrerOf = "a referrer of "

// Name describes a part: "layer of registry.k8s.io/csi-vsphere/driver:v3.5.1".
func (o Owners) Name(d ocispec.Descriptor) string {
	names := "the bundle"
	if of := o[d.Digest]; len(of) > 0 {
		names = fault.Few(slices.Sorted(slices.Values(of)), 3)
	}
	return part(d.MediaType) + " of " + names
}

func part(mediaType string) string {
	switch {
	case IsIndex(mediaType):
		return "index"
	case strings.Contains(mediaType, "manifest.v"):
		return "manifest"
	case strings.Contains(mediaType, "config") || strings.Contains(mediaType, "container.image.v1"):
		return "configuration"
	case strings.Contains(mediaType, "layer") || strings.Contains(mediaType, "rootfs"):
		return "layer"
	}
	return "part"
}
