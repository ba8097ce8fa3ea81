package bundle

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Load reads the whole graph from its root. It is bounded, verifies every byte, and requires the root in the
// exact form of Assemble; [Graph.Contents] requires that of the rest. It reports the problems of all images together.
func Load(ctx context.Context, f Fetcher, root ocispec.Descriptor) (*Graph, error) {
	top, children, err := loadRoot(ctx, f, root)
	if err != nil {
		return nil, err
	}
	images := children[1:]
	w := newWalker(f)
	w.walk(ctx, Plain(children[0]), 1)
	for _, im := range images {
		w.image = im.Annotations[AnnotationReference]
		w.walk(ctx, Plain(im), 1)
	}
	if err := w.err("read bundle", root); err != nil {
		return nil, err
	}
	contents, err := decodeManifest(w.nodes[0].Descriptor, w.nodes[0].Data)
	if err != nil {
		return nil, err
	}
	g := &Graph{
		Root: top.Descriptor, Manifests: append(w.nodes, top), Blobs: w.sortedBlobs(),
		contents: contents, images: images, parts: w.parts,
	}
	at := named(g.Root, ocispec.AnnotationRefName, RootName)
	at.ArtifactType = ArtifactType
	g.Names = []ocispec.Descriptor{at}
	for _, im := range images {
		g.Names = append(g.Names, named(im, ocispec.AnnotationRefName, im.Annotations[AnnotationReference]))
	}
	return g, g.link(children)
}

// link completes the graph's parts, and bounds the work for each image.
func (g *Graph) link(children []ocispec.Descriptor) error {
	for _, b := range g.Blobs {
		g.parts[b.Digest] = content{size: b.Size}
	}
	top, total := content{size: g.Root.Size}, 0
	for _, d := range children {
		top.names = append(top.names, d.Digest)
		for below := range g.reach(d.Digest) {
			total += 1 + len(g.parts[below].names)
		}
		if total > MaxEntries {
			return corrupt(g.Root, "there are more than %d entries of manifests below its images", MaxEntries)
		}
	}
	g.parts[g.Root.Digest] = top
	return nil
}

// loadRoot reads the root and checks its form to the byte. It returns the contents and the images.
func loadRoot(ctx context.Context, f Fetcher, root ocispec.Descriptor) (Node, []ocispec.Descriptor, error) {
	notBundle := func(format string, args ...any) (Node, []ocispec.Descriptor, error) {
		return Node{}, nil, fault.Errorf(fault.InvalidInput, "read bundle", root.Digest.String(),
			"name a bundle that `vdo-bundle pull` made", format, args...)
	}
	if root.MediaType != ocispec.MediaTypeImageIndex {
		return notBundle("its media type %.100q is not that of a bundle, %s", root.MediaType,
			ocispec.MediaTypeImageIndex)
	}
	data, err := Read(ctx, f, Plain(root), MaxManifestSize)
	if err != nil {
		return Node{}, nil, err
	}
	m, err := decodeManifest(root, data)
	if err != nil {
		return Node{}, nil, err
	}
	if m.ArtifactType != ArtifactType {
		return notBundle("its artifact type %.100q is not %s", m.ArtifactType, ArtifactType)
	}
	if err := checkRootForm(root, m.Manifests); err != nil {
		return Node{}, nil, err
	}
	want := rootNode(m.Manifests[0], m.Manifests[1:])
	if !bytes.Equal(want.Data, data) {
		return Node{}, nil, corrupt(root, "the root has parts that this version of the format does not know")
	}
	return want, m.Manifests, nil
}

func checkRootForm(root ocispec.Descriptor, children []ocispec.Descriptor) error {
	if len(children) == 0 || children[0].ArtifactType != ContentsArtifactType ||
		children[0].MediaType != ocispec.MediaTypeImageManifest {
		return corrupt(root, "its first child is not the contents manifest")
	}
	if len(children)-1 > MaxLockImages {
		return corrupt(root, "it has more than %d images", MaxLockImages)
	}
	var errs []error
	last := ""
	for i, d := range children[1:] {
		ref := d.Annotations[AnnotationReference]
		parsed, err := image.ParseReference(ref)
		switch {
		case err != nil || parsed.String() != ref:
			errs = append(errs,
				corrupt(root, "child %d is annotated with %.200q, which is not a full image reference", i+1, ref))
		case ref <= last:
			errs = append(errs, corrupt(root, "its images are not sorted, or one is there twice: %s after %s", ref, last))
		}
		last = ref
	}
	return fault.Join(errs...)
}

// IsRoot reports whether a descriptor is a bundle's root, by its artifact type.
func IsRoot(ctx context.Context, f Fetcher, d ocispec.Descriptor) (bool, error) {
	if d.MediaType != ocispec.MediaTypeImageIndex {
		return false, nil
	}
	data, err := Read(ctx, f, Plain(d), MaxManifestSize)
	if err != nil {
		return false, err
	}
	m, err := decodeManifest(d, data)
	return err == nil && m.ArtifactType == ArtifactType, nil
}

