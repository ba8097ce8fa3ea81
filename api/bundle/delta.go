package bundle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/strictyaml"
)

// Annotations of the index.json of a delta.
const (
	AnnotationBase       = "vdo.vmware.com/base"
	AnnotationBaseLayers = "vdo.vmware.com/base.layers"
)

// Base names the layers that a delta omits, and the bundle that has them.
type Base struct {
	Root   image.Digest   // of the bundle that has the layers
	Layers []image.Digest // omitted: sorted, each once, at least one
}

// Annotations returns the annotations of the delta's index.json.
func (b *Base) Annotations() map[string]string {
	if b == nil {
		return nil
	}
	layers := make([]string, len(b.Layers))
	for i, l := range b.Layers {
		layers[i] = l.String()
	}
	return map[string]string{AnnotationBase: b.Root.String(), AnnotationBaseLayers: strings.Join(layers, " ")}
}

// ParseBase reads the output of Annotations. It returns nil if both annotations are missing: the
// index.json of a whole bundle.
func ParseBase(annotations map[string]string) (*Base, error) {
	root, isDelta := annotations[AnnotationBase]
	text, hasLayers := annotations[AnnotationBaseLayers]
	if !isDelta && !hasLayers {
		return nil, nil
	}
	if len(text) > MaxBlobs*len(" sha256:")*10 {
		return nil, fmt.Errorf("%s names more than %d layers", AnnotationBaseLayers, MaxBlobs)
	}
	b := &Base{}
	var err error
	if b.Root, err = image.ParseDigest(root); err != nil {
		return nil, fmt.Errorf("%s %.100q is not a digest", AnnotationBase, root)
	}
	for _, s := range strings.Split(text, " ") {
		d, err := image.ParseDigest(s)
		if err != nil {
			return nil, fmt.Errorf("%s names %.100q, which is not a digest", AnnotationBaseLayers, s)
		}
		if n := len(b.Layers); n > 0 && b.Layers[n-1].String() >= d.String() {
			return nil, fmt.Errorf("%s is not sorted, or names a layer twice: %s", AnnotationBaseLayers, d)
		}
		b.Layers = append(b.Layers, d)
	}
	return b, nil
}

// Without returns the base of a delta of this graph: the layers of its images that has reports,
// expected from the bundle root. It returns nil if there are none.
func (g *Graph) Without(root image.Digest, has func(image.Digest) bool) *Base {
	b, isLayer := &Base{Root: root}, g.isLayer()
	for _, d := range g.Blobs {
		if digest := DigestOf(d); isLayer(d) && has(digest) {
			b.Layers = append(b.Layers, digest)
		}
	}
	if len(b.Layers) == 0 {
		return nil
	}
	return b
}

// OmitFor makes the graph that of a delta: [Graph.Order] omits the base's layers. It returns a
// fault if the base omits anything but layers of the graph's images.
func (g *Graph) OmitFor(b *Base) error {
	if b == nil {
		g.Base = nil
		return nil
	}
	known, isLayer := map[string]bool{}, g.isLayer()
	for _, d := range g.Blobs {
		known[d.Digest.String()] = isLayer(d)
	}
	for _, l := range b.Layers {
		if !known[l.String()] {
			return fault.Errorf(fault.Corrupt, "read delta of", g.Root.Digest.String(),
				"copy it again from where it was made", "it leaves %s to its base, and that is not a layer of its images", l)
		}
	}
	g.Base = b
	return nil
}

// RefuseDelta returns a fault if the graph omits layers, for callers that need every layer. op is
// the caller's operation.
func (g *Graph) RefuseDelta(op, hint string) error {
	if g.Base == nil {
		return nil
	}
	return fault.Errorf(fault.Refused, op, g.Root.Digest.String(), hint,
		"it is a delta: %d layers are omitted, expected from base %s", len(g.Base.Layers), g.Base.Root)
}

// Omitted returns the layers expected from the base, sorted by digest.
func (g *Graph) Omitted() []ocispec.Descriptor { return g.blobs(true) }

// Held returns the blobs not expected from a base, sorted by digest.
func (g *Graph) Held() []ocispec.Descriptor { return g.blobs(false) }

func (g *Graph) blobs(left bool) (out []ocispec.Descriptor) {
	isLeft := map[string]bool{}
	if g.Base != nil {
		for _, l := range g.Base.Layers {
			isLeft[l.String()] = true
		}
	}
	for _, b := range g.Blobs {
		if isLeft[b.Digest.String()] == left {
			out = append(out, b)
		}
	}
	return out
}

