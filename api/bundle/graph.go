package bundle

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// RootName is the name of the root in an OCI layout's index.json.
const RootName = "bundle"

// Titles of the layers of the contents manifest that are no manifest files.
const (
	matrixTitle    = "matrix.yaml"
	matrixSigTitle = "matrix.yaml.sig"
)

const maxSignature = 64 << 10 // bytes of the matrix signature

// Contents is what the contents manifest carries.
type Contents struct {
	Lock            *Lock
	Matrix          []byte            // the document, byte for byte
	MatrixSignature []byte            // nil where there is none
	Manifests       map[string][]byte // upstream files, keyed as [Release.Path] says
}

// Graph is everything that a bundle consists of, known before the first layer
// byte moves: the manifests with their bytes, and the descriptors of all blobs.
type Graph struct {
	Root ocispec.Descriptor
	// Manifests are all indexes and image manifests, children before parents, the
	// root last, each once.
	Manifests []Node
	// Blobs are all configs and layers, each digest once, sorted by digest.
	// What Assemble made (the lock, the matrix, manifest files) carries Data.
	Blobs []ocispec.Descriptor
	// Names are the entries of an OCI layout's index.json: the root, and each
	// image under its reference in org.opencontainers.image.ref.name.
	Names []ocispec.Descriptor
	// Attachments are the signatures, attestations and SBOMs that travel with the
	// bundle. They are not reached from the root; who has them adds them.
	Attachments []Attachment
	// Base is what is left out of a delta; nil of a whole bundle. See [Graph.LeaveTo].
	Base *Base
}

// Node is one manifest of a Graph.
type Node struct {
	Descriptor ocispec.Descriptor
	Data       []byte
}

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
	errs := make([]error, 0, len(trees)+len(blobs))
	for _, b := range blobs {
		errs = append(errs, w.blob(b))
	}
	w.add(contents)
	for _, t := range trees {
		errs = append(errs, w.graft(t))
	}
	if err := fault.Join(errs...); err != nil {
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
func (w *walker) graft(t Tree) error {
	errs := make([]error, 0, len(t.Blobs))
	for _, n := range t.Nodes {
		if !w.state[n.Descriptor.Digest.String()].done {
			w.add(n)
		}
	}
	for _, b := range t.Blobs {
		errs = append(errs, w.blob(b))
	}
	if !w.state[t.Root.Digest.String()].done {
		errs = append(errs, corrupt(t.Root, "the tree of %s does not hold its own root", t.Reference))
	}
	return fault.Join(errs...)
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
	return contentsNode(plain(blobs[0]), layers), blobs, nil
}

func contentsNode(config ocispec.Descriptor, layers []ocispec.Descriptor) Node {
	return node(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		ArtifactType: ContentsArtifactType, Config: config, Layers: layers,
	})
}

func rootNode(contents ocispec.Descriptor, images []ocispec.Descriptor) Node {
	contents = plain(contents)
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

// Load reads the whole graph from its root: bounded, every byte verified, the
// root and the contents manifest in exactly the form that Assemble gives them.
// What is wrong with several images is reported together.
func Load(ctx context.Context, f Fetcher, root ocispec.Descriptor) (*Graph, error) {
	top, index, err := loadRoot(ctx, f, root)
	if err != nil {
		return nil, err
	}
	contents, images := index.Manifests[0], index.Manifests[1:]
	w := newWalker(f)
	errs := []error{w.walk(ctx, contents, 1)}
	for _, im := range images {
		if err := w.walk(ctx, im, 1); err != nil {
			errs = append(errs, fmt.Errorf("image %s: %w", im.Annotations[AnnotationReference], err))
		}
	}
	if err := fault.Join(errs...); err != nil {
		return nil, err
	}
	if err := checkContentsForm(w.nodes[0]); err != nil {
		return nil, err
	}
	return w.graph(top, images), nil
}

// loadRoot reads the root and checks its form, down to the byte.
func loadRoot(ctx context.Context, f Fetcher, root ocispec.Descriptor) (Node, *ocispec.Index, error) {
	notBundle := func(format string, args ...any) (Node, *ocispec.Index, error) {
		return Node{}, nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "read bundle", Subject: root.Digest.String(),
			Hint: "name a bundle that `vdo-bundle pull` made", Err: fmt.Errorf(format, args...),
		}
	}
	if root.MediaType != ocispec.MediaTypeImageIndex {
		return notBundle("its media type %.100q is not that of a bundle, %s", root.MediaType, ocispec.MediaTypeImageIndex)
	}
	data, err := Read(ctx, f, plain(root), MaxManifestSize)
	if err != nil {
		return Node{}, nil, err
	}
	if _, err := decodeManifest(root, data); err != nil {
		return Node{}, nil, err
	}
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		return Node{}, nil, corrupt(root, "it is no image index: %w", err)
	}
	if index.ArtifactType != ArtifactType {
		return notBundle("its artifact type %.100q is not %s", index.ArtifactType, ArtifactType)
	}
	if err := checkRootForm(root, &index); err != nil {
		return Node{}, nil, err
	}
	want := rootNode(index.Manifests[0], index.Manifests[1:])
	if !bytes.Equal(want.Data, data) {
		return Node{}, nil, corrupt(root, "the root has parts that this version of the format does not know")
	}
	return want, &index, nil
}

