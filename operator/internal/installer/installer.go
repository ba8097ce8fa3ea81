// Package installer opens the bundle that an operator is to be installed from, for who sits
// at a command line: in the site's mirror, or in a file or folder that `vdo-bundle pull`
// wrote. Its root is resolved once, held against a trust policy, and everything after is
// read by digest; layers of images are not read.
//
//	b, err := installer.Open(ctx, source)
//	signers, err := b.Verify(ctx, policy, now)
//	m, err := b.Manifests(ctx, install.Options{Repository: "registry.site/vdo/drivers"})
package installer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/install"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// Source is where a bundle is.
type Source interface {
	// Fetch returns the bytes of a descriptor, not verified.
	Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error)
	// Root returns the descriptor of the bundle's root.
	Root(ctx context.Context) (ocispec.Descriptor, error)
	// Signatures lists the manifests that may be signatures of a root.
	Signatures(ctx context.Context, root image.Digest) ([]ocispec.Descriptor, error)
}

// Bundle is a bundle at one digest.
type Bundle struct {
	source Source
	root   ocispec.Descriptor
	digest image.Digest
}

// Open resolves a source, once: a tag may move afterwards.
func Open(ctx context.Context, s Source) (*Bundle, error) {
	root, err := s.Root(ctx)
	if err != nil {
		return nil, err
	}
	digest, err := image.ParseDigest(root.Digest.String())
	if err != nil {
		return nil, err
	}
	return &Bundle{source: s, root: root, digest: digest}, nil
}

// Digest is that of the root.
func (b *Bundle) Digest() image.Digest { return b.digest }

const maxSignatures = 256

// Verify holds the root against a policy, and returns the ids of the keys that counted.
func (b *Bundle) Verify(ctx context.Context, policy *trust.Policy, now time.Time) ([]string, error) {
	manifests, err := b.source.Signatures(ctx, b.digest)
	if err != nil {
		return nil, err
	}
	if len(manifests) > maxSignatures {
		return nil, &fault.Error{Reason: fault.Untrusted, Op: "read signatures", Subject: b.digest.String(), Err: fmt.Errorf("there are more than %d", maxSignatures),
			Hint: "remove signatures that are out of use"}
	}
	evidence, err := trust.ReadEvidence(ctx, b.source, manifests...)
	if err != nil {
		return nil, err
	}
	v, err := policy.Verify(b.digest, evidence, now)
	if err != nil {
		return nil, err
	}
	return v.Keys(), nil
}

// Contents reads and verifies everything that the root leads to but layers.
func (b *Bundle) Contents(ctx context.Context) (*bundle.Contents, error) {
	g, err := bundle.Load(ctx, b.source, b.root)
	if err != nil {
		return nil, err
	}
	return g.Contents(ctx, b.source)
}

// Manifests are how the operator of the bundle is installed.
func (b *Bundle) Manifests(ctx context.Context, to install.Options) (*install.Manifests, error) {
	c, err := b.Contents(ctx)
	if err != nil {
		return nil, err
	}
	return install.Of(b.digest, c, to)
}

type mirror struct{ *remote.Repository }

// Mirror is a bundle in a registry.
func Mirror(c *remote.Client, ref image.Reference) Source { return mirror{c.Repository(ref)} }

func (m mirror) Root(ctx context.Context) (ocispec.Descriptor, error) {
	id := m.Reference().Identifier()
	d, _, found, err := m.Get(ctx, remote.Look{Op: "read", ID: id})
	if err == nil && !found {
		err = &fault.Error{Reason: fault.NotFound, Op: "read", Subject: m.At(id), Err: errors.New("the registry does not have it"), Hint: "check the name and the tag, or push the bundle with `vdo-bundle push`"}
	}
	return d, err
}
