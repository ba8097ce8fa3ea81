// Package matrix is the compatibility matrix: which driver releases fit which Kubernetes and
// vSphere versions, the sources of that, and the locations of their files.
//
// # The document
//
// A matrix is one YAML document in UTF-8, published and signed separately from the programs.
// [Parse] reads it strictly. [Document.Marshal] writes its canonical form, which Parse reads back
// to the same bytes.
//
//	apiVersion: vdo.vmware.com/matrix/v1
//	kind: CompatibilityMatrix
//	serial: 7                        # only grows: readers that saw a newer one refuse an older
//	issued: 2026-09-01T00:00:00Z     # RFC 3339
//	expires: 2027-09-01T00:00:00Z    # after issued
//	vsphereAliases:                  # optional: versions that vCenters report for others
//	  - reports: 6.7.0
//	    fromBuild: 14367737          # of this build or later; an unknown build matches, with a warning
//	    means: 6.7.3
//	    basis: where this comes from
//	releases:                        # at least one, each driver and version once
//	  - driver: csi                  # cni, cpi, csi or snapshot-controller
//	    version: 3.5.1               # semantic version, no build metadata
//	    state: current               # current, lts, deprecated or withdrawn
//	    reason: why                  # required for deprecated and withdrawn
//	    oneWay: why                  # optional: it changes data so that older releases cannot read it
//	    kubernetes:                  # inclusive on both ends
//	      min: "1.31"
//	      max: "1.33"                # optional for cni and snapshot-controller: no upper bound
//	      basis: where the range comes from
//	      derived: true              # optional: our conclusion, not stated upstream
//	    vsphere:                     # required for cpi and csi
//	      min: 7.0.0
//	      max: "8.0"                 # optional; covers all versions that begin with it: 8.0 covers 8.0.3, 8 covers 8.1.0
//	      basis: where the range comes from
//	      derived: true
//	    requires:                    # optional, csi only
//	      - driver: cpi              # cpi or snapshot-controller, each once
//	        optional: true           # recommended: works without
//	      - driver: snapshot-controller
//	        version: 8.2.0           # exactly this one, also listed; without version any that fits
//	    manifests:                   # at least one, in the order of applying them
//	      - name: vsphere-csi-driver.yaml  # a base name, once in the release
//	        part: webhook            # optional: webhook, which rendering may omit
//	        url: https://host/path   # http or https; where the file is published
//	        size: 22841              # bytes
//	        sha256: 64 lower-case hexadecimal digits
//	    images:                      # optional: replaced references of the manifests
//	      - from: the reference as the manifest writes it
//	        to: the reference to use
//	        basis: why
//	    notes:                       # optional, for people
//	      - text
//	services:                        # optional: services of tenant clusters
//	  - service: haproxy             # dex or haproxy, each version once
//	    version: 3.2.23
//	    state: lts                   # as above
//	    reason: why                  # required for deprecated and withdrawn
//	    image: docker.io/library/haproxy:3.2.23  # with a tag or a digest
//	    basis: where image and state come from
//	    notes:                       # optional, for people
//	      - text
//	needs:                           # optional: what releases need of a cluster
//	  - object: apps/v1 DaemonSet vmware-system-csi/vsphere-csi-node
//	    of: [csi@3.5.1]              # releases, listed above, whose manifests have exactly this object
//	    has:                         # optional: everything in it that gives power, a line each
//	      - "spec.template.spec.hostNetwork: true"
//
// # What releases need
//
// A release with any entry under needs is listed. Its entries are then all objects of its
// manifests, each with everything that gives it power. Package needs specifies the lines, and makes
// them from the manifests. Operators install exactly the listed objects. The release's sha256 sums
// bind them to the bytes, and the document's signature to the publisher. The lines are always
// generated.
//
// # What is refused
//
// Parse reports all problems of a document together, each with file, line and key. It first checks
// the form: unknown keys, repeated keys and values of another form. Then it checks the content:
//
//   - releases listed twice, and an object listed twice for a release;
//   - inverted ranges, and invalid addresses and sha256 sums;
//   - a state of deprecated or withdrawn without a reason;
//   - an expiry that is not after the issue;
//   - a requirement that no listed release meets;
//   - a cpi whose Kubernetes range is not exactly its own minor.
//
// A document has at most [MaxSize] bytes, and at most 20000 elements in a list. Parse refuses YAML
// aliases and merge keys.
//
// # States
//
// A current release is a normal choice. An lts release is maintained beside newer lines: policy lts
// prefers it. A deprecated release is chosen only if no better one fits. A withdrawn release is
// never chosen, not even by a pin, and a site that runs it gets a warning.
//
// An irreversible (one-way) upgrade has no way back: neither a rollback nor an approval allows an
// older release.
//
// Upstream publishes no support states. The default document derives them, and says so in each
// reason:
//   - withdrawn: no public registry has the images any longer;
//   - deprecated: upstream's own list of releases dropped the line;
//   - lts: the newest patch of a line that was patched after a newer line began.
//
// # Services
//
// A service is one image, which fits any Kubernetes and vSphere. [Document.ChooseService] chooses
// the newest release that is current or lts, or else deprecated, and never a withdrawn one. The
// program that runs the service decides when to choose.
//
// # Resolution
//
// [Resolve] is a pure function from the facts of a site to a [Selection] or a [Refusal]. Its
// comment has the rules.
package matrix

