// Package sign adds a signature to an existing bundle in an archive, a directory or a registry. It
// writes a new archive beside the old one, then replaces the old one.
//
//	signed, err := sign.Bundle(ctx, b, sign.Input{Signer: signer, Identity: "registry.site/vdo/drivers"})
package sign

import (
	"context"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
)

// Input is the signer and the options.
type Input struct {
	Signer   *trust.Signer
	Name     string // of the bundle, for messages
	Identity string // the signer's name for the bundle: HOST/PATH, or "" for the default
	Format   signatures.Format
	// Images also signs every index and manifest of images: admission policies check what a pod names.
	Images bool
}

// Bundle signs an existing bundle and returns the signed descriptors, the root first. It reads the structure first,
// so that it never signs an incomplete bundle. It verifies all of a file or directory, but no layers in a registry:
// the push verified them, and verify reads them.
func Bundle(ctx context.Context, b *pinned.Bundle, in Input) ([]ocispec.Descriptor, error) {
	read, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}
	attach := b.Can().Attach
	if attach == nil {
		return nil, fault.Errorf(fault.Refused, "sign", in.Name,
			"sign the folder, the bundle in its registry, or the file; of parts, the file that `cat` makes of them",
			"nothing can be added where it is")
	}
	subjects := []ocispec.Descriptor{b.Descriptor()}
	if in.Images {
		for _, n := range read.Graph.Below(read.Graph.Images()...).Manifests {
			subjects = append(subjects, n.Descriptor)
		}
	}
	var made []bundle.Referrer
	for _, d := range subjects {
		of, err := in.make(ctx, b, d)
		if err != nil {
			return nil, err
		}
		made = append(made, of...)
	}
	return subjects, attach(ctx, made...)
}

// make returns the missing signatures.
func (in Input) make(ctx context.Context, s medium.Source, d ocispec.Descriptor) ([]bundle.Referrer, error) {
	exists, err := signatures.ReadExisting(ctx, s, bundle.DigestOf(d), image.Signatures, false)
	if err != nil {
		return nil, err
	}
	return signatures.Request{Signer: in.Signer, Subject: bundle.Plain(d), Identity: in.Identity, Format: in.Format}.Make(ctx, exists)
}
