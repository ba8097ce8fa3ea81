package archive

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Tagged returns what is attached to a digest under a tag in the folder already, with
// its bytes; nil where there is nothing that is whole. Who signs what he writes adds to
// it, so that no signature is lost.
func (w *DirWriter) Tagged(ctx context.Context, subject image.Digest, tag string) (*bundle.Attachment, error) {
	if w.o.Replace {
		return nil, nil
	}
	if w.seen == nil {
		w.seen = map[string]digest.Digest{}
	}
	w.seen[tag] = "" // also where there is no folder yet: another process may make it meanwhile
	if !isThere(filepath.Join(w.path, indexName)) {
		return nil, nil
	}
	d, err := OpenDir(w.path)
	if err != nil {
		return nil, nil //nolint:nilerr // Begin says what is wrong with it
	}
	entry, _ := d.index().tagged(tag)
	w.seen[tag] = entry.Digest
	att, err := d.index().read(ctx, subject, tag)
	return att, errors.Join(err, d.Close())
}

// keep finds what is attached to the bundle that is in the folder already: what others
// have signed since stays. Where somebody has changed what Tagged returned, what was
// made of that would take it away.
func (w *DirWriter) keep(ctx context.Context, g *bundle.Graph) error {
	w.kept = nil
	if w.o.Replace || !w.dir.has(indexName) {
		return nil
	}
	d, err := OpenDir(w.path)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // nothing was written
	for tag, was := range w.seen {
		if is, _ := d.index().tagged(tag); is.Digest != was {
			return changed(w.path, tag)
		}
	}
	w.kept, err = d.index().about(ctx, g)
	return err
}

// about returns the entries of what is about a graph or a part of it, and is whole.
func (x *index) about(ctx context.Context, g *bundle.Graph) (out []ocispec.Descriptor, err error) {
	known := map[string]bool{}
	for _, n := range g.Manifests {
		known[n.Descriptor.Digest.String()] = true
	}
	for _, d := range x.entries {
		known[d.Digest.String()] = true // a signature may have an attestation
	}
	for _, d := range x.entries {
		of, fallback, ok := tagSubject(d.Annotations[ocispec.AnnotationRefName])
		if !ok && d.Annotations[ocispec.AnnotationRefName] == "" {
			of, _ = x.subject(ctx, d)
		}
		subject, err := image.ParseDigest(of)
		if err != nil || !known[of] {
			continue // an image, or a stranger
		}
		listed := []ocispec.Descriptor{d}
		if fallback {
			if listed, err = x.fallback(ctx, d); err != nil {
				continue
			}
		}
		damaged := slices.ContainsFunc(listed, func(d ocispec.Descriptor) bool {
			return x.checkWhole(ctx, subject, d) != nil
		})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !damaged {
			out = append(out, d)
		}
	}
	return out, nil
}

// withKept returns the entries of an index.json with those that stay.
func withKept(entries, kept []ocispec.Descriptor) []ocispec.Descriptor {
	var names, atts []ocispec.Descriptor
	tags := map[string]bool{}
	for _, d := range entries {
		tag := d.Annotations[ocispec.AnnotationRefName]
		if _, _, isTag := tagSubject(tag); tag == "" || isTag {
			atts, tags[tag] = append(atts, d), tag != ""
		} else {
			names = append(names, d)
		}
	}
	for _, d := range kept {
		if !tags[d.Annotations[ocispec.AnnotationRefName]] && !slices.ContainsFunc(atts, func(o ocispec.Descriptor) bool { return compareAttached(o, d) == 0 }) {
			atts = append(atts, d)
		}
	}
	slices.SortFunc(atts, compareAttached)
	return append(names, atts...)
}
