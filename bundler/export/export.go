// Package export writes a bundle's images as an archive that containerd, k3s and RKE2
// import, for nodes that reach no registry. Each image has the name that the pods of the
// operator give, so that the kubelet finds it and pulls nothing.
//
//	done, err := export.Images(ctx, export.Input{Bundle: b, Target: file, Repository: mirror}, o)
//
// The archive is an OCI image layout whose index.json names the images in the annotation
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

// Names are how pods name the images, as spec.imageNames of a DriverBundle says.
type Names string

// Always with the digest.
const (
	Repository Names = "repository" // HOST/PATH@DIGEST
	Paths      Names = "paths"      // HOST/PATH/registry.k8s.io/csi-vsphere/driver@DIGEST
	Upstream   Names = "upstream"   // registry.k8s.io/csi-vsphere/driver@DIGEST
)

// Input is what is exported, and where.
type Input struct {
	Bundle *pinned.Bundle
	Target medium.Target
	Names  Names
	Mirror image.Reference // the repository that the operator reads the bundle from; not used by Upstream
}

// containerdName is the annotation in which containerd looks for a whole name; k3s and RKE2
// import with containerd.
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
	d, err := mover.Begin(ctx, mover.Job{What: "export", Graph: images, Target: in.Target}, o)
	if err != nil {
		return nil, err
	}
	done, err := d.Deliver(ctx, d.Origins(mover.From(in.Bundle)))
	if err == nil {
		done.Images = len(lock.Images)
	}
	return done, in.Bundle.Diagnosed(ctx, err)
}

// graph is the part of a bundle that its images are, with their names and without what is
// attached to them: containerd would not keep that.
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
	out.Root = ocispec.Descriptor{Digest: digest.FromBytes(names)} // neither the bundle nor a pull of it passes for it
	return out, err
}

// name is what a pod calls an image.
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
