package archive

import (
	"context"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// keep finds what is attached to the bundle that is in the folder already: what others
// have signed since stays. Where somebody has changed what a signature is made of, or
// replaces, since this writer was made, it would be taken away.
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
	if err := sameTags(w.path, g.Attachments, w.was, d.index()); err != nil {
		return err
	}
	w.kept, err = d.index().aboutGraph(ctx, g)
	return err
}

// aboutGraph returns the entries of what is about a graph or a part of it, and is whole.
func (x *index) aboutGraph(ctx context.Context, g *bundle.Graph) (out []ocispec.Descriptor, err error) {
	known := map[string]bool{}
	for _, n := range g.Manifests {
		known[n.Descriptor.Digest.String()] = true
	}
	for _, d := range x.entries {
		known[d.Digest.String()] = true // a signature may have an attestation
	}
	for _, d := range x.entries {
		of, isList, _ := x.about(ctx, d)
		subject, err := image.ParseDigest(of)
		if err != nil || !known[of] {
			continue // an image, or a stranger
		}
		listed, err := x.listed(ctx, d, isList)
		if err != nil {
			continue
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
