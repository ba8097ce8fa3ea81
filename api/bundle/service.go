package bundle

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// JumpHost stands in the place of a driver for this project's own jump host of tenant
// clusters. No matrix lists it.
const JumpHost matrix.Driver = "vdo-jumphost"

// IsService tells whether a release is of a service: one image, without manifests.
func IsService(d matrix.Driver) bool {
	return d == JumpHost || slices.Contains(matrix.Services(), d)
}

// Service returns the image to run for a service, and its version: of those that the lock
// has, the one that the matrix chooses ([matrix.Document.ChooseService]), of the jump host
// the newest.
func (l *Lock) Service(service matrix.Driver, doc *matrix.Document) (Image, matrix.Version, error) {
	held := map[string]Release{}
	available := matrix.Available{}
	var newest matrix.Version
	for _, r := range l.Releases {
		if r.Driver == service {
			held[r.Version.String()], available[r.ID()], newest = r, true, r.Version // sorted by version
		}
	}
	if len(held) == 0 {
		return Image{}, matrix.Version{}, noService(service, errors.New("the bundle holds no release of it"))
	}
	if service != JumpHost {
		chosen, err := doc.ChooseService(service, available)
		if err != nil {
			return Image{}, matrix.Version{}, noService(service, fmt.Errorf("of the bundle's releases: %w", err))
		}
		newest = chosen.Version
	}
	for _, to := range held[newest.String()].Images {
		if i, ok := l.Image(to); ok {
			return i, newest, nil
		}
	}
	return Image{}, matrix.Version{}, noService(service, errors.New("the bundle holds no image of it"))
}

func noService(service matrix.Driver, why error) error {
	return fault.Errorf(fault.NotFound, "find service", string(service),
		"make the bundle with `vdo-bundle lock --services sip`, sign it and push it", "%w", why)
}

func checkService(c *checker, key string, r Release) {
	c.require(len(r.Manifests) == 0, key+".manifests", "%s is a service, which has none", r.Driver)
	c.require(len(r.Images) == 1, key+".images", "%s is a service, which has one, not %d", r.Driver, len(r.Images))
}
