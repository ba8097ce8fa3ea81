package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

const opAttach = "attach"

// Attach adds signatures and other referrers of an image to the repository, one after the other. The subject must
// exist, and so must every blob whose descriptor has no data.
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
	return r.explainSubject(r.uploadReferrer(ctx, p, a), a, opAttach, "sign without one: --signature-format simple")
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

// uploadReferrer writes an attachment's manifest so that clients find it: under its tag, or in the list of referrers.
func (r *Repository) uploadReferrer(ctx context.Context, p *push, a bundle.Referrer) error {
	if a.Tag == "" {
		if err := r.putReferrer(ctx, p, a.Node); err != nil {
			return err
		}
		return r.EnsureListed(ctx, opAttach, a.Subject, a.Node)
	}
	// A site's own signature stays if upstream's arrives.
	join := func(_ ocispec.Descriptor, theirs []byte) (bundle.Node, error) { return r.joined(ctx, p, a, theirs) }
	return r.rewrite(ctx, Look{Op: opAttach, ID: a.Tag}, join)
}

// putReferrer writes a referrer's manifest. If the root existed before this push, an earlier push may have written it
// too. In that case putReferrer asks first, and does not write it twice, or after the tag.
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

// joined returns a manifest with the layers of theirs and of a, after writing its config. If ours has all of theirs,
// it returns ours; if theirs has all of ours, a node without data. Each layer is a signed statement; the manifest
// itself is not signed.
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
		// A missing config is written again, since it is not signed.
		if kept, err := r.has(ctx, exists.Config, r.Pushes()); err != nil || kept {
			return none, err
		}
	}
	if len(lacking(ours.Layers, exists.Layers)) == 0 {
		return a.Node, nil
	}
	ours.Layers = slices.Concat(exists.Layers, missing)
	if len(ours.Layers) > trust.MaxSignatures {
		return none, fault.Errorf(fault.Refused, opAttach, r.At(a.Tag), "delete the tag, then push the bundle again",
			"verifiers read at most %d signatures, and %d are under the tag", trust.MaxSignatures, len(exists.Layers))
	}
	config, err := trust.Config(ours.Layers)
	if err != nil {
		return none, err
	}
	ours.Config = bundle.Plain(config)
	return bundle.NewManifest(ours), r.attachBlob(ctx, p, config)
}

// lacking returns the layers of b that a lacks. It compares annotations too: they hold the signature, certificate and
// time stamp of a payload.
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

func decode(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("it is not JSON of the right form: %w", err)
	}
	return nil
}
