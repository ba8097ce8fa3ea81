// Package inspect returns what a bundle says about itself: releases, images, sizes, the matrix, and
// its signatures. It verifies nothing: see package verify.
//
//	i, err := inspect.Bundle(ctx, b, o)
package inspect

import (
	"context"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Inspection is what a bundle says about itself. It is not verified: see package verify.
type Inspection struct {
	Root       image.Digest           `json:"root"`
	Bytes      int64                  `json:"bytes"`
	Blobs      int                    `json:"blobs"`
	Platforms  []image.Platform       `json:"platforms"` // requested when it was made
	Matrix     Matrix                 `json:"matrix"`
	Releases   []Release              `json:"releases"`
	Images     []Image                `json:"images"`
	Signatures []signatures.Signature `json:"signatures"`
	Left       *bundle.Omitted        `json:"leftToBase,omitempty"` // what a delta lacks
}

// Matrix is the matrix document of a bundle.
type Matrix struct {
	Serial  int64        `json:"serial"`
	Digest  image.Digest `json:"digest"`
	Issued  time.Time    `json:"issued"`
	Expires time.Time    `json:"expires"`
	Expired bool         `json:"expired"`
	Signed  bool         `json:"signed"` // a signature exists; not verified
}

// Release is one release of a driver, a service or this project's programs.
type Release struct {
	Driver     matrix.Driver  `json:"driver"`
	Version    matrix.Version `json:"version"`
	State      matrix.State   `json:"state,omitempty"`
	Kubernetes string         `json:"kubernetes,omitempty"`
	VSphere    string         `json:"vSphere,omitempty"`
	Manifests  []string       `json:"manifests"`
	Images     int            `json:"images"`
}

// Image is an image of a bundle.
type Image struct {
	Reference image.Reference        `json:"reference"`
	Digest    image.Digest           `json:"digest"`
	Platforms []string               `json:"platforms"`
	Bytes     int64                  `json:"bytes"` // of its manifests, configurations and layers
	UsedBy    []string               `json:"usedBy"`
	Source    string                 `json:"source,omitempty"`   // where it was fetched, if not upstream
	Reason    string                 `json:"reason,omitempty"`   // why it was fetched there
	Attached  []signatures.Signature `json:"attached,omitempty"` // upstream's signatures, attestations, SBOMs
}

// Why returns why the image is not the one in its manifest, or "" if it is.
func (i Image) Why() string { return bundle.Image{Reason: i.Reason}.Why() }

// Bundle reads what a bundle says about itself.
func Bundle(ctx context.Context, b *pinned.Bundle, o run.Options) (*Inspection, error) {
	d, err := b.Describe(ctx)
	if err != nil {
		return nil, err
	}
	return Opened(ctx, b, d, o)
}

// Opened describes a bundle that was read before.
func Opened(ctx context.Context, s medium.Source, d *pinned.Opened, o run.Options) (*Inspection, error) {
	g, c, doc := d.Graph, d.Contents, d.Matrix
	i := &Inspection{Root: d.Root, Bytes: g.Size(), Blobs: len(g.Blobs), Platforms: c.Lock.Platforms, Left: g.OmittedList()}
	i.Matrix = Matrix{
		Serial: doc.Serial, Digest: c.Lock.Matrix.Digest, Issued: doc.Issued, Expires: doc.Expires,
		Expired: !time.Now().Before(doc.Expires), Signed: len(c.MatrixSignature) > 0,
	}
	i.Releases = inspectReleases(c.Lock, doc)
	i.Images = inspectImages(ctx, s, g, c.Lock)
	var err error
	if i.Signatures, err = signatures.List(ctx, s, i.Root); err != nil {
		return i, err
	}
	return i, run.Each(ctx, o.Limit(), len(i.Images), func(n int) error {
		var err error
		i.Images[n].Attached, err = signatures.List(ctx, s, i.Images[n].Digest)
		return err
	})
}

func inspectReleases(lock *bundle.Lock, doc *matrix.Document) []Release {
	out := make([]Release, 0, len(lock.Releases))
	for _, r := range lock.Releases {
		ir := Release{Driver: r.Driver, Version: r.Version, Images: len(r.Images), Manifests: []string{}}
		for _, f := range r.Manifests {
			ir.Manifests = append(ir.Manifests, f.Name)
		}
		id := matrix.ReleaseID{Driver: r.Driver, Version: r.Version}
		if listed, ok := doc.Release(id); ok {
			ir.State, ir.Kubernetes, ir.VSphere = listed.State, listed.Kubernetes.String(), listed.VSphere.String()
		} else if s, ok := doc.Service(id); ok {
			ir.State = s.State
		}
		out = append(out, ir)
	}
	return out
}

func inspectImages(ctx context.Context, s medium.Source, g *bundle.Graph, lock *bundle.Lock) []Image {
	out := make([]Image, 0, len(lock.Images))
	for _, i := range lock.Images {
		found := Image{
			Reference: i.Reference, Digest: i.Digest, Bytes: g.SizeBelow(i.Descriptor()), Platforms: []string{},
			UsedBy: i.UsedBy, Source: i.Source.String(), Reason: i.Reason,
		}
		platforms, _, _ := g.PlatformsOf(ctx, s, i.Descriptor()) // none if the configuration is unreadable
		for _, p := range platforms {
			found.Platforms = append(found.Platforms, p.String())
		}
		out = append(out, found)
	}
	return out
}
