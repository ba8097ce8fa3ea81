package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Bounds of what is read; larger ones are refused.
const (
	MaxManifestSize  = 4 << 20  // bytes of one index or manifest, as registries bound it
	MaxManifestBytes = 64 << 20 // bytes of all indexes and manifests of one graph
	MaxNodes         = 4096     // indexes and manifests of one graph
	MaxBlobs         = 65536    // configs and layers of one graph
	MaxDepth         = 4        // an index in an index in an index in the root
	MaxBlobSize      = 1 << 40  // bytes of one blob
)

// Media types of the images that a bundle carries; Docker's are never converted.
const (
	dockerIndexType    = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerManifestType = "application/vnd.docker.distribution.manifest.v2+json"
	dockerForeignLayer = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
	ociForeignPrefix   = "application/vnd.oci.image.layer.nondistributable."
)

// IsIndex reports whether a media type is that of an image index.
func IsIndex(mediaType string) bool {
	return mediaType == ocispec.MediaTypeImageIndex || mediaType == dockerIndexType
}

func isManifest(mediaType string) bool {
	return mediaType == ocispec.MediaTypeImageManifest || mediaType == dockerManifestType
}

// IsManifest reports whether a media type is that of an index or an image
// manifest, what a registry keeps under /manifests/ rather than /blobs/.
func IsManifest(mediaType string) bool { return IsIndex(mediaType) || isManifest(mediaType) }

// IsForeign reports whether a layer is one that its maker calls not distributable
// (old Windows base layers): registries may hold its descriptor without its bytes.
func IsForeign(d ocispec.Descriptor) bool {
	return d.MediaType == dockerForeignLayer || strings.HasPrefix(d.MediaType, ociForeignPrefix)
}

// Tree is one upstream image: an index with all its manifests, or one manifest.
type Tree struct {
	Reference image.Reference // set by who asks for the tree
	Root      ocispec.Descriptor
	Nodes     []Node               // indexes and manifests, children before parents, Root last
	Blobs     []ocispec.Descriptor // configs and layers, each digest once, sorted by digest
	// Ignored are what indexes name whose media type is not known: whoever reads an
	// index passes over them (image specification, "Image Index"). They are not carried.
	Ignored []ocispec.Descriptor
}

// IsEmpty reports whether there is no image manifest in the tree: an index that names
// nothing that could run.
func (t Tree) IsEmpty() bool {
	return !slices.ContainsFunc(t.Nodes, func(n Node) bool { return isManifest(n.Descriptor.MediaType) })
}

// Foreign returns the tree's layers that are called not distributable. They are
// among Blobs like any other: a site without a network cannot follow their URLs.
func (t Tree) Foreign() []ocispec.Descriptor {
	var out []ocispec.Descriptor
	for _, b := range t.Blobs {
		if IsForeign(b) {
			out = append(out, b)
		}
	}
	return out
}

// ReadTree walks an upstream index or manifest, verifying every byte that it reads
// and within the bounds above. What is wrong with several children is reported
// together. A child that is not there is Incomplete.
func ReadTree(ctx context.Context, f Fetcher, root ocispec.Descriptor) (Tree, error) {
	w := newWalker(f)
	if err := w.walk(ctx, root, 0); err != nil {
		return Tree{}, err
	}
	return Tree{Root: Plain(root), Nodes: w.nodes, Blobs: w.sortedBlobs(), Ignored: w.ignored}, nil
}

// Plain keeps what identifies content and drops what a parent says about it.
func Plain(d ocispec.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, URLs: d.URLs}
}

// A walker collects manifests and blobs, each once, over several walks.
type walker struct {
	f       Fetcher
	state   map[string]walkState // of manifests, by digest
	nodes   []Node
	blobs   map[string]ocispec.Descriptor
	bytes   int64
	started int
	ignored []ocispec.Descriptor
}

type walkState struct {
	d      ocispec.Descriptor
	done   bool
	failed error // why it could not be read; asked for again it says the same
}

func newWalker(f Fetcher) *walker {
	return &walker{f: f, state: map[string]walkState{}, blobs: map[string]ocispec.Descriptor{}}
}

func (w *walker) sortedBlobs() []ocispec.Descriptor {
	out := make([]ocispec.Descriptor, 0, len(w.blobs))
	for _, k := range sortedKeys(w.blobs) {
		out = append(out, w.blobs[k])
	}
	return out
}

