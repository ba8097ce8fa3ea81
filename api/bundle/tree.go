package bundle

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Bounds of input; larger input is refused.
const (
	MaxManifestSize  = 4 << 20  // bytes of one index or manifest, as registries bound it
	MaxManifestBytes = 64 << 20 // bytes of all indexes and manifests of one graph; as many of all its attachments
	MaxNodes         = 4096     // indexes and manifests of one graph; as many attachments
	MaxBlobs         = 65536    // configs and layers of one graph
	MaxEntries       = 131072   // descriptors in all indexes and manifests of one graph, counted again for each image
	MaxDepth         = 4        // an index in an index in an index in the root
	MaxBlobSize      = 1 << 40  // bytes of one blob
)

// Media types of the images that a bundle carries. The bundler never converts Docker's.
const (
	dockerIndexType    = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerManifestType = "application/vnd.docker.distribution.manifest.v2+json"
)

// IsIndex reports whether a media type is an image index.
func IsIndex(mediaType string) bool {
	return mediaType == ocispec.MediaTypeImageIndex || mediaType == dockerIndexType
}

func isManifest(mediaType string) bool {
	return mediaType == ocispec.MediaTypeImageManifest || mediaType == dockerManifestType
}

// IsManifest reports whether a media type is an index or an image manifest, which registries serve
// under /manifests/ rather than /blobs/.
func IsManifest(mediaType string) bool { return IsIndex(mediaType) || isManifest(mediaType) }

// Tree is one upstream image: an index with all its manifests, or one manifest.
type Tree struct {
	Reference image.Reference // set by the caller of ReadTree
	Root      ocispec.Descriptor
	Nodes     []Node               // indexes and manifests, children before parents, Root last
	Blobs     []ocispec.Descriptor // configs and layers, each digest once, sorted by digest
	// Ignored are index entries of unknown media types. Readers skip them (image specification,
	// "Image Index"), and the bundle does not carry them.
	Ignored []ocispec.Descriptor
}

// IsEmpty reports whether the tree has no image manifest: an index that names nothing to run.
func (t Tree) IsEmpty() bool {
	return !slices.ContainsFunc(t.Nodes, func(n Node) bool { return isManifest(n.Descriptor.MediaType) })
}

// ReadTree walks an upstream index or manifest within the bounds above, and verifies every byte. It
// reports the problems of all children together, each child once. A missing child is Incomplete. The
// root alone may bring its bytes as Data.
func ReadTree(ctx context.Context, f Fetcher, root ocispec.Descriptor) (Tree, error) {
	w := newWalker(f)
	w.walk(ctx, root, 0)
	if err := w.err("read", root); err != nil {
		return Tree{}, err
	}
	return Tree{Root: Plain(root), Nodes: w.nodes, Blobs: w.sortedBlobs(), Ignored: w.ignored}, nil
}

// Plain returns the attributes that identify content, without those that a parent adds.
func Plain(d ocispec.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, URLs: d.URLs}
}

// walker collects manifests and blobs, each once, over several walks, and the first problem of each
// digest. With a problem, the collection has gaps. Beyond a bound it stops reading.
type walker struct {
	f        Fetcher
	seen     map[digest.Digest]*visit // of manifests
	nodes    []Node
	blobs    map[digest.Digest]ocispec.Descriptor
	parts    map[digest.Digest]content
	bytes    int64
	entries  int
	ignored  []ocispec.Descriptor
	image    string // current image, for messages
	problems fault.List
	reported map[digest.Digest]bool
	full     error // the bound that was reached
}

// visit is a manifest as it was named first. It is open until all below it is read.
type visit struct {
	ocispec.Descriptor
	open bool
}

func newWalker(f Fetcher) *walker {
	return &walker{
		f: f, seen: map[digest.Digest]*visit{}, blobs: map[digest.Digest]ocispec.Descriptor{},
		parts: map[digest.Digest]content{}, reported: map[digest.Digest]bool{},
	}
}

func (w *walker) sortedBlobs() []ocispec.Descriptor {
	compare := func(a, b ocispec.Descriptor) int { return cmp.Compare(a.Digest, b.Digest) }
	return slices.SortedFunc(maps.Values(w.blobs), compare)
}

// report keeps the first problem of a digest; it ignores nil.
func (w *walker) report(d ocispec.Descriptor, err error) {
	if err == nil || w.reported[d.Digest] {
		return
	}
	w.reported[d.Digest] = true
	if w.image != "" {
		err = fmt.Errorf("image %s: %w", w.image, err)
	}
	w.problems.Add(err)
}

func (w *walker) exceed(format string, bound int) {
	w.full = fmt.Errorf(format+" below one root", bound)
}

func (w *walker) err(op string, root ocispec.Descriptor) error {
	err := w.problems.Join(op, root.Digest.String())
	if w.full != nil {
		err = fault.Join(corrupt(root, "there are more than %w", w.full), err)
	}
	return err
}

