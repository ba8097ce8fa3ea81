package bundler

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
)

// ownership says which images a manifest or blob belongs to, by digest.
type ownership map[string][]string

// owners finds for everything in a graph the images that it is part of, so that a
// message can say what a digest is.
func owners(g *bundle.Graph) ownership {
	nodes := map[string]bundle.Node{}
	for _, n := range g.Manifests {
		nodes[n.Descriptor.Digest.String()] = n
	}
	o := ownership{}
	root := nodes[g.Root.Digest.String()]
	for _, child := range children(root.Data) {
		name := child.Annotations[bundle.AnnotationReference]
		if name == "" {
			name = "the bundle's contents"
		}
		o.mark(nodes, child, name)
	}
	return o
}

func (o ownership) mark(nodes map[string]bundle.Node, d ocispec.Descriptor, name string) {
	key := d.Digest.String()
	if slices.Contains(o[key], name) {
		return
	}
	o[key] = append(o[key], name)
	if n, ok := nodes[key]; ok {
		for _, child := range children(n.Data) {
			o.mark(nodes, child, name)
		}
	}
}

// children returns what an index or manifest names. What cannot be read names nothing.
func children(data []byte) []ocispec.Descriptor {
	var m struct {
		Manifests []ocispec.Descriptor `json:"manifests"`
		Config    *ocispec.Descriptor  `json:"config"`
		Layers    []ocispec.Descriptor `json:"layers"`
	}
	if json.Unmarshal(data, &m) != nil {
		return nil
	}
	out := slices.Concat(m.Manifests, m.Layers)
	if m.Config != nil {
		out = append(out, *m.Config)
	}
	return out
}

// artifactType returns what an index says that it is, or "".
func artifactType(data []byte) string {
	var m struct {
		ArtifactType string `json:"artifactType"`
	}
	_ = json.Unmarshal(data, &m) // what cannot be read says nothing
	return m.ArtifactType
}

// of names a descriptor: "layer of registry.k8s.io/csi-vsphere/driver:v3.5.1".
func (o ownership) of(d ocispec.Descriptor) string {
	return fmt.Sprintf("%s of %s", part(d.MediaType), strings.Join(o.images(d), ", "))
}

// images returns the images that a descriptor belongs to, shortened to three.
func (o ownership) images(d ocispec.Descriptor) []string {
	names := slices.Clone(o[d.Digest.String()])
	slices.Sort(names)
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
	case isIndex(mediaType):
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