// Titles of the layers of the contents manifest other than manifest files.
const (
	matrixTitle    = "matrix.yaml"
	matrixSigTitle = "matrix.yaml.sig"

	MaxSignature = 64 << 10 // bytes of a matrix signature
)

// Contents is the content of the contents manifest.
type Contents struct {
	Lock            *Lock
	Matrix          []byte            // the document, byte for byte
	MatrixSignature []byte            // nil if none exists
	Manifests       map[string][]byte // upstream files, keyed by [Release.Path]
	// Platforms are those of the images, nil unless the caller sets them from [Graph.Platforms].
	Platforms map[image.Digest][]image.Platform
}

// Contents reads and verifies the parts that the contents manifest names. It requires that manifest and the
// lock in the exact form of Assemble. Images, manifest files and the matrix must be the same in lock and bundle.
func (g *Graph) Contents(ctx context.Context, f Fetcher) (*Contents, error) {
	if g.contents.Config == nil {
		return nil, corrupt(g.Root, "the graph does not hold its contents manifest")
	}
	c := &Contents{Manifests: map[string][]byte{}}
	var errs []error
	read := func(d ocispec.Descriptor, limit int64) []byte {
		data, err := Read(ctx, f, Plain(d), limit)
		errs = append(errs, missing(err, d, 1))
		return data
	}
	lock := read(*g.contents.Config, MaxLockSize)
	total := int64(len(lock))
	for _, l := range g.contents.Layers {
		if total += l.Size; total > MaxManifestBytes {
			return nil, corrupt(g.Root, "its contents are larger than %d bytes", MaxManifestBytes)
		}
		switch l.MediaType {
		case MatrixMediaType:
			c.Matrix = read(l, MaxMatrixSize)
		case MatrixSigMediaType:
			c.MatrixSignature = read(l, MaxSignature)
		case ManifestMediaType:
			c.Manifests[l.Annotations[ocispec.AnnotationTitle]] = read(l, matrix.MaxManifestSize)
		}
	}
	if err := fault.Join(errs...); err != nil {
		return nil, err
	}
	var err error
	if c.Lock, err = ParseLock("lock of the bundle "+g.Root.Digest.String(), lock); err != nil {
		return nil, err
	}
	again, blobs, err := c.node()
	if err != nil || again.Descriptor.Digest != g.parts[g.Root.Digest].names[0] {
		return nil, corrupt(g.Root, "its contents have parts that this version of the format does not know, or another form")
	}
	return c, g.agrees(c.Lock, blobs[1:])
}

// DigestOf returns the digest of a descriptor that was read, see [CheckDescriptor]; zero for any other.
func DigestOf(d ocispec.Descriptor) image.Digest {
	parsed, _ := image.ParseDigest(d.Digest.String())
	return parsed
}

// agrees returns the differences between a lock and what the bundle holds: layers of the contents, and images.
func (g *Graph) agrees(lock *Lock, layers []ocispec.Descriptor) error {
	held := map[string]ocispec.Descriptor{}
	for _, i := range g.images {
		held[i.Annotations[AnnotationReference]] = i
	}
	for _, l := range layers { // after the images: a layer hides behind no other name
		if l.MediaType != MatrixSigMediaType {
			held[l.Annotations[ocispec.AnnotationTitle]] = l
		}
	}
	var errs []error
	differ := func(reason fault.Reason, format string, args ...any) {
		errs = append(errs, fault.Errorf(reason, "read bundle", g.Root.Digest.String(),
			"make the bundle again with `vdo-bundle pull --lock`", format, args...))
	}
	compare := func(name, mediaType string, d image.Digest, size int64) {
		want := digest.Digest(d.String())
		switch got, ok := held[name]; {
		case !ok:
			differ(fault.Incomplete, "%s of the lock is missing", name)
		case got.Digest != want:
			differ(fault.Corrupt, "%s: %w", name, &DigestError{Expected: want, Got: got.Digest})
		case got.Size != size || got.MediaType != mediaType:
			differ(fault.Corrupt, "%s is %d bytes of %s, the lock says %d bytes of %s",
				name, got.Size, got.MediaType, size, mediaType)
		}
		delete(held, name)
	}
	compare(matrixTitle, MatrixMediaType, lock.Matrix.Digest, lock.Matrix.Size)
	for _, r := range lock.Releases {
		for _, f := range r.Manifests {
			compare(r.Path(f), ManifestMediaType, f.Digest, f.Size)
		}
	}
	for _, i := range lock.Images {
		compare(i.Reference.String(), i.MediaType, i.Digest, i.Size)
	}
	for name := range held {
		differ(fault.Corrupt, "the bundle holds %.200q, which is not in the lock", name)
	}
	return fault.Join(errs...)
}

