package bundle

import (
	"context"
	"errors"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

var errUnwritten = errors.New("being written")

// Contents is what the contents manifest carries.
type Contents struct {
	Lock            *Lock
	Matrix          []byte
	MatrixSignature []byte
	// Manifests are keyed DRIVER/VERSION/FILE, as [Release.Path] gives it.
	Manifests map[string][]byte
}

// Fetcher gives the bytes of a descriptor, unverified, from offset 0.
type Fetcher interface {
	Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error)
}

// Tree is one upstream image.
type Tree struct {
	Reference image.Reference
	Root      ocispec.Descriptor
	Nodes     []Node               // children before parents, Root last
	Blobs     []ocispec.Descriptor // configs and layers, each once, sorted by digest
}

// Attachment is a signature.
type Attachment struct {
	Subject image.Digest
	Tag     string
	Node    Node
	Blobs   []ocispec.Descriptor // with Data where the maker has it
}

// ParseLock reads a lock.
func ParseLock(name string, data []byte) (*Lock, error) { return nil, errUnwritten }

// YAML is the lock for people.
func (l *Lock) YAML() ([]byte, error) { return nil, errUnwritten }

// JSON is the canonical lock.
func (l *Lock) JSON() ([]byte, error) { return nil, errUnwritten }

// Sort puts everything in canonical order.
func (l *Lock) Sort() {}

// Validate reports everything that is wrong with the lock.
func (l *Lock) Validate() error { return errUnwritten }

// Path is the key of a manifest file in Contents.Manifests: DRIVER/VERSION/FILE.
func (r Release) Path(f File) string { return "" }

// ReadTree walks an image.
func ReadTree(ctx context.Context, f Fetcher, root ocispec.Descriptor) (Tree, error) {
	return Tree{}, errUnwritten
}

// PickPlatform finds one platform's own manifest in an index.
func PickPlatform(index []byte, p image.Platform) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{}, errUnwritten
}

// Assemble makes the graph.
func Assemble(c Contents, trees []Tree) (*Graph, error) { return nil, errUnwritten }

// Load reads the graph.
func Load(ctx context.Context, f Fetcher, root ocispec.Descriptor) (*Graph, error) {
	return nil, errUnwritten
}

// Contents reads and checks the contents.
func (g *Graph) Contents(ctx context.Context, f Fetcher) (*Contents, error) { return nil, errUnwritten }

// Order returns everything once.
func (g *Graph) Order() []ocispec.Descriptor { return nil }

// Node finds a manifest.
func (g *Graph) Node(d image.Digest) (Node, bool) { return Node{}, false }

// ReadAttachment reads a signature manifest (d as Source.Attachments gives it).
func ReadAttachment(ctx context.Context, f Fetcher, subject image.Digest, d ocispec.Descriptor) (Attachment, error) {
	return Attachment{}, errUnwritten
}

// Read returns the verified bytes of d, at most limit.
func Read(ctx context.Context, f Fetcher, d ocispec.Descriptor, limit int64) ([]byte, error) {
	return nil, errUnwritten
}

// Verify returns a reader that gives r's bytes and, instead of io.EOF, a Corrupt
// fault where size or digest are not d's.
func Verify(r io.Reader, d ocispec.Descriptor) io.Reader { return r }
