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
	"encoding/json"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
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
	upstream.Input  // all signatures that it demands are verified before the first write
	Matrix          matrixfile.File
	Files           catalog.Files // nil: fetched
	Manifests       upstream.Manifests
	Target          medium.Target
	Signer          *trust.Signer     // nil: not signed
	SignatureFormat signatures.Format // of the signature by Signer
	// Provenance, if set, adds a statement signed by Signer, which it needs.
	Provenance *provenance.Builder
	// Reference is the target's, if it is in a registry. Mirror opens it to read existing signatures.
	Reference image.Reference
	Mirror    medium.Registry
	// Base is what the target site already has: a delta omits it. Nil: nothing.
	Base *bundle.Receipt
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
	g, images, err := in.assemble(ctx, o)
	if err == nil && in.Signer != nil {
		err = in.sign(ctx, g, signatures.Request{}, image.Signatures)
	}
	if err == nil && in.Provenance != nil {
		err = in.attest(ctx, g, images.Verified)
	}
	if err == nil {
		err = in.leaveOut(g, o.Progress)
	}
	if err != nil {
		return nil, err
	}
	delivery, err := mover.Begin(ctx, "pull", g, in.Target, o)
	if err != nil {
		return nil, err
	}
	done, err := delivery.Deliver(ctx, func(m ocispec.Descriptor) (origins []mover.Origin) {
		for _, i := range images.From[m.Digest] {
			origins = append(origins, in.origin(i))
		}
		return origins
	})
	if err != nil {
		return nil, err
	}
	return &Pulled{Delivered: *done, Verified: images.Verified, Attached: images.Carried()}, nil
}

// assemble reads everything except the layers.
func (in Input) assemble(ctx context.Context, o run.Options) (*bundle.Graph, upstream.Images, error) {
	files, err := lockedFiles(ctx, in, o)
	if err == nil {
		err = matrixfile.Agree(in.Lock, in.Matrix.Document, files)
	}
	if err != nil {
		return nil, upstream.Images{}, err
	}
	images, err := upstream.Read(ctx, in.Input, o)
	if err != nil {
		return nil, images, err
	}
	contents := bundle.Contents{Lock: in.Lock, Matrix: in.Matrix.Data, MatrixSignature: in.Matrix.Signature, Manifests: files}
	g, err := bundle.Assemble(contents, images.Trees)
	if err == nil {
		g.Attachments = append(g.Attachments, images.Attachments...)
	}
	return g, images, err
}

func lockedFiles(ctx context.Context, in Input, o run.Options) (catalog.Files, error) {
	if in.Files != nil {
		return in.Files, nil
	}
	want := map[string]matrix.Manifest{}
	for _, r := range in.Lock.Releases {
		for _, f := range r.Manifests {
			want[r.Path(f)] = matrix.Manifest{Name: f.Name, URL: f.URL, Size: f.Size, SHA256: f.Digest.Hex()}
		}
	}
	return upstream.Fetch(ctx, want, in.Manifests, o)
}

// origin returns an image's source, in the queue of its host.
func (in Input) origin(i bundle.Image) mover.Origin {
	from := mover.From(in.Registry(i.FetchedFrom()))
	from.Host = from.Repository.Host()
	return from
}

// leaveOut turns a graph into a delta without the base's layers.
func (in Input) leaveOut(g *bundle.Graph, p *run.Progress) error {
	if in.Base == nil {
		return nil
	}
	base := g.Without(in.Base.Root, in.Base.Has)
	if base == nil {
		p.Warn("the base %s has none of the layers: this is a whole bundle", in.Base.Root)
	}
	return g.OmitFor(base)
}

// sign adds a signature or statement to a graph before it is written, so that a bundle never appears without it. It
// reuses the key's existing one in the bundle's registry.
func (in Input) sign(ctx context.Context, g *bundle.Graph, r signatures.Request, under image.Suffix) error {
	exists, err := in.exists(ctx, bundle.DigestOf(g.Root), under)
	if err != nil {
		return err
	}
	r.Signer, r.Subject, r.Identity, r.Format = in.Signer, g.Root, in.Reference.Repository(), in.SignatureFormat
	made, err := r.Make(ctx, exists)
	g.Attachments = append(g.Attachments, made...)
	return err
}

// exists returns the subject's attachments in the bundle's registry; none if it has no such subject, which registries
// also answer with 401 or 403. Any other fault is an error, as the new attachment would take the existing one's place.
func (in Input) exists(ctx context.Context, subject image.Digest, under image.Suffix) (signatures.Existing, error) {
	if in.Mirror == nil {
		return signatures.Existing{}, nil
	}
	exists, err := signatures.ReadExisting(ctx, in.Mirror(in.Reference), subject, under, true)
	switch reason := fault.ReasonOf(err); reason {
	case fault.NotFound, fault.Unauthorized, fault.Forbidden:
		return signatures.Existing{}, nil
	case fault.Corrupt, fault.Incomplete:
		return exists, &fault.Error{Reason: reason, Op: "add to", Err: err,
			Subject: in.Reference.Repository() + ":" + under.TagOf(subject), Hint: "delete that tag in the registry"}
	}
	return exists, err
}

// attest adds the signed statement of how the bundle was built. A statement of the same build has the original time.
func (in Input) attest(ctx context.Context, g *bundle.Graph, verified []upstream.VerifiedImage) error {
	images := make([]provenance.Image, len(in.Lock.Images))
	for n, i := range in.Lock.Images {
		images[n].From = in.Registry(i.FetchedFrom()).Can().Repository
		if n < len(verified) {
			images[n].SignedBy = verified[n].SignedBy
		}
	}
	statement, err := provenance.New(in.Lock, *in.Provenance, time.Now(), images)
	if err != nil {
		return err
	}
	predicate, err := json.Marshal(statement)
	if err != nil {
		return err
	}
	r := signatures.Request{Type: provenance.Type, Predicate: predicate, Same: statement.IsOfBuild}
	return in.sign(ctx, g, r, image.Attestations)
}