// Fetcher returns the unverified bytes of a descriptor from an offset, so that an interrupted
// transfer can continue.
type Fetcher interface {
	Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error)
}

// InMemory is a Fetcher of content in memory.
type InMemory map[digest.Digest][]byte

// Fetch returns the bytes of a descriptor.
func (m InMemory) Fetch(_ context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	data, ok := m[d.Digest]
	if !ok {
		return nil, fault.Errorf(fault.NotFound, "read", d.Digest.String(), "", "it is not at hand")
	}
	return io.NopCloser(bytes.NewReader(data[min(max(0, offset), int64(len(data))):])), nil
}

// Read returns the bytes of d, verified by size and digest, and at most limit bytes. It serves a
// descriptor that carries Data from there.
func Read(ctx context.Context, f Fetcher, d ocispec.Descriptor, limit int64) ([]byte, error) {
	if err := CheckDescriptor(d); err != nil {
		return nil, err
	}
	if d.Size > limit {
		return nil, corrupt(d, "it claims %d bytes, more than the %d that such a part may have", d.Size, limit)
	}
	if int64(len(d.Data)) == d.Size && len(d.Data) > 0 && image.DigestOf(d.Data).String() == d.Digest.String() {
		return d.Data, nil
	}
	rc, err := f.Fetch(ctx, d, 0)
	if err != nil {
		return nil, err
	}
	defer rc.Close() //nolint:errcheck // nothing was written
	var buf bytes.Buffer
	buf.Grow(int(min(d.Size, 64<<10)) + bytes.MinRead)
	if _, err := buf.ReadFrom(Verify(rc, d)); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// CheckDescriptor returns a fault if the digest is not a sha256 digest or the size is impossible.
func CheckDescriptor(d ocispec.Descriptor) error {
	if _, err := image.ParseDigest(d.Digest.String()); err != nil {
		return fault.Errorf(fault.Corrupt, "read descriptor", fmt.Sprintf("%.100q", d.Digest.String()),
			"bundles name everything by sha256 digest", "it is not a sha256 digest")
	}
	if d.Size < 0 || d.Size > MaxBlobSize {
		return corrupt(d, "its size of %d bytes cannot be", d.Size)
	}
	return nil
}

// Verify returns a reader of r. It ends with Corrupt for other or extra bytes and Incomplete for
// missing ones; errors of r that are not faults become Storage. It returns the last bytes after it
// verified all, and reads at most one byte beyond d.Size.
func Verify(r io.Reader, d ocispec.Descriptor) io.Reader {
	return &verifier{r: r, d: d, left: d.Size, sum: sha256.New()}
}

type verifier struct {
	r    io.Reader
	d    ocispec.Descriptor
	left int64
	sum  hash.Hash
	err  error
}

func (v *verifier) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n, err := v.r.Read(p[:min(int64(len(p)), v.left)])
	v.left -= int64(n)
	v.sum.Write(p[:n])
	switch {
	case v.left == 0:
		if v.err = v.end(); !errors.Is(v.err, io.EOF) {
			return 0, v.err
		}
		return n, nil
	case errors.Is(err, io.EOF):
		v.err = fault.Errorf(fault.Incomplete, "read", v.d.Digest.String(), "fetch it again",
			"%d of %d bytes are missing", v.left, v.d.Size)
	case err != nil:
		v.err = v.unreadable(err)
	}
	return n, v.err
}

// unreadable returns an error of the source, not of the destination. A registry's error is a fault
// already; any other is from the file or directory.
func (v *verifier) unreadable(err error) error {
	if len(fault.All(err)) > 0 {
		return err
	}
	return fault.Errorf(fault.Storage, "read", v.d.Digest.String(), "check the medium that the bundle is on", "%w", err)
}

// end checks the stream after the last byte: no byte follows, and the digest matches.
func (v *verifier) end() error {
	var one [1]byte
	n, err := io.ReadFull(v.r, one[:])
	switch {
	case n > 0:
		return corrupt(v.d, "there is more than its %d bytes", v.d.Size)
	case !errors.Is(err, io.EOF):
		return v.unreadable(err)
	}
	if got := digest.NewDigest(digest.SHA256, v.sum); got != v.d.Digest {
		return corrupt(v.d, "%w", &DigestError{Expected: v.d.Digest, Got: got})
	}
	return io.EOF
}

// DigestError reports content whose digest differs from the requested one.
type DigestError struct{ Expected, Got digest.Digest }

func (e *DigestError) Error() string {
	return fmt.Sprintf("expected %.80s, got %.80s", e.Expected, e.Got)
}

func corrupt(d ocispec.Descriptor, format string, args ...any) *fault.Error {
	return fault.Errorf(fault.Corrupt, "read", d.Digest.String(), "fetch it again from a source that you trust",
		format, args...)
}