// Omitted sums up the omitted base layers of a delta.
type Omitted struct {
	Base   image.Digest `json:"base"` // root of the bundle that has the layers
	Layers int          `json:"layers"`
	Bytes  int64        `json:"bytes"`
}

// OmittedList sums up the omitted base layers; nil for a whole bundle.
func (g *Graph) OmittedList() *Omitted {
	if g.Base == nil {
		return nil
	}
	left := g.Omitted()
	return &Omitted{Base: g.Base.Root, Layers: len(left), Bytes: SizeOf(left)}
}

// Values of apiVersion and kind in a receipt.
const (
	ReceiptAPIVersion = "vdo.vmware.com/receipt/v1"
	ReceiptKind       = "PushReceipt"
	MaxReceiptSize    = 4 << 20 // bytes
	MaxReceiptBlobs   = 20_000  // per list
)

// Receipt is the inventory of a repository after a push.
type Receipt struct {
	APIVersion string        `json:"apiVersion"` // vdo.vmware.com/receipt/v1
	Kind       string        `json:"kind"`       // PushReceipt
	Repository string        `json:"repository"` // HOST/PATH, normalised, without tag and digest
	Root       image.Digest  `json:"root"`
	Blobs      []ReceiptBlob `json:"blobs"` // configs and layers, sorted by digest, each once
}

// ReceiptBlob is one blob of a receipt.
type ReceiptBlob struct {
	Digest image.Digest `json:"digest"`
	Size   int64        `json:"size"` // bytes
}

// NewReceipt returns the receipt of a pushed graph.
func NewReceipt(repository string, g *Graph) *Receipt {
	r := &Receipt{
		APIVersion: ReceiptAPIVersion, Kind: ReceiptKind, Repository: repository, Root: DigestOf(g.Root),
		Blobs: make([]ReceiptBlob, 0, len(g.Blobs)),
	}
	for _, b := range g.Blobs {
		r.Blobs = append(r.Blobs, ReceiptBlob{DigestOf(b), b.Size})
	}
	return r
}

// JSON returns the receipt as a file, one line per value. It refuses a receipt that ParseReceipt could not read.
func (r *Receipt) JSON() ([]byte, error) {
	if len(r.Blobs) > MaxReceiptBlobs {
		return nil, fault.Errorf(fault.Refused, "write receipt", r.Repository,
			"use the bundle itself as the base of a delta", "there are %d blobs, more than %d", len(r.Blobs), MaxReceiptBlobs)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	return append(data, '\n'), err
}

// Has reports whether the receipt names a blob.
func (r *Receipt) Has(d image.Digest) bool {
	_, ok := slices.BinarySearchFunc(r.Blobs, d.String(), func(b ReceiptBlob, want string) int {
		return cmp.Compare(b.Digest.String(), want)
	})
	return ok
}

// ParseReceipt reads a receipt; name is for messages. It is as strict as [ParseLock].
func ParseReceipt(name string, data []byte) (*Receipt, error) {
	r := &Receipt{}
	if err := receiptFormat.Load(name, data, r, r.check); err != nil {
		return nil, err
	}
	return r, nil
}

var receiptFormat = strictyaml.Format{
	Op: "read receipt", APIVersion: ReceiptAPIVersion, Kind: ReceiptKind, Limit: MaxReceiptSize,
	Hint: "name what `vdo-bundle push --receipt` wrote, unchanged",
}

func (r *Receipt) check(c *strictyaml.Check) {
	ref, err := image.ParseReference(r.Repository)
	c.Require(err == nil && ref.Repository() == r.Repository, "repository", "%.200q is not HOST/PATH", r.Repository)
	c.Require(!r.Root.IsZero(), "root", "there is no digest")
	c.Require(len(r.Blobs) > 0, "blobs", "there is none")
	c.Require(len(r.Blobs) <= MaxReceiptBlobs, "blobs", "there are %d, more than %d", len(r.Blobs), MaxReceiptBlobs)
	for i, b := range r.Blobs {
		key := fmt.Sprintf("blobs[%d]", i)
		c.Require(!b.Digest.IsZero(), key+".digest", "there is no digest")
		c.Require(b.Size >= 0 && b.Size <= MaxBlobSize, key+".size", "%d bytes cannot be", b.Size)
		c.Require(i == 0 || r.Blobs[i-1].Digest.String() < b.Digest.String(), key, "it is not sorted, or there twice")
	}
}