func checkRootForm(root ocispec.Descriptor, index *ocispec.Index) error {
	if len(index.Manifests) == 0 || index.Manifests[0].ArtifactType != ContentsArtifactType ||
		index.Manifests[0].MediaType != ocispec.MediaTypeImageManifest {
		return corrupt(root, "%w", errNoContents)
	}
	if len(index.Manifests)-1 > MaxLockImages {
		return corrupt(root, "it has more than %d images", MaxLockImages)
	}
	var errs []error
	last := ""
	for i, d := range index.Manifests[1:] {
		ref := d.Annotations[AnnotationReference]
		parsed, err := image.ParseReference(ref)
		switch {
		case ref == "":
			errs = append(errs, corrupt(root, "child %d has no annotation %s", i+1, AnnotationReference))
		case err != nil || parsed.String() != ref:
			errs = append(errs, corrupt(root, "child %d is annotated with %.200q, which is no full image reference", i+1, ref))
		case ref == last:
			errs = append(errs, corrupt(root, "it has the image %s twice", ref))
		case ref < last:
			errs = append(errs, corrupt(root, "its images are not sorted: %s after %s", ref, last))
		}
		last = ref
	}
	return fault.Join(errs...)
}

// checkContentsForm demands the contents manifest to the byte as Assemble makes
// it, and its layers in their order.
func checkContentsForm(n Node) error {
	var m ocispec.Manifest
	if err := json.Unmarshal(n.Data, &m); err != nil {
		return corrupt(n.Descriptor, "it is no manifest: %w", err)
	}
	if m.ArtifactType != ContentsArtifactType || m.Config.MediaType != LockMediaType {
		return corrupt(n.Descriptor, "it is no contents manifest: artifact type %.100q, config %.100q", m.ArtifactType, m.Config.MediaType)
	}
	if !bytes.Equal(contentsNode(plain(m.Config), m.Layers).Data, n.Data) {
		return corrupt(n.Descriptor, "the contents manifest has parts that this version of the format does not know")
	}
	rank := map[string]int{MatrixMediaType: 1, MatrixSigMediaType: 2, ManifestMediaType: 3}
	errs := []error{}
	lastRank, lastTitle := 0, ""
	for i, l := range m.Layers {
		title, r := l.Annotations[ocispec.AnnotationTitle], rank[l.MediaType]
		switch {
		case r == 0:
			errs = append(errs, corrupt(n.Descriptor, "layer %d of the contents has the unknown media type %.100q", i, l.MediaType))
		case r < lastRank || (r == lastRank && (r != 3 || title <= lastTitle)):
			errs = append(errs, corrupt(n.Descriptor, "layer %d of the contents (%.200q) is repeated or out of order", i, title))
		case (r == 1 && title != matrixTitle) || (r == 2 && title != matrixSigTitle):
			errs = append(errs, corrupt(n.Descriptor, "layer %d of the contents has the title %.200q", i, title))
		}
		lastRank, lastTitle = r, title
	}
	if len(m.Layers) == 0 || m.Layers[0].MediaType != MatrixMediaType {
		errs = append(errs, corrupt(n.Descriptor, "the contents hold no matrix document"))
	}
	return fault.Join(errs...)
}

// index returns the parsed root.
func (g *Graph) index() (*ocispec.Index, error) {
	if len(g.Manifests) == 0 {
		return nil, corrupt(g.Root, "the graph is empty")
	}
	var index ocispec.Index
	if err := json.Unmarshal(g.Manifests[len(g.Manifests)-1].Data, &index); err != nil {
		return nil, corrupt(g.Root, "it is no image index: %w", err)
	}
	if len(index.Manifests) == 0 {
		return nil, corrupt(g.Root, "%w", errNoContents)
	}
	return &index, nil
}

// Images returns the root's images: descriptors annotated with their reference,
// sorted by it.
func (g *Graph) Images() []ocispec.Descriptor {
	index, err := g.index()
	if err != nil {
		return nil
	}
	return index.Manifests[1:]
}

// Node returns a manifest of the graph.
func (g *Graph) Node(d image.Digest) (Node, bool) {
	for _, n := range g.Manifests {
		if n.Descriptor.Digest.String() == d.String() {
			return n, true
		}
	}
	return Node{}, false
}

