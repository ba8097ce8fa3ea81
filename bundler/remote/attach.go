package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const opAttach = "attach"

// Attach adds signatures, or what else is about an image, to the repository, one after
// the other. The subject has to be there, and so have blobs that do not carry their data.
func (r *Repository) Attach(ctx context.Context, atts ...bundle.Referrer) error {
	p := newPush(&bundle.Graph{Attachments: atts}, nil)
	for _, a := range atts {
		if err := r.attach(ctx, p, a); err != nil {
			return err
		}
	}
	return r.confirm(ctx, p)
}

func (r *Repository) attach(ctx context.Context, p *push, a bundle.Referrer) error {
	subject := r.At(a.Subject.String())
	_, found, err := r.Stat(ctx, Look{Op: opAttach, Subject: subject, ID: a.Subject.String(), Access: r.Pushes()})
	if err != nil {
		return err
	}
	if !found {
		return notFound(opAttach, subject, "push the bundle before its signature")
	}
	for _, b := range a.Blobs {
		if err := r.attachBlob(ctx, p, b); err != nil {
			return err
		}
	}
	return r.uploadReferrer(ctx, p, a)
}

func (r *Repository) attachBlob(ctx context.Context, p *push, b ocispec.Descriptor) error {
	exists, err := r.has(ctx, b, r.Pushes())
	if err != nil || exists {
		return err
	}
	if int64(len(b.Data)) != b.Size {
		return fault.Errorf(fault.Incomplete, opAttach, r.At(b.Digest.String()), "sign it again",
			"a part of the signature is not at hand")
	}
	err = r.putBlob(ctx, b, bytesOf(b.Data))
	if err == nil {
		p.arrived(b)
	}
	return err
}

// uploadReferrer writes an attachment's manifest so that it is found: under its tag, or listed as a
// referrer.
func (r *Repository) uploadReferrer(ctx context.Context, p *push, a bundle.Referrer) error {
	if a.Tag == "" {
		if err := r.putReferrer(ctx, p, a.Node); err != nil {
			return err
		}
		return r.EnsureListed(ctx, opAttach, a.Subject, a.Node)
	}
	// A site's own signature stays when upstream's arrives.
	join := func(_ ocispec.Descriptor, theirs []byte) (bundle.Node, error) { return r.joined(ctx, p, a, theirs) }
	return r.rewrite(ctx, Look{Op: opAttach, ID: a.Tag}, join)
}

// putReferrer writes a referrer's manifest. An earlier push that wrote the root may have
// written it too, and got no further: then it is asked first, so that nothing is written
// twice, or after the tag.
func (r *Repository) putReferrer(ctx context.Context, p *push, n bundle.Node) error {
	digest := n.Descriptor.Digest
	if !p.lacking(p.graph.Root.Digest) {
		d, found, err := r.Stat(ctx, Look{Op: opPush, ID: digest.String(), Access: r.Pushes()})
		if err != nil || (found && d.Digest == digest) {
			return err
		}
	}
	return r.putManifest(ctx, p, digest.String(), n)
}

// joined is the manifest that has what is under a tag and what is attached, once the
// configuration that it names is there: ours itself where it has all of theirs, and a node
// without data where theirs has all of ours. Each layer of such a manifest is a statement
// of its own; the manifest is only their list and is not signed.
func (r *Repository) joined(
	ctx context.Context, p *push, a bundle.Referrer, theirs []byte,
) (none bundle.Node, err error) {
	if theirs == nil {
		return a.Node, nil
	}
	if bytes.Equal(theirs, a.Node.Data) {
		return none, nil
	}
	var ours, exists ocispec.Manifest
	err = errors.Join(decode(a.Node.Data, &ours), decode(theirs, &exists), bundle.CheckDescriptor(exists.Config))
	if err != nil || len(ours.Layers) == 0 || len(exists.Layers) == 0 {
		return none, fault.Errorf(fault.Conflict, opAttach, r.At(a.Tag), "delete the tag if it is not needed",
			"another manifest is under the tag, and they cannot be joined")
	}
	missing := lacking(exists.Layers, ours.Layers)
	if len(missing) == 0 {
		// No one has the configuration of what was joined: one that is lost is made again.
		if kept, err := r.has(ctx, exists.Config, r.Pushes()); err != nil || kept {
			return none, err
		}
	}
	if len(lacking(ours.Layers, exists.Layers)) == 0 {
		return a.Node, nil
	}
	ours.Layers = slices.Concat(exists.Layers, missing)
	config, err := json.Marshal(configOf(ours.Layers))
	if err != nil {
		return none, err
	}
	made := bundle.Blob(ocispec.MediaTypeImageConfig, config)
	ours.Config = bundle.Plain(made)
	return bundle.NewManifest(ours), r.attachBlob(ctx, p, made)
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

// decode reads JSON that came from outside.
func decode(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("it is not JSON of the right form: %w", err)
	}
	return nil
}
