// Package evidence collects what an auditor files of a bundle: which releases serve which
// versions and on whose word, and where every byte came from. The page does not depend on
// when or where it is made.
//
//	page, err := evidence.Collect(ctx, b, verification, o)
//
// The signatures that verify looks at are another thing: see internal/signatures.
package evidence

import (
	"context"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/inspect"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Page is everything that a bundle says of itself, down to where each of its
// bytes came from: what an auditor files. The same bundle gives the same evidence
// at any time and on any machine.
type Page struct {
	*inspect.Inspection
	Lock     *bundle.Lock
	Listed   []Listed
	Served   Served
	Parts    []Part // every manifest and blob: together all bytes of the bundle
	Verified *verify.Verification
}

// Listed is what the matrix says of a release of the bundle, and on whose word.
type Listed struct {
	matrix.Release
	AnyBasis string // of a service, which fits any version: whose word that is
}

// Part is one manifest or blob.
type Part struct {
	ocispec.Descriptor
	PartOf []string // images by reference, or what else it is
	From   []string // where it was taken from
	Left   bool     // to the base
}

// Collect reads what a bundle says of itself. What was verified of it before, if anything,
// goes onto the page.
func Collect(ctx context.Context, b *pinned.Bundle, verified *verify.Verification, o run.Options) (*Page, error) {
	d, err := b.Describe(ctx)
	if err != nil {
		return nil, err
	}
	i, err := inspect.Opened(ctx, b, d, o)
	if err != nil {
		return nil, err
	}
	i.Matrix.Expired = false // depends on the day on which it is asked
	lock := d.Contents.Lock
	e := &Page{Inspection: i, Lock: lock, Verified: verified}
	var served map[string]string
	if verified != nil && verified.Provenance != nil {
		served = verified.Provenance.ServedBy
	}
	e.Parts = partsOf(d.Graph, lock, served)
	available := matrix.Available{}
	for _, r := range lock.Releases {
		available[r.ID()] = true
		id := matrix.ReleaseID{Driver: r.Driver, Version: r.Version}
		if listed, ok := d.Matrix.Release(id); ok {
			e.Listed = append(e.Listed, Listed{Release: listed})
		}
		if s, ok := d.Matrix.Service(id); ok {
			as := matrix.Release{ReleaseID: id, State: s.State, Reason: s.Reason, Notes: s.Notes}
			e.Listed = append(e.Listed, Listed{as, s.Basis})
		}
	}
	e.Served = servedOf(matrix.NewGrid(d.Matrix, matrix.GridOptions{Available: available}))
	return e, nil
}
