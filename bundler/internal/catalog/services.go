package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Service is a release of a service: one image, without manifests.
type Service struct {
	matrix.ReleaseID
	Image string // as the matrix, or the user, writes it
}

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
		if slices.ContainsFunc(b.taken, func(s Service) bool { return s.Driver == service }) {
			continue
		}
		s, err := b.doc.ChooseService(service, nil)
		if err != nil {
			problems = append(problems, &fault.Error{
				Reason: fault.NotFound, Op: "select", Subject: "service " + string(service), Err: err,
				Hint: "give a matrix that lists it with --matrix, or name a release with --release " + string(service) + "@VERSION",
			})
			continue
		}
		b.takeService(s)
	}
	slices.SortFunc(b.taken, func(x, y Service) int { return x.ReleaseID.Compare(y.ReleaseID) })
	b.taken = slices.CompactFunc(b.taken, func(x, y Service) bool { return x.ReleaseID.Compare(y.ReleaseID) == 0 })
	return fault.Join(problems...)
}

// named takes the release of a service that the user named.
func (b *builder) named(id matrix.ReleaseID) error {
	if !slices.Contains(b.req.Services, id.Driver) {
		return &fault.Error{
			Reason: fault.InvalidInput, Op: "select", Subject: "release " + id.String(), Err: errors.New("it is of a service, and no services are asked for"),
			Hint: "add --services sip, or leave the release out",
		}
	}
	s, ok := b.doc.Service(id)
	if !ok {
		return b.noSuchService(id)
	}
	b.takeService(s)
	return nil
}

func (b *builder) noSuchService(id matrix.ReleaseID) error {
	var others []string
	for _, s := range b.doc.Services {
		if s.Driver == id.Driver {
			others = append(others, s.Version.String())
		}
	}
	hint := "give a matrix that lists it with --matrix"
	if len(others) > 0 {
		hint = fmt.Sprintf("the matrix lists %s@%s", id.Driver, strings.Join(others, ", "))
	}
	return &fault.Error{
		Reason: fault.NotFound, Op: "select", Subject: "release " + id.String(), Hint: hint,
		Err: fmt.Errorf("the matrix of serial %d does not list it", b.doc.Serial),
	}
}

func (b *builder) takeService(s matrix.ServiceRelease) {
	b.taken = append(b.taken, Service{ReleaseID: s.ReleaseID, Image: s.Image})
	if s.State == matrix.Withdrawn || s.State == matrix.Deprecated {
		b.warnings = append(b.warnings, fmt.Sprintf("%s is %s: %s", s.ReleaseID, s.State, s.Reason))
	}
}

// readService returns what the lock says of a service, and its image.
func readService(s Service) (bundle.Release, Image, error) {
	ref, err := image.ParseReference(s.Image)
	if err != nil {
		return bundle.Release{}, Image{}, fmt.Errorf("image of %s: %w", s.ReleaseID, err)
	}
	i := Image{Reference: ref, UsedBy: []string{s.ReleaseID.String()}}
	if moved, why := image.Relocate(ref); why != "" {
		i.Source, i.Reason = moved, join(why)
	}
	return bundle.Release{Driver: s.Driver, Version: s.Version, Images: map[string]string{s.Image: ref.String()}}, i, nil
}
