// Package installer opens the bundle in the site's mirror that an operator is to be installed from, for
// who sits at a command line. Its root is resolved once, held against a trust policy, and everything
// after is read by digest; layers of images are not read.
//
//	b, err := installer.Open(ctx, client, reference)
//	signers, err := b.Verify(ctx, policy, now)
//	m, err := b.Manifests(ctx, install.Options{Repository: "registry.site/vdo/drivers"})
package installer

import (
	"context"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/install"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// Bundle is a bundle at one digest.
type Bundle struct {
	mirror *remote.Repository
	root   ocispec.Descriptor
	digest image.Digest
}

// Open resolves a bundle, once: a tag may move afterwards.
func Open(ctx context.Context, c *remote.Client, ref image.Reference) (*Bundle, error) {
	mirror := c.Repository(ref)
	id := mirror.Reference().Identifier()
	root, _, found, err := mirror.Get(ctx, remote.Look{Op: "read", ID: id})
	if err == nil && !found {
		err = fault.Errorf(fault.NotFound, "read", mirror.At(id),
			"check the name and the tag, or push the bundle with `vdo-bundle push`", "the registry does not have it")
	}
	if err != nil {
		return nil, err
	}
	digest, err := image.ParseDigest(root.Digest.String())
	return &Bundle{mirror: mirror, root: root, digest: digest}, err
}

// Verify holds the root against a policy, and returns the ids of the keys that counted.
func (b *Bundle) Verify(ctx context.Context, policy *trust.Policy, now time.Time) ([]string, error) {
	manifests, err := b.mirror.Signatures(ctx, b.digest)
	if err != nil {
		return nil, err
	}
	evidence, err := trust.ReadEvidence(ctx, b.mirror, manifests...)
	if err != nil {
		return nil, err
	}
	v, err := policy.Verify(b.digest, evidence, now)
	if err != nil {
		return nil, err
	}
	return v.Keys(), nil
}

// Manifests are how the operator of the bundle is installed. Everything that the root leads to but layers is
// read and verified for them.
func (b *Bundle) Manifests(ctx context.Context, to install.Options) (*install.Manifests, error) {
	g, err := bundle.Load(ctx, b.mirror, b.root)
	if err != nil {
		return nil, err
	}
	c, err := g.Contents(ctx, b.mirror)
	if err != nil {
		return nil, err
	}
	return install.Of(b.digest, c, to)
}