import (
	_ "embed" // the default document
	"errors"
	"slices"
	"time"
)

// Identification of the document format, and its bound.
const (
	APIVersion = "vdo.vmware.com/matrix/v1"
	Kind       = "CompatibilityMatrix"
	// MaxSize is the largest size of a document, in bytes.
	MaxSize = 4 << 20
)

// Driver is a kind of release in a matrix.
type Driver string

// Drivers in installation order.
const (
	CNI                Driver = "cni"
	CPI                Driver = "cpi"
	SnapshotController Driver = "snapshot-controller"
	CSI                Driver = "csi"
)

// Drivers returns the drivers in installation order.
func Drivers() []Driver { return []Driver{CNI, CPI, SnapshotController, CSI} }

// ParseDriver reads a driver's name.
func ParseDriver(s string) (Driver, error) {
	if d := Driver(s); d.Valid() {
		return d, nil
	}
	return "", unknown("driver", s, Drivers())
}

// Valid reports whether the driver is one of the four.
func (d Driver) Valid() bool { return d.order() < len(Drivers()) }

// order returns the driver's place in installation order; unknown drivers come last.
func (d Driver) order() int {
	if i := slices.Index(Drivers(), d); i >= 0 {
		return i
	}
	return len(Drivers())
}

// Document is a compatibility matrix.
type Document struct {
	Serial   int64     // only grows
	Issued   time.Time // UTC
	Expires  time.Time // UTC
	Aliases  []VSphereAlias
	Releases []Release        // sorted by driver, then version
	Services []ServiceRelease // sorted by service, then version
	Needs    []Need
}

// Release returns a release of a driver by its version as text, including build metadata.
func (d *Document) Release(id ReleaseID) (Release, bool) { return find(d.Releases, id) }

func find(releases []Release, id ReleaseID) (Release, bool) {
	i := slices.IndexFunc(releases, func(r Release) bool { return r.ReleaseID.Compare(id) == 0 })
	if i < 0 {
		return Release{}, false
	}
	return releases[i], true
}

// Need is an object of releases, with everything that gives it power. Package needs creates the values.
type Need struct {
	Object string      // "apps/v1 DaemonSet namespace/name"
	Of     []ReleaseID // sorted
	Has    []string    // sorted lines
}

// NeedsOf returns the lines of each object that a release needs, and whether the document lists any.
func (d *Document) NeedsOf(id ReleaseID) (objects map[string][]string, listed bool) {
	objects = map[string][]string{}
	for _, n := range d.Needs {
		if slices.ContainsFunc(n.Of, func(r ReleaseID) bool { return r.Compare(id) == 0 }) {
			objects[n.Object] = n.Has
		}
	}
	return objects, len(objects) > 0
}

// WhyUnlisted is why the operator does not install an unlisted release.
const WhyUnlisted = "the matrix does not list what it needs of a cluster"

// Unlisted returns the releases whose needs the document does not list, for [Policy.Refused]. It
// returns none for an older document without any needs.
func (d *Document) Unlisted() map[string]string {
	out := map[string]string{}
	if len(d.Needs) == 0 {
		return out
	}
	for _, r := range d.Releases {
		out[r.ReleaseID.String()] = WhyUnlisted
	}
	for _, n := range d.Needs {
		for _, id := range n.Of {
			delete(out, id.String())
		}
	}
	return out
}

// VSphereAlias is a version that vCenters of another version report: all of 6.7 up to Update 3 report 6.7.0.
type VSphereAlias struct {
	Reports   Version `yaml:"reports"`
	FromBuild uint64  `yaml:"fromBuild,omitempty"` // of this build or later; 0 means any
	Means     Version `yaml:"means"`
	Basis     string  `yaml:"basis"`
}

// State is the support state of a release.
type State string

// The support states.
const (
	Current    State = "current"
	LTS        State = "lts"
	Deprecated State = "deprecated"
	Withdrawn  State = "withdrawn"
)

// States returns the support states, best first.
func States() []State { return []State{Current, LTS, Deprecated, Withdrawn} }

