package bundle

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Assemble returns the graph of a bundle, as every reader reads it. The same input, in any order, gives
// the same bytes. All differences between the lock and the contents or trees are reported together.
func Assemble(c Contents, trees []Tree) (*Graph, error) {
	if c.Lock == nil {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "assemble bundle", Subject: "lock", Hint: lockFormat.Hint}
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
	contents, blobs, err := c.node()
	if err != nil {
		return nil, err
	}
	root := rootNode(contents.Descriptor, images)
	f := InMemory{root.Descriptor.Digest: root.Data, contents.Descriptor.Digest: contents.Data}
	for _, t := range trees {
		for _, n := range t.Nodes {
			f[n.Descriptor.Digest] = n.Data
		}
	}
	for _, b := range blobs {
		f[b.Digest] = b.Data
	}
	ctx := context.Background() // reads memory only
	g, err := Load(ctx, f, root.Descriptor)
	if err != nil { // each tree may be within its bounds while all together exceed them
		return nil, fault.Errorf(fault.Refused, "assemble bundle", "",
			"make several bundles, of fewer releases or of one platform each (--release, --platform)",
			"no reader would accept it: %w", fault.CauseOf(err))
	}
	for i, b := range g.Blobs {
		g.Blobs[i].Data = f[b.Digest]
	}
	_, err = g.Contents(ctx, f)
	return g, err
}

// named returns a descriptor with one annotation and no other attribute that a parent sets.
func named(d ocispec.Descriptor, key, value string) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size,
		Annotations: map[string]string{key: value}}
}

// Blob returns a descriptor of data, which carries the data.
func Blob(mediaType string, data []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data)), Data: data}
}

// node returns the contents manifest and the blobs that it names, with Data: the lock, then the layers.
func (c *Contents) node() (Node, []ocispec.Descriptor, error) {
	lock, err := c.Lock.JSON()
	if err != nil {
		return Node{}, nil, err
	}
	blobs := []ocispec.Descriptor{Blob(LockMediaType, lock)}
	m := ocispec.Manifest{ArtifactType: ContentsArtifactType, Config: Plain(blobs[0])}
	add := func(mediaType, title string, data []byte) {
		d := named(Blob(mediaType, data), ocispec.AnnotationTitle, title)
		m.Layers = append(m.Layers, d)
		d.Data = data
		blobs = append(blobs, d)
	}
	add(MatrixMediaType, matrixTitle, c.Matrix)
	if len(c.MatrixSignature) > 0 {
		add(MatrixSigMediaType, matrixSigTitle, c.MatrixSignature)
	}
	for _, k := range slices.Sorted(maps.Keys(c.Manifests)) {
		add(ManifestMediaType, k, c.Manifests[k])
	}
	return NewManifest(m), blobs, nil
}

func rootNode(contents ocispec.Descriptor, images []ocispec.Descriptor) Node {
	contents = Plain(contents)
	contents.ArtifactType = ContentsArtifactType
	children := append([]ocispec.Descriptor{contents}, images...)
	return NewIndex(ocispec.Index{ArtifactType: ArtifactType, Manifests: children})
}

// NewManifest returns the node of an image manifest. Its media type is OCI's by default.
func NewManifest(m ocispec.Manifest) Node {
	m.SchemaVersion, m.MediaType = 2, cmp.Or(m.MediaType, ocispec.MediaTypeImageManifest)
	return newNode(m.MediaType, m)
}

// NewIndex returns the node of an image index.
func NewIndex(x ocispec.Index) Node {
	x.SchemaVersion, x.MediaType = 2, ocispec.MediaTypeImageIndex
	return newNode(x.MediaType, x)
}

func newNode(mediaType string, v any) Node {
	data, err := encodeJSON(v)
	if err != nil {
		panic(err) // the types hold text and numbers only
	}
	return Node{Plain(Blob(mediaType, data)), data}
}
