// Package pull builds the bundle of a lock. It reads manifests and attachments of images, assembles
// and signs the whole bundle, and only then moves layers into the target. A bundle therefore never
// appears without its signature.
//
//	pulled, err := pull.Bundle(ctx, pull.Input{Matrix: m, Lock: lock, Manifests: files, Registry: upstream, Target: target}, o)
//
// The same lock gives the same bytes. The next run resumes an interrupted one.
package pull

import (
	"context"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/matrixfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/mover"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/provenance"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Input is the sources, options and target of a pull.
type Input struct {
	Matrix    matrixfile.File
	Lock      *bundle.Lock
	Files     catalog.Files // nil: fetched
	Manifests upstream.Manifests
	Registry  medium.Registry
	Target    medium.Target
	Signer    *trust.Signer // nil: not signed
	// Upstream says whose signatures the images need, if set. Bundle verifies all of them before it writes.
	Upstream        *upstream.Policy
	Carry           upstream.Carry    // upstream signatures that travel; "": none
	SignatureFormat signatures.Format // of the signature by Signer
	// Provenance, if set, adds a statement signed by Signer.
	Provenance *provenance.Builder
	// Reference is the target's, if it is in a registry. Mirror opens it to read existing signatures.
	Reference image.Reference
	Mirror    medium.Registry
	// Base has the layers to omit; nil: none.
	Base *Base
}

// Pulled is the result of a pull.
type Pulled struct {
	mover.Delivered
	// Verified are the images whose own signatures a policy checked. Attached is the number of carried attachments.
	Verified []upstream.VerifiedImage `json:"upstream,omitempty"`
	Attached int                      `json:"attached,omitempty"`
}

// Bundle writes the bundle of a lock.
func Bundle(ctx context.Context, in Input, o run.Options) (*Pulled, error) {
	if err := in.Matrix.Fits(in.Lock); err != nil {
		return nil, err
	}
	p, err := in.assemble(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := in.presign(ctx, p.graph); err != nil {
		return nil, err
	}
	if err := in.attest(ctx, p, time.Now()); err != nil {
		return nil, err
	}
	if err := in.Base.leaveOut(p.graph, o.Progress); err != nil {
		return nil, err
	}
	delivery, err := mover.Begin(ctx, mover.Job{What: "pull", Graph: p.graph, Target: in.Target}, o)
	if err != nil {
		return nil, err
	}
	done, err := delivery.Deliver(ctx, p.origins())
	if err != nil {
		return nil, err
	}
	return &Pulled{Delivered: *done, Verified: p.signed.Verified, Attached: p.signed.Carried()}, nil
}

// assembled is a complete bundle before any layer moves.
type assembled struct {
	in     Input
	trees  []bundle.Tree // of the lock's images
	signed upstream.Signed
	graph  *bundle.Graph
}

// assemble reads everything except the layers.
func (in Input) assemble(ctx context.Context, o run.Options) (*assembled, error) {
	files, err := lockedFiles(ctx, in, o)
	if err != nil {
		return nil, err
	}
	if err := matrixfile.AgreeImages(in.Lock, in.Matrix.Document, files); err != nil {
		return nil, err
	}
	a := &assembled{in: in}
	if a.trees, err = upstream.ReadTrees(ctx, in.Lock, in.Registry, o); err != nil {
		return nil, err
	}
	contents := bundle.Contents{Lock: in.Lock, Matrix: in.Matrix.Data, MatrixSignature: in.Matrix.Signature, Manifests: files}
	if a.graph, err = bundle.Assemble(contents, a.trees); err != nil {
		return nil, err
	}
	a.signed, err = upstream.ReadSigned(ctx, upstream.Input{
		Lock: in.Lock, Trees: a.trees, Registry: in.Registry, Policy: in.Upstream, Carry: in.Carry,
	}, o)
	a.graph.Attachments = append(a.graph.Attachments, a.signed.Attachments...)
	return a, err
}

func lockedFiles(ctx context.Context, in Input, o run.Options) (catalog.Files, error) {
	if in.Files != nil {
		return in.Files, nil
	}
	var want []upstream.File
	for _, r := range in.Lock.Releases {
		for _, f := range r.Manifests {
			want = append(want, upstream.File{Key: r.Path(f), Manifest: matrix.Manifest{Name: f.Name, URL: f.URL, Size: f.Size, SHA256: f.Digest.Hex()}})
		}
	}
	return upstream.Fetch(ctx, want, in.Manifests, o)
}

// maxOrigins limits the images to try for a shared blob: one that works is enough.
const maxOrigins = 3

// origins returns where to fetch each part: from memory, else from the images that have it.
func (a *assembled) origins() mover.Origins {
	known := a.graph.InMemory()
	origins := mover.InMemory(a.graph)
	for n, tree := range a.trees {
		from := a.in.origin(a.in.Lock.Images[n])
		for _, d := range tree.Blobs {
			if _, ok := known[d.Digest]; !ok && len(origins[d.Digest]) < maxOrigins {
				origins.Add(d.Digest, from)
			}
		}
	}
	for d, i := range a.signed.From {
		if _, ok := known[d]; !ok && len(origins[d]) < maxOrigins {
			origins.Add(d, a.in.origin(i))
		}
	}
	return origins
}

// origin returns an image's source, in the queue of its host.
func (in Input) origin(i bundle.Image) mover.Origin {
	from := mover.From(in.Registry(i.FetchedFrom()))
	from.Host = from.Repository.Host()
	return from
}