// Valid reports whether the state is one of the four.
func (s State) Valid() bool { return slices.Contains(States(), s) }

// Release is one version of a driver and its data.
type Release struct {
	ReleaseID  `yaml:",inline"`
	State      State           `yaml:"state"`
	Reason     string          `yaml:"reason,omitempty"` // why deprecated or withdrawn
	OneWay     string          `yaml:"oneWay,omitempty"` // why no older release may replace it; "" if one may
	Kubernetes KubernetesRange `yaml:"kubernetes"`
	VSphere    VSphereRange    `yaml:"vsphere,omitempty"`
	Requires   []Requirement   `yaml:"requires,omitempty"`
	Manifests  []Manifest      `yaml:"manifests"` // in the order of applying them
	Images     []ImageOverride `yaml:"images,omitempty"`
	Notes      []string        `yaml:"notes,omitempty"`
}

// ReleaseID names a release: "csi@3.5.1".
type ReleaseID struct {
	Driver  Driver  `yaml:"driver"`
	Version Version `yaml:"version"`
}

// KubernetesRange is inclusive on both ends; a zero Max means no maximum.
type KubernetesRange struct {
	Min     Minor  `yaml:"min"`
	Max     Minor  `yaml:"max,omitempty"`
	Basis   string `yaml:"basis"`             // where the range comes from
	Derived bool   `yaml:"derived,omitempty"` // our conclusion, not stated upstream
}

// Contains reports whether a minor is in the range.
func (r KubernetesRange) Contains(m Minor) bool {
	return r.Min.Compare(m) <= 0 && (r.Max.IsZero() || m.Compare(r.Max) <= 0)
}

// String returns "1.31 to 1.33", "1.33" or "1.23 and later".
func (r KubernetesRange) String() string {
	switch {
	case r.Max.IsZero():
		return r.Min.String() + " and later"
	case r.Min == r.Max:
		return r.Min.String()
	}
	return r.Min.String() + " to " + r.Max.String()
}

// VSphereRange is inclusive on both ends; a zero Min or Max means no limit. Max covers its patches
// as written: 8.0 covers 8.0.x.
type VSphereRange struct {
	Min     Version `yaml:"min"`
	Max     Ceiling `yaml:"max,omitempty"`
	Basis   string  `yaml:"basis"`
	Derived bool    `yaml:"derived,omitempty"`
}

// Contains reports whether a version is in the range.
func (r VSphereRange) Contains(v Version) bool {
	return !v.LessThan(r.Min) && r.Max.Covers(v)
}

// String returns "7.0.0 to 8.0", "7.0.0 and later", "up to 8.0" or "any".
func (r VSphereRange) String() string {
	switch {
	case r.Min.IsZero() && r.Max.IsZero():
		return "any"
	case r.Max.IsZero():
		return r.Min.String() + " and later"
	case r.Min.IsZero():
		return "up to " + r.Max.String()
	}
	return r.Min.String() + " to " + r.Max.String()
}

// Requirement is another driver that a release needs. A zero Version means any release that fits.
type Requirement struct {
	Driver   Driver  `yaml:"driver"`
	Version  Version `yaml:"version,omitempty"`
	Optional bool    `yaml:"optional,omitempty"` // recommended, not needed
}

// String returns "snapshot-controller@8.2.0", or the driver alone.
func (r Requirement) String() string {
	if r.Version.IsZero() {
		return string(r.Driver)
	}
	return ReleaseID{Driver: r.Driver, Version: r.Version}.String()
}

// Part is an optional part of a release. The zero value is the required part.
type Part string

// PartWebhook is the driver's admission webhook, which needs a certificate.
const PartWebhook Part = "webhook"

// Manifest is one upstream file.
type Manifest struct {
	Name   string `yaml:"name"`           // base name, unique within the release
	Part   Part   `yaml:"part,omitempty"` // the optional part, or ""
	URL    string `yaml:"url"`
	Size   int64  `yaml:"size"`   // bytes
	SHA256 string `yaml:"sha256"` // 64 lower-case hex digits
}

// ImageOverride replaces an image reference that the manifest names.
type ImageOverride struct {
	From  string `yaml:"from"` // reference as the manifest writes it
	To    string `yaml:"to"`   // reference to use
	Basis string `yaml:"basis"`
}

func each[A, B any](in []A, f func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}

//go:embed default.yaml
var defaultDocument []byte

// defaultNeeds is the part "needs" of the document, which `make needs` writes.
//
//go:embed default-needs.yaml
var defaultNeeds []byte

// DefaultName names the default document in errors.
const DefaultName = "default matrix"

// Default returns the bytes of the document in the programs.
func Default() []byte { return slices.Concat(defaultDocument, defaultNeeds) }

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
