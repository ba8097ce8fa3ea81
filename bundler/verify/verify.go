// Package verify checks a bundle: the signature of its root, and then every byte that is
// reached from it. What was verified is bound to its digest, so that later steps can read
// nothing else.
//
//	b, v, err := verify.Bundle(ctx, source, verify.Rules{Policy: policy}, o)
//
// It reports all that is wrong at once, and changes nothing. What is attached to images
// and platforms (upstream's signatures and the like) is not reached from the root: no key
// of the bundle speaks for it. A file or folder is looked at as a whole, with such parts;
// a registry is not asked for them: push reads them, and names what is lost.
package verify

import (
	"context"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/matrixfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// Rules say what a bundle has to satisfy.
type Rules struct {
	Policy *trust.Policy // whose signatures the root needs
	Matrix matrixfile.Rules
	// Provenance demands a statement of how the bundle was built, signed as the policy
	// demands. Where it is not demanded, what was found of it is told.
	Provenance bool
}

// Verification is what was checked and found good. As JSON it is what
// `vdo-bundle verify --format json` prints.
type Verification struct {
	Root           image.Digest    `json:"root"`
	SignedBy       []string        `json:"signedBy"` // ids of the policy's keys
	MatrixSignedBy []string        `json:"matrixSignedBy,omitempty"`
	Serial         int64           `json:"serial"`  // of the matrix
	Expires        time.Time       `json:"expires"` // of the matrix
	Images         int             `json:"images"`
	Blobs          int             `json:"blobs"`
	Bytes          int64           `json:"bytes"`
	Left           *bundle.Omitted `json:"leftToBase,omitempty"` // of a delta: not checked, since it is not there
	// Provenance is what a signed statement says of how the bundle was built; nil where
	// there is none.
	Provenance *Provenance `json:"provenance,omitempty"`
}

// Bundle resolves a source, checks the signature of the bundle's root and then every
// byte below it. It returns the bundle, bound to that digest, and what was checked; or all
// that is wrong at once.
func Bundle(ctx context.Context, s medium.Source, rules Rules, o run.Options) (*pinned.Bundle, *Verification, error) {
	b, err := pinned.Open(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	c := checker{Bundle: b, rules: rules, options: o, now: time.Now(), found: &Verification{Root: b.Digest()}}
	if err := c.check(ctx); err != nil {
		return nil, nil, fault.Distinct(err)
	}
	return b, c.found, nil
}

// checker checks one bundle.
type checker struct {
	*pinned.Bundle
	rules   Rules
	options run.Options
	now     time.Time
	found   *Verification // is filled as it goes
}

func (c *checker) check(ctx context.Context) error {
	attached, untrusted := c.signatures(ctx)
	layout := c.layout(ctx)
	g, err := c.Load(ctx)
	if err != nil || g == nil {
		return c.Diagnosed(ctx, fault.Join(untrusted, layout, err))
	}
	lock, content := c.contents(ctx, g, untrusted == nil)
	provenance := c.provenance(ctx, attached, lock)
	blobs := c.blobs(ctx, g)
	if ctx.Err() != nil {
		return run.Interrupted(ctx)
	}
	if err := fault.Join(untrusted, layout, content, provenance, blobs); err != nil {
		return c.Diagnosed(ctx, err)
	}
	return nil
}

// layout checks what the medium has outside of blobs and manifests.
func (c *checker) layout(ctx context.Context) error {
	if check := c.Can().CheckLayout; check != nil {
		return check(ctx)
	}
	return nil
}

// signatures checks who signed the root, and returns what is attached to it.
func (c *checker) signatures(ctx context.Context) ([]ocispec.Descriptor, error) {
	attached, err := c.Attachments(ctx, c.Digest())
	if err != nil {
		return nil, err
	}
	signed, problems := trust.ReadEvidence(ctx, c, attached...)
	if fault.ReasonOf(problems) == fault.Untrusted { // more than is read
		return attached, problems
	}
	verified, err := c.rules.Policy.Verify(c.Digest(), signed, c.now)
	if err != nil {
		return attached, fault.Join(problems, err)
	}
	c.found.SignedBy = verified.Keys()
	return attached, nil // a damaged signature beside enough good ones changes nothing
}

// contents checks the lock against the index, and the matrix. It returns the lock
// where that could be read. Manifests are parsed once their bundle is trusted.
func (c *checker) contents(ctx context.Context, g *bundle.Graph, trusted bool) (*bundle.Lock, error) {
	held, err := g.Contents(ctx, c)
	if err != nil {
		return nil, err
	}
	m, err := matrixfile.Open("the bundle's matrix", held.Matrix, held.MatrixSignature, c.rules.Matrix, c.now)
	if m.Document == nil {
		return held.Lock, err
	}
	c.found.Serial, c.found.Expires, c.found.Images = m.Document.Serial, m.Document.Expires, len(held.Lock.Images)
	c.found.MatrixSignedBy = m.SignedBy
	if err = fault.Join(err, matrixfile.Agree(held.Lock, m.Document)); trusted {
		err = fault.Join(err, matrixfile.AgreeImages(held.Lock, m.Document, held.Manifests))
	}
	return held.Lock, err
}
