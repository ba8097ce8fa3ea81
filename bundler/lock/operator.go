package lock

import (
	"fmt"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Operator is this project's own operator as a part of a bundle: an image whose tag
// is a version. Its install manifests are those of package deploy.
type Operator struct {
	Image   image.Reference
	Version matrix.Version
}

// NewOperator reads the reference of the operator's image.
func NewOperator(reference string) (*Operator, error) {
	ref, err := image.ParseReference(reference)
	if err != nil {
		return nil, err
	}
	v, err := matrix.ParseVersion(ref.Tag())
	if err != nil {
		return nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "read image", Subject: reference, Err: fmt.Errorf("its tag %q is not a version", ref.Tag()),
			Hint: "write it with the operator's version as tag: registry.example/vdo-operator:v1.2.3",
		}
	}
	return &Operator{Image: ref, Version: v}, nil
}

// release is what a matrix would list of it.
func (o *Operator) release() matrix.Release {
	r := matrix.Release{
		ReleaseID: matrix.ReleaseID{Driver: bundle.Operator, Version: o.Version},
		Images:    []matrix.ImageOverride{{From: deploy.Image, To: o.Image.String(), Basis: "it was asked for by that name"}},
	}
	for _, m := range deploy.Manifests() {
		r.Manifests = append(r.Manifests, matrix.Manifest{Name: m.Name, Size: int64(len(m.Data)), SHA256: image.DigestOf(m.Data).Hex()})
	}
	return r
}
