// Package evidence collects what an auditor files about a bundle. It says which releases serve
// which versions and on whose word, and where every byte came from. The result does not depend on
// time or machine.
//
//	page, err := evidence.Collect(ctx, b, verification, o)
//
// For the signatures that verify checks, see internal/signatures.
package evidence

import (
	"context"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/inspect"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Page is all that a bundle says about itself and where each byte came from. The same bundle gives the same page.
type Page struct {
	*inspect.Inspection
	Lock   *bundle.Lock
	Listed []Listed
	Served matrix.Grid // releases by the versions that they serve
	// NoSnapshots reports that the bundle has no snapshot-controller, so Served is for clusters with their own.
	NoSnapshots bool
	Parts       []Part // every manifest and blob: all bytes of the bundle
	Verified    *verify.Verification
}

// Listed is the matrix's entry of a release of the bundle, and its basis.
type Listed struct {
	matrix.Release
	AnyBasis string // basis of a service, which fits any version
}

// Part is one manifest or blob.
type Part struct {
	ocispec.Descriptor
	PartOf []string // images by reference, or another role
	From   []string // the sources
	Left   bool     // omitted, expected from the base
}

// Collect reads what a bundle says about itself, and adds a verification of it, if any.
func Collect(ctx context.Context, b *pinned.Bundle, verified *verify.Verification, o run.Options) (*Page, error) {
	d, err := b.Describe(ctx)
	if err != nil {
		return nil, err
	}
	i, err := inspect.Opened(ctx, b, d, o)
	if err != nil {
		return nil, err
	}
	i.Matrix.Expired = false // depends on the day
	lock := d.Contents.Lock
	e := &Page{Inspection: i, Lock: lock, Verified: verified}
	var servedBy map[string]string
	if verified != nil && verified.Provenance != nil {
		servedBy = verified.Provenance.ServedBy
	}
	e.Parts = partsOf(d.Graph, lock, servedBy)
	options := matrix.GridOptions{Available: matrix.Available{}, Policy: matrix.Policy{Refused: d.Matrix.Unlisted()}}
	isSnapshots := func(r bundle.Release) bool { return r.Driver == matrix.SnapshotController }
	e.NoSnapshots = !slices.ContainsFunc(lock.Releases, isSnapshots)
	for _, r := range lock.Releases {
		options.Available[r.ID()] = true
		id := matrix.ReleaseID{Driver: r.Driver, Version: r.Version}
		if listed, ok := d.Matrix.Release(id); ok {
			e.Listed = append(e.Listed, Listed{Release: listed})
		}
		if s, ok := d.Matrix.Service(id); ok {
			as := matrix.Release{ReleaseID: id, State: s.State, Reason: s.Reason, Notes: s.Notes}
			e.Listed = append(e.Listed, Listed{as, s.Basis})
		}
	}
	if e.NoSnapshots {
		options.Policy.Rules = map[matrix.Driver]matrix.Rule{matrix.SnapshotController: matrix.Disabled}
	}
	e.Served = matrix.NewGrid(d.Matrix, options)
	served := func(c matrix.GridCell) bool { return c.CPI != nil || c.CSI != nil }
	e.Served.Rows = slices.DeleteFunc(e.Served.Rows, func(r matrix.GridRow) bool { return !slices.ContainsFunc(r.Cells, served) })
	return e, nil
}

// partsOf returns the owners and the source of every manifest and blob, in the order of an archive.
func partsOf(g *bundle.Graph, lock *bundle.Lock, served map[string]string) []Part {
	names, origins := g.Owners(), originNames(g, lock, served)
	left := map[string]bool{}
	for _, d := range g.Omitted() {
		left[d.Digest.String()] = true
	}
	out := make([]Part, 0, len(g.Manifests)+len(g.Blobs))
	bare := *g // without attachments, which the root does not reach
	bare.Attachments = nil
	for _, d := range append(bare.Order(), g.Omitted()...) {
		p := Part{Descriptor: d, Left: left[d.Digest.String()], PartOf: slices.Sorted(slices.Values(names[d.Digest]))}
		if d.Digest == g.Root.Digest {
			p.PartOf = []string{"the root"}
		}
		for _, name := range p.PartOf {
			if from := origins[name]; from != "" && !slices.Contains(p.From, from) {
				p.From = append(p.From, from)
			}
		}
		if own := origins[d.Digest.String()]; own != "" {
			p.From = []string{own}
		}
		slices.Sort(p.From)
		out = append(out, p)
	}
	return out
}

const madeHere = "made by vdo-bundle from the lock"

// originNames returns sources: of images by reference, and of the bundle's own parts by digest.
func originNames(g *bundle.Graph, lock *bundle.Lock, served map[string]string) map[string]string {
	out := map[string]string{"the root": madeHere, bundle.ContentsName: madeHere}
	for _, i := range lock.Images {
		from := i.FetchedFrom().Repository()
		if mirror := i.Resolver(); mirror != "" {
			from += ", resolved at " + mirror
		}
		if mirror := served[i.Reference.String()]; mirror != "" {
			from += ", served by " + mirror
		}
		out[i.Reference.String()] = from
	}
	out[lock.Matrix.Digest.String()] = "the publisher of the compatibility matrix"
	for _, b := range g.Blobs {
		if b.MediaType == bundle.MatrixSigMediaType {
			out[b.Digest.String()] = "the publisher of the compatibility matrix"
		}
	}
	for _, r := range lock.Releases {
		for _, f := range r.Manifests {
			key, from := f.Digest.String(), "vdo-bundle, which carries it"
			if f.URL != "" {
				from = "listed at " + f.URL // --manifest-dir may have given the bytes
			}
			if was := out[key]; was != "" && was != from {
				from = was + " and " + from // one file under two addresses
			}
			out[key] = from
		}
	}
	return out
}