func (w *walker) walk(ctx context.Context, d ocispec.Descriptor, depth int) error {
	seen, err := w.enter(d, depth)
	if err != nil || seen {
		return err
	}
	if err := w.visit(ctx, d, depth); err != nil {
		w.state[d.Digest.String()] = walkState{d: d, failed: err}
		return err
	}
	return nil
}

func (w *walker) visit(ctx context.Context, d ocispec.Descriptor, depth int) error {
	data, err := Read(ctx, w.f, Plain(d), MaxManifestSize)
	if err != nil {
		return missing(err, d, depth)
	}
	if w.bytes += int64(len(data)); w.bytes > MaxManifestBytes {
		return corrupt(d, "the manifests below one root are larger than %d bytes together", MaxManifestBytes)
	}
	children, blobs, err := parseManifest(d, data)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range children {
		if !IsManifest(c.MediaType) && CheckDescriptor(c) == nil {
			w.ignored = append(w.ignored, Plain(c))
			continue
		}
		errs = append(errs, w.walk(ctx, c, depth+1))
	}
	for _, b := range blobs {
		errs = append(errs, w.blob(b))
	}
	if err := fault.Join(errs...); err != nil {
		return err
	}
	w.add(Node{Plain(d), data})
	return nil
}

func (w *walker) add(n Node) {
	w.state[n.Descriptor.Digest.String()] = walkState{d: n.Descriptor, done: true}
	w.nodes = append(w.nodes, n)
}

// enter checks a descriptor before its bytes are asked for.
func (w *walker) enter(d ocispec.Descriptor, depth int) (seen bool, err error) {
	if err := CheckDescriptor(d); err != nil {
		return false, err
	}
	if !IsManifest(d.MediaType) {
		return false, corrupt(d, "its media type %.100q is neither an image index nor an image manifest", d.MediaType)
	}
	if depth > MaxDepth {
		return false, corrupt(d, "indexes are nested deeper than %d", MaxDepth)
	}
	if was, ok := w.state[d.Digest.String()]; ok {
		switch {
		case was.failed != nil:
			return false, was.failed
		case !was.done:
			return false, corrupt(d, "an index contains itself")
		case was.d.Size != d.Size || was.d.MediaType != d.MediaType:
			return false, corrupt(d, "it is named twice, with other size or media type")
		}
		return true, nil
	}
	if w.started++; w.started > MaxNodes {
		return false, corrupt(d, "there are more than %d indexes and manifests below one root", MaxNodes)
	}
	w.state[d.Digest.String()] = walkState{d: d}
	return false, nil
}

func (w *walker) blob(d ocispec.Descriptor) error {
	if err := CheckDescriptor(d); err != nil {
		return err
	}
	key := d.Digest.String()
	if was, ok := w.blobs[key]; ok {
		if was.Size != d.Size {
			return corrupt(d, "it is named with %d and with %d bytes", was.Size, d.Size)
		}
		return nil
	}
	if len(w.blobs) == MaxBlobs {
		return corrupt(d, "there are more than %d blobs below one root", MaxBlobs)
	}
	w.blobs[key] = d
	return nil
}

// missing makes the absence of a child the incompleteness of its parent. That the
// root itself is not there stays NotFound.
func missing(err error, d ocispec.Descriptor, depth int) error {
	if depth == 0 || fault.ReasonOf(err) != fault.NotFound {
		return err
	}
	return &fault.Error{
		Reason: fault.Incomplete, Op: "read", Subject: d.Digest.String(),
		Hint: "copy the image with all its children again", Err: fmt.Errorf("a child of the index is not there: %w", err),
	}
}

// manifestForm is what an index and a manifest may have; nobody may have both.
type manifestForm struct {
	SchemaVersion int                  `json:"schemaVersion"`
	MediaType     string               `json:"mediaType"`
	ArtifactType  string               `json:"artifactType"`
	Manifests     []ocispec.Descriptor `json:"manifests"`
	Config        *ocispec.Descriptor  `json:"config"`
	Layers        []ocispec.Descriptor `json:"layers"`
	Subject       *ocispec.Descriptor  `json:"subject"`
	FSLayers      json.RawMessage      `json:"fsLayers"` // schema 1, refused
}

