package bundle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Owners says of everything in a graph which images it is part of, or attached to, so
// that a message can say what a digest is.
type Owners map[digest.Digest][]string

// ContentsName is what Owners calls the parts of a bundle that are of no image.
const ContentsName = "the bundle's contents"

// Owners finds the images of every manifest and blob.
func (g *Graph) Owners() Owners {
	o := Owners{}
	add := func(d digest.Digest, name string) {
		for below := range g.reach(d) {
			o[below] = append(o[below], name)
		}
	}
	if names := g.parts[g.Root.Digest].names; len(names) > 0 {
		add(names[0], ContentsName)
	}
	for _, im := range g.images {
		add(im.Digest, im.Annotations[AnnotationReference])
	}
	for _, a := range g.Attachments { // after what they are about
		o.attached(a)
	}
	return o
}

// attached marks what is attached to something, or to what is attached to that.
func (o Owners) attached(a Attachment) {
	name := attachmentOf + "the bundle"
	if owners := o[digest.Digest(a.Subject.String())]; len(owners) > 0 {
		name = owners[0]
		if !strings.HasPrefix(name, attachmentOf) {
			name = attachmentOf + name
		}
	}
	for _, d := range append([]ocispec.Descriptor{a.Node.Descriptor}, a.Blobs...) {
		if !slices.Contains(o[d.Digest], name) {
			o[d.Digest] = append(o[d.Digest], name)
		}
	}
}

const attachmentOf = "an attachment of "

// Name describes a part: "layer of registry.k8s.io/csi-vsphere/driver:v3.5.1".
func (o Owners) Name(d ocispec.Descriptor) string {
	return fmt.Sprintf("%s of %s", part(d.MediaType), strings.Join(o.few(d), ", "))
}

// few returns the images that a part belongs to, shortened to three.
func (o Owners) few(d ocispec.Descriptor) []string {
	names := slices.Sorted(slices.Values(o[d.Digest]))
	switch {
	case len(names) == 0:
		return []string{"the bundle"}
	case len(names) > 3:
		return append(names[:2], fmt.Sprintf("%d more images", len(names)-2))
	}
	return names
}

func part(mediaType string) string {
	switch {
	case IsIndex(mediaType):
		return "index"
	case strings.Contains(mediaType, "manifest.v"):
		return "manifest"
	case strings.Contains(mediaType, "config") || strings.Contains(mediaType, "container.image.v1"):
		return "configuration"
	case strings.Contains(mediaType, "layer") || strings.Contains(mediaType, "rootfs"):
		return "layer"
	}
	return "part"
}
