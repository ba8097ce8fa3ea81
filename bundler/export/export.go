// Package export writes a bundle's images as an archive for containerd, k3s and RKE2, for nodes
// that reach no registry. Each image has the name that the operator's pods use, so that the kubelet
// finds it and pulls nothing.
//
//	done, err := export.Images(ctx, export.Input{Bundle: b, Target: file, Names: export.Repository, Mirror: mirror}, o)
//
// The archive is an OCI image layout. Its index.json names the images in the annotation
// io.containerd.image.name.
package export

import (
	"context"
	"encoding/json"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/mover"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// Names are the names of images in pods, as in spec.imageNames of a DriverBundle.
type Names string

// Repository, Paths and Upstream all name images by digest.
const (
	Repository Names = "repository" // HOST/PATH@DIGEST
	Paths      Names = "paths"      // HOST/PATH/registry.k8s.io/csi-vsphere/driver@DIGEST
	Upstream   Names = "upstream"   // registry.k8s.io/csi-vsphere/driver@DIGEST
)

// Input is the bundle to export, and the target.
type Input struct {
	Bundle *pinned.Bundle
	Target medium.Target
	Names  Names
	Mirror image.Reference // the operator's source of the bundle; unused by Upstream
}

// containerdName is the annotation that containerd, k3s and RKE2 read for the full name.
const containerdName = "io.containerd.image.name"

// Images writes the images of a whole bundle.
func Images(ctx context.Context, in Input, o run.Options) (*mover.Delivered, error) {
	g, lock, err := in.Bundle.Whole(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := g.RefuseDelta("export", "make a whole bundle of it first: `vdo-bundle copy DELTA WHOLE.tar --base BASE`"); err != nil {
		return nil, err
	}
	images, err := in.graph(g, lock)
	if err != nil {
		return nil, err
	}
	d, err := mover.Begin(ctx, "export", images, in.Target, o)
	if err != nil {
		return nil, err
	}
	done, err := d.Deliver(ctx, mover.All(mover.From(in.Bundle)))
	if err == nil {
		done.Images = len(lock.Images)
	}
	return done, in.Bundle.Diagnosed(ctx, err)
}

// graph returns a bundle's images with their names, without attachments, which containerd would not keep.
func (in Input) graph(g *bundle.Graph, lock *bundle.Lock) (*bundle.Graph, error) {
	out := g.Below(g.Images()...)
	out.Attachments = nil
	for _, i := range lock.Images {
		name, err := in.name(i)
		if err != nil {
			return nil, err
		}
		d := bundle.Plain(i.Descriptor())
		d.Annotations = map[string]string{containerdName: name, ocispec.AnnotationRefName: name}
		out.Names = append(out.Names, d)
	}
	names, err := json.Marshal(out.Names)
	out.Root = ocispec.Descriptor{Digest: digest.FromBytes(names)} // so that no bundle and no pull has this root
	return out, err
}

// name returns a pod's name for an image.
func (in Input) name(i bundle.Image) (string, error) {
	ref := in.Mirror
	switch in.Names {
	case Upstream:
		ref = i.Reference
	case Paths:
		var err error
		if ref, err = i.Reference.Below(in.Mirror); err != nil {
			return "", err
		}
	}
	return ref.Repository() + "@" + i.Digest.String(), nil
}
