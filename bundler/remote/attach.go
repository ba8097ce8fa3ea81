package remote

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const opAttach = "attach"

// Attach adds signatures, or what else is about an image, to the repository, one after
// the other. The subject has to be there, and so have blobs that do not carry their data.
func (r *Repository) Attach(ctx context.Context, atts ...bundle.Attachment) error {
	for _, a := range atts {
		if err := r.attach(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

func (r *Repository) attach(ctx context.Context, a bundle.Attachment) error {
	subject := r.At(a.Subject.String())
	_, found, err := r.Stat(ctx, Look{Op: opAttach, Subject: subject, ID: a.Subject.String(), Access: r.Pushes()})
	if err != nil {
		return err
	}
	if !found {
		return &fault.Error{
			Reason: fault.NotFound, Op: opAttach, Subject: subject,
			Hint: "push the bundle before its signature", Err: errors.New("the registry does not have it"),
		}
	}
	for _, b := range a.Blobs {
		if err := r.attachBlob(ctx, b); err != nil {
			return err
		}
	}
	if err := r.putAttachment(ctx, a); err != nil {
		return err
	}
	return r.keptAttachment(ctx, a)
}

// keptAttachment is a fault where what was attached is not there afterwards, because
// the registry did not keep it or because somebody else wrote the tag meanwhile.
func (r *Repository) keptAttachment(ctx context.Context, a bundle.Attachment) error {
	id, want := a.Tag, ocispec.Descriptor{}
	if id == "" {
		id, want = a.Node.Descriptor.Digest.String(), a.Node.Descriptor
	}
	if err := r.resolves(ctx, id, want); err != nil {
		return err
	}
	var m ocispec.Manifest
	if err := decode(a.Node.Data, &m); err != nil {
		return err
	}
	if a.Tag == "" {
		if err := r.wantKept(ctx, append(m.Layers, m.Config)); err != nil {
			return err
		}
		_, err := r.EnsureListed(ctx, opAttach, a.Subject, a.Node) // somebody else may have written the list meanwhile
		return err
	}
	there, data, err := r.underTag(ctx, a.Tag)
	if err != nil {
		return err
	}
	if len(lacking(there.Layers, m.Layers)) > 0 || data == nil {
		return &fault.Error{
			Reason: fault.Conflict, Op: opAttach, Subject: r.At(a.Tag), Hint: "run it again",
			Err: errors.New("somebody else wrote the tag at the same time, without what was attached"),
		}
	}
	return r.wantKept(ctx, append(m.Layers, there.Config)) // that of ours is gone where they were joined
}

// underTag reads the manifest that a tag names; no data where there is none.
func (r *Repository) underTag(ctx context.Context, tag string) (m ocispec.Manifest, data []byte, err error) {
	d, found, err := r.Stat(ctx, Look{Op: opAttach, ID: tag, Access: r.Pushes()})
	if err != nil || !found {
		return m, nil, err
	}
	if data, err = r.Manifest(ctx, d); err != nil {
		return m, nil, err
	}
	return m, data, decode(data, &m)
}

func (r *Repository) attachBlob(ctx context.Context, b ocispec.Descriptor) error {
	there, err := r.has(ctx, b, r.Pushes())
	if err != nil || there {
		return err
	}
	if int64(len(b.Data)) != b.Size {
		return &fault.Error{
			Reason: fault.Incomplete, Op: opAttach, Subject: r.At(b.Digest.String()),
			Hint: "sign it again", Err: errors.New("a part of the signature is not at hand"),
		}
	}
	return r.Put(ctx, b, bytesOf(b.Data))
}

// putAttachment writes an attachment's manifest so that it is found: under its
// tag, or listed as a referrer.
func (r *Repository) putAttachment(ctx context.Context, a bundle.Attachment) error {
	if a.Tag != "" {
		return r.putUnderTag(ctx, a)
	}
	if err := r.putReferrer(ctx, a.Node); err != nil {
		return err
	}
	kept, err := r.EnsureListed(ctx, opAttach, a.Subject, a.Node)
	if p := r.begun(); p != nil && kept {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.listed[a.Subject] = append(p.listed[a.Subject], a.Node)
	}
	return err
}

// putReferrer writes a referrer's manifest. An earlier push that wrote the root may have
// written it too, and got no further: then it is asked for first, so that nothing is written
// twice, or after the tag.
func (r *Repository) putReferrer(ctx context.Context, n bundle.Node) error {
	digest := n.Descriptor.Digest.String()
	if p := r.begun(); p != nil && !p.lacking(p.graph.Root.Digest.String()) {
		d, found, err := r.Stat(ctx, Look{Op: opPush, ID: digest, Access: r.Pushes()})
		if err != nil || (found && d.Digest == n.Descriptor.Digest) {
			return err
		}
	}
	return r.putManifest(ctx, digest, n)
}

// putUnderTag writes under a tag without taking away what others put there: a
// site's own signature stays when upstream's arrives. The specification knows no lock
// for that, so the tag is looked at again right before what is there is replaced.
func (r *Repository) putUnderTag(ctx context.Context, a bundle.Attachment) error {
	for range listAttempts {
		there, found, err := r.Stat(ctx, Look{Op: opAttach, ID: a.Tag, Access: r.Pushes()})
		if err != nil {
			return err
		}
		if !found {
			return r.putManifest(ctx, a.Tag, a.Node)
		}
		node, err := r.joined(ctx, a, there)
		if err != nil || node.Data == nil {
			return err
		}
		now, found, err := r.Stat(ctx, Look{Op: opAttach, ID: a.Tag, Access: r.Pushes()})
		if err != nil {
			return err
		}
		if found && now.Digest == there.Digest {
			return r.putManifest(ctx, a.Tag, node)
		}
	}
	return &fault.Error{
		Reason: fault.Conflict, Op: opAttach, Subject: r.At(a.Tag), Hint: "run it again",
		Err: errors.New("others wrote the tag again and again at the same time"),
	}
}

// joined is the manifest that has what is under the tag and what is attached, and its
// configuration is there; without data where nothing has to be written.
func (r *Repository) joined(ctx context.Context, a bundle.Attachment, there ocispec.Descriptor) (bundle.Node, error) {
	if there.Digest == a.Node.Descriptor.Digest {
		return bundle.Node{}, nil
	}
	data, err := r.Manifest(ctx, there)
	if err != nil {
		return bundle.Node{}, err
	}
	lost, err := r.lostConfig(ctx, data)
	if err != nil {
		return bundle.Node{}, err
	}
	node, config, err := merge(a.Node, data, lost)
	if err != nil {
		return bundle.Node{}, &fault.Error{
			Reason: fault.Conflict, Op: opAttach, Subject: r.At(a.Tag),
			Hint: "delete the tag if it is not needed", Err: err,
		}
	}
	if node.Data == nil || config == nil {
		return node, nil
	}
	return node, r.attachBlob(ctx, blob(ocispec.MediaTypeImageConfig, config))
}

// lostConfig tells whether the configuration that a manifest names is not there: nobody
// has what was made when attachments were joined, so it has to be made again.
func (r *Repository) lostConfig(ctx context.Context, manifest []byte) (bool, error) {
	config, ok := namedConfig(manifest)
	if !ok {
		return false, nil // merge says what it cannot be joined with
	}
	found, err := r.has(ctx, config, r.Pushes())
	return !found, err
}

// namedConfig returns the configuration that a manifest names, if that can be read.
func namedConfig(manifest []byte) (config ocispec.Descriptor, ok bool) {
	var m ocispec.Manifest
	ok = decode(manifest, &m) == nil && bundle.CheckDescriptor(m.Config) == nil
	return m.Config, ok
}

func blob(mediaType string, data []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: godigest.FromBytes(data), Size: int64(len(data)), Data: data}
}

// merge returns the manifest with the layers of ours and of theirs, and the new
// configuration that it names; ours itself where it has all of theirs; and a node
// without data where theirs has all of ours and its configuration is not lost. Each
// layer of such a manifest is a statement of its own; the manifest is only their list
// and is not signed.
func merge(ours bundle.Node, theirs []byte, lost bool) (node bundle.Node, config []byte, err error) {
	var a, b ocispec.Manifest
	if err := errors.Join(decode(ours.Data, &a), decode(theirs, &b)); err != nil {
		return node, nil, err
	}
	added := lacking(a.Layers, b.Layers)
	switch {
	case len(a.Layers) == 0 || len(b.Layers) == 0:
		return node, nil, errors.New("another manifest is under the tag, and they cannot be joined")
	case len(lacking(b.Layers, a.Layers)) == 0 && !lost:
		return node, nil, nil
	case len(added) == 0:
		return ours, nil, nil
	}
	a.Layers = append(slices.Clone(b.Layers), lacking(b.Layers, a.Layers)...)
	if config, err = json.Marshal(configOf(a.Layers)); err != nil {
		return node, nil, err
	}
	a.Config = blob(ocispec.MediaTypeImageConfig, config)
	a.Config.Data = nil
	data, err := json.Marshal(a)
	if err != nil {
		return node, nil, err
	}
	d := blob(ours.Descriptor.MediaType, data)
	d.Data = nil
	return bundle.Node{Descriptor: d, Data: data}, config, nil
}

// lacking returns the layers of b that a lacks. The same payload under another
// signature, or with another certificate or time stamp, is another layer: those are
// in the annotations.
func lacking(a, b []ocispec.Descriptor) []ocispec.Descriptor {
	same := func(x, y ocispec.Descriptor) bool {
		return x.Digest == y.Digest && maps.Equal(x.Annotations, y.Annotations)
	}
	var out []ocispec.Descriptor
	for _, l := range b {
		if !slices.ContainsFunc(a, func(x ocispec.Descriptor) bool { return same(x, l) }) {
			out = append(out, l)
		}
	}
	return out
}

// configOf makes the configuration that cosign writes beside such layers: they are
// not compressed, so their digests are the diff IDs.
func configOf(layers []ocispec.Descriptor) ocispec.Image {
	img := ocispec.Image{RootFS: ocispec.RootFS{Type: "layers"}}
	for _, l := range layers {
		img.RootFS.DiffIDs = append(img.RootFS.DiffIDs, l.Digest)
		img.History = append(img.History, ocispec.History{Created: &time.Time{}})
	}
	return img
}