// walk reads a manifest and everything below it, unless it was read before.
func (w *walker) walk(ctx context.Context, d ocispec.Descriptor, depth int) {
	was, again := w.seen[d.Digest]
	switch {
	case w.full != nil:
	case again && was.open:
		w.report(d, corrupt(d, "an index contains itself"))
	case again && (was.Size != d.Size || was.MediaType != d.MediaType):
		w.report(d, corrupt(d, "it is named twice, with other size or media type"))
	case again:
	case len(w.seen) == MaxNodes:
		w.exceed("%d indexes and manifests", MaxNodes)
	default:
		now := &visit{d, true}
		w.seen[d.Digest] = now
		w.report(d, w.read(ctx, d, depth))
		now.open = false
	}
}

// read reads a manifest after it checked the descriptor, and then what the manifest names.
func (w *walker) read(ctx context.Context, d ocispec.Descriptor, depth int) error {
	if err := CheckDescriptor(d); err != nil {
		return err
	}
	if !IsManifest(d.MediaType) {
		return corrupt(d, "its media type %.100q is neither an image index nor an image manifest", d.MediaType)
	}
	if depth > MaxDepth {
		return corrupt(d, "indexes are nested deeper than %d", MaxDepth)
	}
	data, err := Read(ctx, w.f, d, MaxManifestSize)
	if err != nil {
		return missing(err, d, depth)
	}
	m, err := decodeManifest(d, data)
	if err != nil {
		return err
	}
	blobs, part := m.blobs(), content{size: d.Size}
	w.bytes, w.entries = w.bytes+d.Size, w.entries+len(m.Manifests)+len(blobs)
	switch {
	case w.bytes > MaxManifestBytes:
		w.exceed("%d bytes of manifests", MaxManifestBytes)
		return nil
	case w.entries > MaxEntries:
		w.exceed("%d entries of manifests", MaxEntries)
		return nil
	}
	for _, c := range m.Manifests {
		if !IsManifest(c.MediaType) && CheckDescriptor(c) == nil {
			w.ignored = append(w.ignored, Plain(c))
			continue
		}
		w.walk(ctx, Plain(c), depth+1)
		if was, ok := w.seen[c.Digest]; ok {
			part.names = append(part.names, was.Digest) // one string for each digest, to save memory
		}
	}
	for _, b := range blobs {
		w.blob(b)
		part.names = append(part.names, w.blobs[b.Digest].Digest)
	}
	w.nodes = append(w.nodes, Node{Plain(d), data})
	w.parts[d.Digest] = part
	return nil
}

// blob adds a config or layer.
func (w *walker) blob(d ocispec.Descriptor) {
	was, again := w.blobs[d.Digest]
	switch err := CheckDescriptor(d); {
	case err != nil:
		w.report(d, err)
	case again && was.Size != d.Size:
		w.report(d, corrupt(d, "it is named with %d and with %d bytes", was.Size, d.Size))
	case again:
	case len(w.blobs) == MaxBlobs:
		w.exceed("%d blobs", MaxBlobs)
	default:
		w.blobs[d.Digest] = d
	}
}

// missing turns the absence of a child into the incompleteness of its parent. A missing root stays NotFound.
func missing(err error, d ocispec.Descriptor, depth int) error {
	if depth == 0 || fault.ReasonOf(err) != fault.NotFound {
		return err
	}
	return fault.Errorf(fault.Incomplete, "read", d.Digest.String(), "push the bundle again, or copy the image with all its children",
		"a child of the index is not there: %w", err)
}

// manifestForm has the fields of an index and of a manifest; no document may have both.
type manifestForm struct {
	SchemaVersion int                 `json:"schemaVersion"`
	MediaType     string              `json:"mediaType"`
	ArtifactType  string              `json:"artifactType"`
	Manifests     entries             `json:"manifests"`
	Config        *ocispec.Descriptor `json:"config"`
	Layers        entries             `json:"layers"`
	Subject       *ocispec.Descriptor `json:"subject"`
	FSLayers      json.RawMessage     `json:"fsLayers"` // schema 1, refused
}

