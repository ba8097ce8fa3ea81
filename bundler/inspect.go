package bundler

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Inspection is what a bundle says of itself. Nothing of it is proven: see [Verify].
type Inspection struct {
	Root       image.Digest       `json:"root"`
	Bytes      int64              `json:"bytes"`
	Blobs      int                `json:"blobs"`
	Platforms  []image.Platform   `json:"platforms"` // that were asked for when it was made
	Matrix     InspectedMatrix    `json:"matrix"`
	Releases   []InspectedRelease `json:"releases"`
	Images     []InspectedImage   `json:"images"`
	Signatures []Signature        `json:"signatures"`
	Left       *bundle.LeftOut    `json:"leftToBase,omitempty"` // of a delta: what is not there
}

// InspectedMatrix is the matrix document of a bundle.
type InspectedMatrix struct {
	Serial  int64        `json:"serial"`
	Digest  image.Digest `json:"digest"`
	Issued  time.Time    `json:"issued"`
	Expires time.Time    `json:"expires"`
	Expired bool         `json:"expired"`
	Signed  bool         `json:"signed"` // there is a signature; whose is not checked
}

// InspectedRelease is one driver release.
type InspectedRelease struct {
	Driver     matrix.Driver  `json:"driver"`
	Version    matrix.Version `json:"version"`
	State      matrix.State   `json:"state,omitempty"`
	Kubernetes string         `json:"kubernetes,omitempty"`
	VSphere    string         `json:"vSphere,omitempty"`
	Manifests  []string       `json:"manifests"`
	Images     int            `json:"images"`
}

// InspectedImage is one image.
type InspectedImage struct {
	Reference image.Reference `json:"reference"`
	Digest    image.Digest    `json:"digest"`
	Platforms []string        `json:"platforms"`
	Bytes     int64           `json:"bytes"` // of its manifests, configurations and layers
	UsedBy    []string        `json:"usedBy"`
	Source    string          `json:"source,omitempty"`   // where it was taken from, if elsewhere
	Reason    string          `json:"reason,omitempty"`   // why
	Attached  []Signature     `json:"attached,omitempty"` // upstream's signatures, attestations, SBOMs
}

// Signature is something attached to the root.
type Signature struct {
	Digest image.Digest `json:"digest"`
	Tag    string       `json:"tag,omitempty"`  // cosign's tag, where it is under one
	Type   string       `json:"type,omitempty"` // artifact type of a referrer
}

// Inspect reads what a bundle says of itself.
func Inspect(ctx context.Context, b *Bundle, o Options) (*Inspection, error) {
	d, err := b.describe(ctx)
	if err != nil {
		return nil, err
	}
	return d.inspect(ctx, b, o)
}

func (d *opened) inspect(ctx context.Context, s Source, o Options) (*Inspection, error) {
	g, c, doc := d.graph, d.contents, d.matrix
	i := &Inspection{Root: d.root, Bytes: g.Size(), Blobs: len(g.Blobs), Platforms: c.Lock.Platforms, Left: g.LeftOut()}
	i.Matrix = InspectedMatrix{
		Serial: doc.Serial, Digest: c.Lock.Matrix.Digest, Issued: doc.Issued, Expires: doc.Expires,
		Expired: !o.now().Before(doc.Expires), Signed: len(c.MatrixSignature) > 0,
	}
	i.Releases = inspectReleases(c.Lock, doc)
	i.Images = inspectImages(ctx, s, g, c.Lock)
	var err error
	if i.Signatures, err = inspectSignatures(ctx, s, i.Root); err != nil {
		return i, err
	}
	return i, i.beside(ctx, s, o)
}

// beside finds what travels with the images.
func (i *Inspection) beside(ctx context.Context, s Source, o Options) error {
	return forEach(ctx, o.limit(), len(i.Images), func(n int) error {
		var err error
		i.Images[n].Attached, err = inspectSignatures(ctx, s, i.Images[n].Digest)
		return err
	})
}

func inspectReleases(lock *bundle.Lock, doc *matrix.Document) []InspectedRelease {
	out := make([]InspectedRelease, 0, len(lock.Releases))
	for _, r := range lock.Releases {
		ir := InspectedRelease{Driver: r.Driver, Version: r.Version, Images: len(r.Images)}
		for _, f := range r.Manifests {
			ir.Manifests = append(ir.Manifests, f.Name)
		}
		for _, listed := range doc.Releases {
			if listed.Driver == r.Driver && listed.Version.Equal(r.Version) {
				ir.State, ir.Kubernetes, ir.VSphere = listed.State, listed.Kubernetes.String(), listed.VSphere.String()
			}
		}
		out = append(out, ir)
	}
	return out
}

func inspectImages(ctx context.Context, s Source, g *bundle.Graph, lock *bundle.Lock) []InspectedImage {
	nodes := map[string]bundle.Node{}
	for _, n := range g.Manifests {
		nodes[n.Descriptor.Digest.String()] = n
	}
	out := make([]InspectedImage, 0, len(lock.Images))
	for _, i := range lock.Images {
		out = append(out, InspectedImage{
			Reference: i.Reference, Digest: i.Digest, Bytes: g.SizeBelow(i.Descriptor()), Platforms: platforms(ctx, s, nodes, nodes[i.Digest.String()]),
			UsedBy: i.UsedBy, Source: i.Source.String(), Reason: i.Reason,
		})
	}
	return out
}

// platforms lists what an image runs on: from its index, and where that does not
// say it from configurations.
func platforms(ctx context.Context, s Source, nodes map[string]bundle.Node, n bundle.Node) []string {
	out := []string{}
	if bundle.IsIndex(n.Descriptor.MediaType) {
		for _, d := range n.Children() {
			p := d.Platform
			if p == nil {
				if said, ok := configured(ctx, s, nodes[d.Digest.String()].Data); ok {
					p = &said
				}
			}
			if p != nil && p.OS != "unknown" {
				out = append(out, platform(*p))
			}
		}
	} else if p, ok := configured(ctx, s, n.Data); ok {
		out = append(out, platform(p))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func platform(p ocispec.Platform) string {
	return image.Platform{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant}.String()
}

// configured reads the platform of an image's configuration.
func configured(ctx context.Context, f bundle.Fetcher, manifest []byte) (ocispec.Platform, bool) {
	var m ocispec.Manifest
	var p ocispec.Platform
	if json.Unmarshal(manifest, &m) != nil {
		return p, false
	}
	data, err := bundle.Read(ctx, f, m.Config, maxImageConfig)
	if err != nil || json.Unmarshal(data, &p) != nil {
		return p, false
	}
	return p, p.OS != "" && p.Architecture != ""
}

func inspectSignatures(ctx context.Context, s Source, root image.Digest) ([]Signature, error) {
	attached, err := s.Attachments(ctx, root)
	out := []Signature{}
	for _, d := range attached {
		digest, err := image.ParseDigest(d.Digest.String())
		if err != nil {
			return nil, err
		}
		out = append(out, Signature{Digest: digest, Tag: d.Annotations[ocispec.AnnotationRefName], Type: d.ArtifactType})
	}
	return out, err
}
