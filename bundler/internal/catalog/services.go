package catalog

import (
	"fmt"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// services chooses a release of each service that is asked for: those that are named, else
// the newest that is supported.
func (b *builder) services() error {
	var problems []error
	for _, id := range b.req.Releases {
		if bundle.IsService(id.Driver) {
			problems = append(problems, b.named(id))
		}
	}
	for _, service := range b.req.Services {
		if slices.ContainsFunc(b.Services, func(s matrix.ServiceRelease) bool { return s.Driver == service }) {
			continue
		}
		s, err := b.doc.ChooseService(service, nil)
		if err != nil {
			problems = append(problems, fault.Errorf(fault.NotFound, "select", "service "+string(service),
				"give a matrix that lists it with --matrix, or name a release with --release "+string(service)+"@VERSION",
				"%w", err))
			continue
		}
		b.takeService(s)
	}
	slices.SortFunc(b.Services, func(x, y matrix.ServiceRelease) int { return x.ReleaseID.Compare(y.ReleaseID) })
	same := func(x, y matrix.ServiceRelease) bool { return x.ReleaseID.Compare(y.ReleaseID) == 0 }
	b.Services = slices.CompactFunc(b.Services, same)
	return fault.Join(problems...)
}

// named takes the release of a service that the user named.
func (b *builder) named(id matrix.ReleaseID) error {
	if !slices.Contains(b.req.Services, id.Driver) {
		return fault.Errorf(fault.InvalidInput, "select", "release "+id.String(),
			"add --services sip, or leave the release out", "it is of a service, and no services are asked for")
	}
	s, ok := b.doc.Service(id)
	if !ok {
		return notListed(b.doc, id)
	}
	b.takeService(s)
	return nil
}

func (b *builder) takeService(s matrix.ServiceRelease) {
	b.Services = append(b.Services, s)
	if s.State == matrix.Withdrawn || s.State == matrix.Deprecated {
		b.Warnings = append(b.Warnings, fmt.Sprintf("%s is %s: %s", s.ReleaseID, s.State, s.Reason))
	}
}

// readService returns what the lock says of a service, and its image.
func readService(s matrix.ServiceRelease) (bundle.Release, bundle.Image, error) {
	ref, err := image.ParseReference(s.Image)
	if err != nil {
		return bundle.Release{}, bundle.Image{}, fmt.Errorf("image of %s: %w", s.ReleaseID, err)
	}
	i := bundle.Image{Reference: ref, UsedBy: []string{s.ReleaseID.String()}}
	if moved, why := image.Relocate(ref); why != "" {
		i.Source, i.Reason = moved, join(why)
	}
	return bundle.Release{Driver: s.Driver, Version: s.Version, Images: map[string]string{s.Image: ref.String()}}, i, nil
}
