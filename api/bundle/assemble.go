package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Assemble makes the graph of a bundle. The same input, in any order, gives the
// same bytes. Contents and trees that disagree with the lock are faults, all of
// them together.
func Assemble(c Contents, trees []Tree) (*Graph, error) {
	if c.Lock == nil {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "assemble bundle", Subject: "lock", Hint: lockHint}
	}
	if err := c.Lock.Validate(); err != nil {
		return nil, err
	}
	trees = slices.SortedFunc(slices.Values(trees), func(a, b Tree) int {
		return strings.Compare(a.Reference.String(), b.Reference.String())
	})
	images := make([]ocispec.Descriptor, 0, len(trees))
	for _, t := range trees {
		images = append(images, named(t.Root, AnnotationReference, t.Reference.String()))
	}
	if err := disagreements("assemble bundle", &c, images); err != nil {
		return nil, err
	}
	contents, blobs, err := c.node()
	if err != nil {
		return nil, err
	}
	w := newWalker(nil)
	w.add(contents)
	for _, b := range blobs {
		w.blob(b)
	}
	for _, t := range trees {
		w.graft(t)
	}
	if err := w.err("assemble", ocispec.Descriptor{}); err != nil {
		return nil, err
	}
	g := w.graph(rootNode(contents.Descriptor, images), images)
	return g, g.readable()
}

// readable reads a graph that was assembled as everybody will who gets it: what is
// within the bounds of each tree may be beyond those of all together.
func (g *Graph) readable() error {
	f := atHand{}
	for _, n := range g.Manifests {
		f[n.Descriptor.Digest.String()] = n.Data
	}
	again, err := Load(context.Background(), f, g.Root) // nothing in it waits
	if err == nil {
		again.Blobs = g.Blobs // which carry their data
		_, err = again.Contents(context.Background(), f)
	}
	if err == nil {
		g.parts = again.parts
		return nil
	}
	var f1 *fault.Error
	if errors.As(err, &f1) && f1.Err != nil {
		err = f1.Err
	}
	return &fault.Error{
		Reason: fault.Refused, Op: "assemble bundle", Err: fmt.Errorf("nobody could read it: %w", err),
		Hint: "make several bundles, of fewer releases or of one platform each (--release, --platform)",
	}
}

// atHand fetches from memory.
type atHand map[string][]byte

// Fetch returns the bytes of a descriptor.
func (a atHand) Fetch(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	data, ok := a[d.Digest.String()]
	if !ok {
		return nil, &fault.Error{Reason: fault.Internal, Op: "assemble bundle", Subject: d.Digest.String(), Err: errors.New("it is not at hand")}
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// graft adds a tree that was read before.
func (w *walker) graft(t Tree) {
	for _, n := range t.Nodes {
		if !w.state[n.Descriptor.Digest].done {
			w.add(n)
		}
	}
	for _, b := range t.Blobs {
		w.blob(b)
	}
	if !w.state[t.Root.Digest].done {
		w.report(t.Root, corrupt(t.Root, "the tree of %s does not hold its own root", t.Reference))
	}
}

func (w *walker) graph(root Node, images []ocispec.Descriptor) *Graph {
	w.add(root)
	top := named(root.Descriptor, ocispec.AnnotationRefName, RootName)
	top.ArtifactType = ArtifactType
	names := []ocispec.Descriptor{top}
	for _, im := range images {
		names = append(names, named(im, ocispec.AnnotationRefName, im.Annotations[AnnotationReference]))
	}
	return &Graph{Root: root.Descriptor, Manifests: w.nodes, Blobs: w.sortedBlobs(), Names: names}
}

// named is a descriptor with one annotation and nothing that another parent says.
func named(d ocispec.Descriptor, key, value string) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, Annotations: map[string]string{key: value}}
}

func made(mediaType string, data []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data)), Data: data}
}

// node makes the contents manifest and the blobs that it names, with Data.
func (c *Contents) node() (Node, []ocispec.Descriptor, error) {
	lock, err := c.Lock.JSON()
	if err != nil {
		return Node{}, nil, err
	}
	blobs := []ocispec.Descriptor{made(LockMediaType, lock)}
	var layers []ocispec.Descriptor
	add := func(mediaType, title string, data []byte) {
		d := made(mediaType, data)
		blobs = append(blobs, d)
		layers = append(layers, named(d, ocispec.AnnotationTitle, title))
	}
	add(MatrixMediaType, matrixTitle, c.Matrix)
	if len(c.MatrixSignature) > 0 {
		add(MatrixSigMediaType, matrixSigTitle, c.MatrixSignature)
	}
	for _, k := range sortedKeys(c.Manifests) {
		add(ManifestMediaType, k, c.Manifests[k])
	}
	return contentsNode(Plain(blobs[0]), layers), blobs, nil
}

func contentsNode(config ocispec.Descriptor, layers []ocispec.Descriptor) Node {
	return node(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		ArtifactType: ContentsArtifactType, Config: config, Layers: layers,
	})
}

func rootNode(contents ocispec.Descriptor, images []ocispec.Descriptor) Node {
	contents = Plain(contents)
	contents.ArtifactType = ContentsArtifactType
	return node(ocispec.MediaTypeImageIndex, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
		ArtifactType: ArtifactType, Manifests: append([]ocispec.Descriptor{contents}, images...),
	})
}

func node(mediaType string, v any) Node {
	data, err := encodeJSON(v)
	if err != nil {
		panic(err) // the types hold text and numbers only
	}
	d := made(mediaType, data)
	d.Data = nil
	return Node{d, data}
}
