package installer

import (
	"context"
	"errors"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// mirror is a bundle in a registry.
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