func decodeManifest(d ocispec.Descriptor, data []byte) (manifestForm, error) {
	var m manifestForm
	if err := json.Unmarshal(data, &m); err != nil {
		return m, corrupt(d, "it is not a manifest: %w", err)
	}
	switch {
	case m.SchemaVersion != 2:
		return m, corrupt(d, "its schema version %d is not 2; push the image again with a current tool", m.SchemaVersion)
	case m.MediaType != "" && m.MediaType != d.MediaType:
		return m, corrupt(d, "it says that it is %.100q, but is named as %q", m.MediaType, d.MediaType)
	case IsIndex(d.MediaType) && (m.Config != nil || m.Layers != nil || m.FSLayers != nil):
		return m, corrupt(d, "it is an image index and a manifest at once")
	case isManifest(d.MediaType) && (m.Manifests != nil || m.FSLayers != nil):
		return m, corrupt(d, "it is a manifest and an image index at once")
	case isManifest(d.MediaType) && m.Config == nil:
		return m, corrupt(d, "it is an image manifest without a config")
	}
	return m, nil
}

// parseManifest returns what an index or a manifest names.
func parseManifest(d ocispec.Descriptor, data []byte) (children, blobs []ocispec.Descriptor, err error) {
	m, err := decodeManifest(d, data)
	if err != nil {
		return nil, nil, err
	}
	if m.Config != nil {
		blobs = append(blobs, Plain(*m.Config))
	}
	for _, l := range m.Layers {
		blobs = append(blobs, Plain(l))
	}
	return m.Manifests, blobs, nil
}

// Attachment is a manifest about another one: a cosign signature, an attestation,
// an SBOM.
type Attachment struct {
	Subject image.Digest
	Tag     string // "sha256-<hex>.sig" and the like, or "" for a referrer
	Node    Node
	Blobs   []ocispec.Descriptor // each digest once, sorted; with Data where the maker has it
}

// MaxAttachmentData bounds what the blobs of an attachment may carry as Data.
const MaxAttachmentData = 16 << 20 // bytes

// ReadAttachment reads one attachment of a subject; d names its manifest, as a
// medium lists it, with the tag in org.opencontainers.image.ref.name.
func ReadAttachment(ctx context.Context, f Fetcher, subject image.Digest, d ocispec.Descriptor) (Attachment, error) {
	if !isManifest(d.MediaType) {
		return Attachment{}, corrupt(d, "an attachment of %s has the media type %.100q, which is not an image manifest", subject, d.MediaType)
	}
	data, err := Read(ctx, f, Plain(d), MaxManifestSize)
	if err != nil {
		return Attachment{}, missing(err, d, 1)
	}
	a, err := NewAttachment(subject, d.Annotations[ocispec.AnnotationRefName], Node{d, data})
	if err != nil {
		return Attachment{}, err
	}
	return a, nil
}

// NewAttachment makes an attachment of a manifest whose bytes are at hand. Data
// that blobs carries is kept with the blobs that the manifest names.
func NewAttachment(subject image.Digest, tag string, n Node, blobs ...ocispec.Descriptor) (Attachment, error) {
	m, err := decodeManifest(n.Descriptor, n.Data)
	if err != nil {
		return Attachment{}, err
	}
	if tag == "" && (m.Subject == nil || m.Subject.Digest.String() != subject.String()) {
		return Attachment{}, corrupt(n.Descriptor, "it is attached to %s without a tag, and its subject is another", subject)
	}
	w := newWalker(nil)
	_, named, err := parseManifest(n.Descriptor, n.Data)
	if err != nil {
		return Attachment{}, err
	}
	errs := make([]error, 0, len(named))
	for _, b := range named {
		errs = append(errs, w.blob(b))
	}
	if err := fault.Join(errs...); err != nil {
		return Attachment{}, err
	}
	for _, b := range blobs {
		if known, ok := w.blobs[b.Digest.String()]; ok {
			known.Data = b.Data
			w.blobs[b.Digest.String()] = known
		}
	}
	d := Plain(n.Descriptor)
	d.ArtifactType = m.ArtifactType
	if d.ArtifactType == "" && m.Subject != nil {
		d.ArtifactType = m.Config.MediaType // as the distribution specification has it
	}
	return Attachment{Subject: subject, Tag: tag, Node: Node{d, n.Data}, Blobs: w.sortedBlobs()}, nil
}

var errNoContents = errors.New("its first child is not the contents manifest")
