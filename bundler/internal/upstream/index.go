package upstream

import (
	"context"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
)

// index is the upstream index of an image of which some platforms were kept: a signature of
// the index is one of their manifests, which the index names.
type index struct {
	*sameList
	of       bundle.Image
	digest   image.Digest
	data     []byte
	attached []ocispec.Descriptor
}

// readIndex reads the index that the lock names, and demands that it names the image. It
// returns nil where the lock names none, and where a mirror has the platform's manifest alone.
func (a *attachedReader) readIndex(ctx context.Context, i bundle.Image) (*index, error) {
	d, ok := i.Index()
	if !ok {
		return nil, nil
	}
	x := &index{sameList: &sameList{Source: a.in.Registry(i.Source.Pin(d))}, of: i, digest: d}
	var err error
	if x.data, err = readIndexOf(ctx, x, d); err == nil {
		err = a.reader.Room([]ocispec.Descriptor{{Digest: digest.Digest(d.String()), Size: int64(len(x.data))}})
	}
	names := false
	if err == nil {
		names, err = a.names(ctx, x, i)
	}
	switch {
	case fault.ReasonOf(err) == fault.NotFound:
		a.options.Reporter().Say(fmt.Sprintf("left out: the index %s of %s, which is not there", d, i.Reference))
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("image %s: %w", i.Reference, err)
	case !names:
		return nil, notOf(d, i)
	}
	if a.in.Policy != nil || a.in.carries() {
		x.attached, err = x.Attachments(ctx, d)
	}
	return x, err
}

// readIndexOf reads the index that a source names.
func readIndexOf(ctx context.Context, s medium.Source, d image.Digest) ([]byte, error) {
	root, err := s.Root(ctx)
	if err != nil {
		return nil, err
	}
	root.Digest = digest.Digest(d.String())
	return bundle.Read(ctx, s, bundle.Plain(root), bundle.MaxManifestSize)
}

// names tells whether an index names the manifest of the lock, or comes to the index that the
// lock has of some of its platforms.
func (a *attachedReader) names(ctx context.Context, x *index, i bundle.Image) (bool, error) {
	if bundle.IsIndex(i.MediaType) {
		kept, err := comesTo(ctx, x, x.data, i, a.in.Lock.Platforms)
		return kept != nil, err
	}
	return slices.ContainsFunc((bundle.Node{Data: x.data}).Children(), func(n ocispec.Descriptor) bool {
		return n.Digest.String() == i.Digest.String() && n.Size == i.Size && n.MediaType == i.MediaType
	}), nil
}

func notOf(index image.Digest, i bundle.Image) error {
	return fault.Errorf(fault.Corrupt, "read index of", i.Reference.String(), "make a new lock with `vdo-bundle lock`",
		"the index %s does not name the manifest %s of the lock", index, i.Digest)
}

// evidence is the index as it travels, with what is attached to it where that travels too.
func (a *attachedReader) evidence(ctx context.Context, x *index) (bundle.Attachment, error) {
	layers := []ocispec.Descriptor{bundle.Blob(bundle.EvidenceLayer, x.data)}
	if a.in.carries() {
		attached, err := a.reader.Read(ctx, x, x.digest, x.attached)
		if err != nil {
			return bundle.Attachment{}, err
		}
		for _, s := range attached {
			layers = append(append(layers, bundle.Blob(bundle.EvidenceLayer, s.Node.Data)), s.Blobs...)
		}
	}
	config := ocispec.DescriptorEmptyJSON
	subject := x.of.Descriptor()
	m := ocispec.Manifest{ArtifactType: bundle.EvidenceType, Config: bundle.Plain(config), Subject: &subject}
	for _, l := range layers {
		if !slices.ContainsFunc(m.Layers, func(o ocispec.Descriptor) bool { return o.Digest == l.Digest }) {
			m.Layers = append(m.Layers, bundle.Plain(l))
		}
	}
	return bundle.NewAttachment(x.of.Digest, "", bundle.NewManifest(m), append(layers, config)...)
}
