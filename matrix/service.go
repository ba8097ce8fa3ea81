package matrix

import (
	"errors"
	"slices"
)

// Services of tenant clusters by other projects. They replace the driver in a [ReleaseID] and are
// not drivers: Resolve does not match them with Kubernetes or vSphere.
const (
	Dex     Driver = "dex"
	HAProxy Driver = "haproxy"
)

// Services returns the services in the order of their names.
func Services() []Driver { return []Driver{Dex, HAProxy} }

// ParseService reads a service's name.
func ParseService(s string) (Driver, error) {
	if d := Driver(s); slices.Contains(Services(), d) {
		return d, nil
	}
	return "", unknown("service", s, Services())
}

// ServiceRelease is one version of a service: one image.
type ServiceRelease struct {
	ReleaseID        // of the service
	State     State  // as that of a driver's release
	Reason    string // why deprecated or withdrawn
	Image     string // reference with a tag or a digest, as the publisher names it
	Basis     string // where image and state come from
	Notes     []string
}

// ParseServiceID reads "haproxy@3.2.23".
func ParseServiceID(s string) (ReleaseID, error) {
	return parseID(s, "is not a release of a service: write it as SERVICE@VERSION, such as haproxy@3.2.23", ParseService)
}

// Service returns a release of a service, as Release does for a driver.
func (d *Document) Service(id ReleaseID) (ServiceRelease, bool) {
	i := slices.IndexFunc(d.Services, func(s ServiceRelease) bool { return s.ReleaseID.Compare(id) == 0 })
	if i < 0 {
		return ServiceRelease{}, false
	}
	return d.Services[i], true
}

// ErrNoService reports that no release of a service can be chosen.
var ErrNoService = errors.New("the matrix has no release of it that is not withdrawn")

// ChooseService returns the newest release of a service that is current or lts, else the newest
// deprecated one, never a withdrawn one. If held is not nil, it chooses only from that.
func (d *Document) ChooseService(service Driver, held Available) (ServiceRelease, error) {
	fit := slices.DeleteFunc(slices.Clone(d.Services), func(s ServiceRelease) bool {
		return s.Driver != service || s.State == Withdrawn || (held != nil && !held[s.ReleaseID.String()])
	})
	if len(fit) == 0 {
		return ServiceRelease{}, ErrNoService
	}
	return slices.MaxFunc(fit, func(a, b ServiceRelease) int {
		switch isOld := a.State == Deprecated; {
		case isOld == (b.State == Deprecated):
			return a.Version.Compare(b.Version)
		case isOld:
			return -1
		}
		return 1
	}), nil
}