func decodeManifest(d ocispec.Descriptor, data []byte) (manifestForm, error) {
	var m manifestForm
	if err := json.Unmarshal(data, &m); err != nil {
		return m, corrupt(d, "it is not a manifest: %w", err)
	}
	switch {
	case m.SchemaVersion != 2:
		return m, corrupt(d, "its schema version %d is not 2; push the image again with a current tool",
			m.SchemaVersion)
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

// blobs returns the config and the layers.
func (m manifestForm) blobs() (out []ocispec.Descriptor) {
	if m.Config != nil {
		out = append(out, Plain(*m.Config))
	}
	for _, l := range m.Layers {
		out = append(out, Plain(l))
	}
	return out
}

// entries are descriptors, at most as many as a whole graph may name. An empty one takes three
// bytes of a manifest and a hundred times as much memory.
type entries []ocispec.Descriptor

// UnmarshalJSON decodes the descriptors one by one.
func (e *entries) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t == nil {
		return err
	} else if t != json.Delim('[') {
		return fmt.Errorf("%.20q is not a list", data)
	}
	*e = entries{}
	for dec.More() {
		var d ocispec.Descriptor
		if err := dec.Decode(&d); err != nil {
			return err
		}
		if *e = append(*e, d); len(*e) > MaxEntries {
			return fmt.Errorf("it has more than %d entries", MaxEntries)
		}
	}
	return nil
}

// Referrer is a manifest about another one: a cosign signature, an attestation, an SBOM.
type Referrer struct {
	Subject image.Digest
	Tag     string // "sha256-<hex>.sig" and the like, or "" for a referrer
	Node    Node
	Blobs   []ocispec.Descriptor // each digest once, sorted; with Data if its maker has it
}

// EvidenceType is the artifact type of a referrer that holds the upstream index of a manifest.
// EvidenceLayer is the media type of the index and of manifests of its signatures.
const (
	EvidenceType  = "application/vnd.vdo.evidence.v1"
	EvidenceLayer = "application/vnd.vdo.evidence.manifest.v1+json"
)

// MaxReferrerData bounds the Data of a referrer's blobs.
const MaxReferrerData = 16 << 20 // bytes

// ReadReferrer reads one referrer of a subject. d names its manifest as a store lists it, with the
// tag in org.opencontainers.image.ref.name.
func ReadReferrer(ctx context.Context, f Fetcher, subject image.Digest, d ocispec.Descriptor) (Referrer, error) {
	if !isManifest(d.MediaType) {
		return Referrer{}, corrupt(d,
			"a referrer of %s has the media type %.100q, which is not an image manifest", subject, d.MediaType)
	}
	data, err := Read(ctx, f, Plain(d), MaxManifestSize)
	if err != nil {
		return Referrer{}, missing(err, d, 1)
	}
	return NewReferrer(subject, d.Annotations[ocispec.AnnotationRefName], Node{d, data})
}

// NewReferrer returns the referrer of a manifest in memory. Blobs that the manifest names keep the Data given here.
func NewReferrer(subject image.Digest, tag string, n Node, blobs ...ocispec.Descriptor) (Referrer, error) {
	m, err := decodeManifest(n.Descriptor, n.Data)
	if err != nil {
		return Referrer{}, err
	}
	if tag == "" && (m.Subject == nil || m.Subject.Digest.String() != subject.String()) {
		return Referrer{}, corrupt(n.Descriptor, "it is attached to %s without a tag, and its subject is another",
			subject)
	}
	w := newWalker(nil)
	for _, b := range m.blobs() {
		w.blob(b)
	}
	if err := w.err("read", n.Descriptor); err != nil {
		return Referrer{}, err
	}
	for _, b := range blobs {
		if known, ok := w.blobs[b.Digest]; ok {
			known.Data = b.Data
			w.blobs[b.Digest] = known
		}
	}
	d := Plain(n.Descriptor)
	d.ArtifactType = m.ArtifactType
	if d.ArtifactType == "" && m.Subject != nil {
		d.ArtifactType = m.Config.MediaType // as the distribution specification says
	}
	return Referrer{Subject: subject, Tag: tag, Node: Node{d, n.Data}, Blobs: w.sortedBlobs()}, nil
}

// ReadReferrers reads a subject's referrers of one artifact type, or of none, with the bytes of
// their blobs: at most [MaxReferrerData] in all. It skips damaged, incomplete, forbidden and larger ones. Any
// other fault is an error, since a caller that misses a referrer would add it again.
func ReadReferrers(ctx context.Context, f Fetcher, subject image.Digest, attached []ocispec.Descriptor,
	artifactType string) ([]Referrer, error) {
	var out []Referrer
	left := int64(MaxReferrerData)
	for _, d := range attached {
		if d.Annotations[ocispec.AnnotationRefName] != "" || (d.ArtifactType != "" && d.ArtifactType != artifactType) {
			continue
		}
		a, err := ReadReferrer(ctx, f, subject, d)
		if err == nil {
			if left -= SizeOf(a.Blobs); left < 0 {
				break
			}
			err = a.Fill(ctx, f)
		}
		switch fault.ReasonOf(err) {
		case "":
			out = append(out, a)
		case fault.Corrupt, fault.Incomplete, fault.NotFound, fault.Unauthorized, fault.Forbidden:
		default:
			return nil, err
		}
	}
	return out, nil
}

// Fill reads the bytes of a referrer's blobs: at most [MaxReferrerData].
func (a Referrer) Fill(ctx context.Context, f Fetcher) (err error) {
	if SizeOf(a.Blobs) > MaxReferrerData {
		return corrupt(a.Node.Descriptor, "its blobs have more than %d bytes", MaxReferrerData)
	}
	for i, b := range a.Blobs {
		if a.Blobs[i].Data, err = Read(ctx, f, b, b.Size); err != nil {
			return missing(err, b, 1)
		}
	}
	return nil
}
