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

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
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
	Served   Served               `json:"served"`
	Listed   []ListedRelease      `json:"listed"`
	Files    []File               `json:"files"`
	Parts    []Part               `json:"parts"` // every manifest and blob: together all bytes of the bundle
	Verified *verify.Verification `json:"verified,omitempty"`
}

// ListedRelease is what the matrix says of a release of the bundle, and on whose word.
type ListedRelease struct {
	Name       string   `json:"name"`
	State      string   `json:"state"`
	Reason     string   `json:"reason,omitempty"`
	Kubernetes Range    `json:"kubernetes"`
	VSphere    Range    `json:"vSphere"`
	Requires   []string `json:"requires,omitempty"`
	Notes      []string `json:"notes,omitempty"`
}

// File is an upstream manifest file.
type File struct {
	Release string       `json:"release"`
	Name    string       `json:"name"`
	URL     string       `json:"url,omitempty"` // it was fetched from there, or it comes with the bundler
	Digest  image.Digest `json:"digest"`
	Size    int64        `json:"size"`
}

// Part is one manifest or blob.
type Part struct {
	Digest    string   `json:"digest"`
	MediaType string   `json:"mediaType"`
	Size      int64    `json:"size"`
	PartOf    []string `json:"partOf"` // images by reference, or what else it is
	From      []string `json:"from"`   // where it was taken from
	Left      bool     `json:"leftToBase,omitempty"`
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
	e := &Page{Inspection: i, Verified: verified, Listed: listedOf(lock, d.Matrix)}
	var served map[string]string
	if verified != nil && verified.Provenance != nil {
		served = verified.Provenance.ServedBy
	}
	e.Parts = partsOf(d.Graph, lock, served)
	available := matrix.Available{}
	for _, r := range lock.Releases {
		available[r.ID()] = true
		for _, f := range r.Manifests {
			e.Files = append(e.Files, File{Release: r.ID(), Name: f.Name, URL: f.URL, Digest: f.Digest, Size: f.Size})
		}
	}
	e.Served = servedOf(matrix.NewGrid(d.Matrix, matrix.GridOptions{Available: available}))
	return e, nil
}
