package lock

import (
	"fmt"
	"path"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Operator is this project's own operator as a part of a bundle: an image whose tag
// is a version. Its install manifests are those of package deploy; with the services of
// tenant clusters, those of the operator for SIPClusters too, which is the same program.
type Operator struct {
	Image   image.Reference
	Version matrix.Version
}

// NewOperator reads the reference of the operator's image.
func NewOperator(reference string) (*Operator, error) {
	ref, v, err := versioned(reference, string(bundle.Operator))
	if err != nil {
		return nil, err
	}
	return &Operator{Image: ref, Version: v}, nil
}

// NewJumpHost reads the reference of the jump host's image, which is of this project's
// release as the operator's is.
func NewJumpHost(reference string) (*matrix.ServiceRelease, error) {
	_, v, err := versioned(reference, string(bundle.JumpHost))
	if err != nil {
		return nil, err
	}
	id := matrix.ReleaseID{Driver: bundle.JumpHost, Version: v}
	return &matrix.ServiceRelease{ReleaseID: id, Image: reference}, nil
}

// JumpHostBeside returns the reference of the jump host's image that a release has beside
// the operator's: the same registry, folder and tag.
func JumpHostBeside(operator image.Reference) (reference string, ok bool) {
	folder, name := path.Split(operator.Repository())
	if name != string(bundle.Operator) || operator.Tag() == "" {
		return "", false
	}
	return folder + string(bundle.JumpHost) + ":" + operator.Tag(), true
}

// versioned reads a reference whose tag is the version of what is in the image.
func versioned(reference, program string) (image.Reference, matrix.Version, error) {
	ref, err := image.ParseReference(reference)
	if err != nil {
		return ref, matrix.Version{}, err
	}
	v, err := matrix.ParseVersion(ref.Tag())
	if err != nil {
		return ref, v, fault.Errorf(fault.InvalidInput, "read image", reference,
			fmt.Sprintf("write it with the version as tag: registry.example/%s:v1.2.3", program),
			"its tag %q is not a version", ref.Tag())
	}
	return ref, v, nil
}

// release is what a matrix would list of it.
func (o *Operator) release(services bool) matrix.Release {
	r := matrix.Release{
		ReleaseID: matrix.ReleaseID{Driver: bundle.Operator, Version: o.Version},
		Images:    []matrix.ImageOverride{{From: deploy.Image, To: o.Image.String(), Basis: "it was asked for by that name"}},
	}
	manifests := deploy.Manifests()
	if services {
		manifests = append(manifests, deploy.SIPManifests()...)
	}
	for _, m := range manifests {
		r.Manifests = append(r.Manifests, matrix.Manifest{Name: m.Name, Size: int64(len(m.Data)), SHA256: image.DigestOf(m.Data).Hex()})
	}
	return r
}