// Contents reads what the contents manifest names, verifies it and holds the lock
// against the root: every image of the lock is a child of the root and the other
// way round, every manifest file and the matrix are those of the lock.
func (g *Graph) Contents(ctx context.Context, f Fetcher) (*Contents, error) {
	index, err := g.index()
	if err != nil {
		return nil, err
	}
	n, ok := g.Node(digestOf(index.Manifests[0]))
	if !ok {
		return nil, corrupt(index.Manifests[0], "the graph does not hold its contents manifest")
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(n.Data, &m); err != nil {
		return nil, corrupt(n.Descriptor, "it is no manifest: %w", err)
	}
	c, err := g.readContents(ctx, f, &m)
	if err != nil {
		return nil, err
	}
	return c, disagreements("read bundle "+g.Root.Digest.String(), c, index.Manifests[1:])
}

func (g *Graph) readContents(ctx context.Context, f Fetcher, m *ocispec.Manifest) (*Contents, error) {
	c := &Contents{Manifests: map[string][]byte{}}
	var errs []error
	read := func(d ocispec.Descriptor, limit int64) []byte {
		data, err := Read(ctx, f, g.withData(d), limit)
		errs = append(errs, missing(err, d, 1))
		return data
	}
	lock := read(m.Config, MaxLockSize)
	total := int64(len(lock))
	for _, l := range m.Layers {
		if total += l.Size; total > MaxManifestBytes {
			return nil, corrupt(g.Root, "its contents are larger than %d bytes", MaxManifestBytes)
		}
		switch l.MediaType {
		case MatrixMediaType:
			c.Matrix = read(l, MaxMatrixSize)
		case MatrixSigMediaType:
			c.MatrixSignature = read(l, maxSignature)
		case ManifestMediaType:
			c.Manifests[l.Annotations[ocispec.AnnotationTitle]] = read(l, MaxFileSize)
		}
	}
	if err := fault.Join(errs...); err != nil {
		return nil, err
	}
	var err error
	if c.Lock, err = ParseLock("lock of the bundle "+g.Root.Digest.String(), lock); err != nil {
		return nil, err
	}
	if canonical, err := c.Lock.JSON(); err != nil || !bytes.Equal(canonical, lock) {
		return nil, corrupt(m.Config, "the lock is not in its canonical form")
	}
	return c, nil
}

// withData returns the blob with the bytes that Assemble left in the graph.
func (g *Graph) withData(d ocispec.Descriptor) ocispec.Descriptor {
	i, ok := slices.BinarySearchFunc(g.Blobs, d.Digest.String(), func(b ocispec.Descriptor, want string) int {
		return cmp.Compare(b.Digest.String(), want)
	})
	d = plain(d)
	if ok {
		d.Data = g.Blobs[i].Data
	}
	return d
}

func digestOf(d ocispec.Descriptor) image.Digest {
	parsed, err := image.ParseDigest(d.Digest.String())
	if err != nil {
		return image.Digest{}
	}
	return parsed
}

// disagreements holds a lock against what it locks.
func disagreements(op string, c *Contents, images []ocispec.Descriptor) error {
	d := &differ{op: op}
	d.same("the matrix", c.Lock.Matrix.Digest, c.Lock.Matrix.Size, c.Matrix)
	want := map[string]bool{}
	for _, r := range c.Lock.Releases {
		for _, f := range r.Manifests {
			key := r.Path(f)
			want[key] = true
			if data, ok := c.Manifests[key]; ok {
				d.same("the manifest "+key, f.Digest, f.Size, data)
			} else {
				d.add(fault.Incomplete, "the manifest %s of the lock is missing", key)
			}
		}
	}
	for _, key := range sortedKeys(c.Manifests) {
		if !want[key] {
			d.add(fault.Corrupt, "the manifest %.200q is not in the lock", key)
		}
	}
	d.images(c.Lock, images)
	return fault.Join(d.errs...)
}

type differ struct {
	op   string
	errs []error
}

func (d *differ) add(reason fault.Reason, format string, args ...any) {
	d.errs = append(d.errs, &fault.Error{
		Reason: reason, Op: d.op, Hint: "make the bundle again with `vdo-bundle pull --lock`",
		Err: fmt.Errorf(format, args...),
	})
}

func (d *differ) same(what string, want image.Digest, size int64, data []byte) {
	if got := image.DigestOf(data); got != want {
		d.add(fault.Corrupt, "%s has the digest %s, the lock says %s", what, got, want)
	} else if int64(len(data)) != size {
		d.add(fault.Corrupt, "%s has %d bytes, the lock says %d", what, len(data), size)
	}
}

func (d *differ) images(lock *Lock, images []ocispec.Descriptor) {
	got := map[string]ocispec.Descriptor{}
	for _, im := range images {
		ref := im.Annotations[AnnotationReference]
		if _, twice := got[ref]; twice {
			d.add(fault.Corrupt, "the image %s is there twice", ref)
		}
		got[ref] = im
		if _, ok := lock.Image(ref); !ok {
			d.add(fault.Corrupt, "the image %s is not in the lock", ref)
		}
	}
	for _, im := range lock.Images {
		ref := im.Reference.String()
		is, ok := got[ref]
		switch {
		case !ok:
			d.add(fault.Incomplete, "the image %s of the lock is missing", ref)
		case is.Digest.String() != im.Digest.String():
			d.add(fault.Corrupt, "the image %s is %s, the lock says %s", ref, is.Digest, im.Digest)
		case is.Size != im.Size || is.MediaType != im.MediaType:
			d.add(fault.Corrupt, "the image %s is %d bytes of %s, the lock says %d bytes of %s", ref, is.Size, is.MediaType, im.Size, im.MediaType)
		}
	}
}

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
