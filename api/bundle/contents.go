package bundle

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

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
	// Platforms of the images are for who asks for them with [Graph.Platforms]; else nil.
	Platforms map[image.Digest][]image.Platform
}

// Contents reads what the contents manifest names, verifies it and holds the lock
// against the root: every image of the lock is a child of the root and the other
// way round, every manifest file and the matrix are those of the lock.
func (g *Graph) Contents(ctx context.Context, f Fetcher) (*Contents, error) {
	if g.contents.Config == nil {
		return nil, corrupt(g.Root, "the graph does not hold its contents manifest")
	}
	c := &Contents{Manifests: map[string][]byte{}}
	var errs []error
	read := func(d ocispec.Descriptor, limit int64) []byte {
		data, err := Read(ctx, f, g.withData(d), limit)
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
			c.MatrixSignature = read(l, maxSignature)
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
	if canonical, err := c.Lock.JSON(); err != nil || !bytes.Equal(canonical, lock) {
		return nil, corrupt(*g.contents.Config, "the lock is not in its canonical form")
	}
	return c, disagreements("read bundle "+g.Root.Digest.String(), c, g.images)
}

// withData returns the blob with the bytes that Assemble left in the graph.
func (g *Graph) withData(d ocispec.Descriptor) ocispec.Descriptor {
	i, ok := slices.BinarySearchFunc(g.Blobs, d.Digest.String(), func(b ocispec.Descriptor, want string) int {
		return cmp.Compare(b.Digest.String(), want)
	})
	d = Plain(d)
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
	for _, key := range slices.Sorted(maps.Keys(c.Manifests)) {
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
	d.errs = append(d.errs, fault.Errorf(reason, d.op, "", "make the bundle again with `vdo-bundle pull --lock`",
		format, args...))
}

func (d *differ) same(what string, want image.Digest, size int64, data []byte) {
	if got := image.DigestOf(data); got != want {
		d.add(fault.Corrupt, "%s: %w", what, &DigestError{Expected: digest.Digest(want.String()),
			Got: digest.Digest(got.String())})
	} else if int64(len(data)) != size {
		d.add(fault.Corrupt, "%s: expected %d bytes, got %d", what, size, len(data))
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
			d.add(fault.Corrupt, "the image %s is %d bytes of %s, the lock says %d bytes of %s", ref, is.Size,
				is.MediaType, im.Size, im.MediaType)
		}
	}
}
