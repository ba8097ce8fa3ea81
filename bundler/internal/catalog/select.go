// Package catalog decides what a bundle contains. It is pure: it reads manifests and a matrix, and
// returns values. Its callers fetch.
//
//	selection, err := catalog.Select(doc, catalog.Request{Kubernetes: minors})
//	…fetch selection.Files()…
//	lock, err := catalog.Read(selection.Releases, files)
//	…resolve lock.Images to digests…
//
// [Select] turns a user's request into releases of the matrix. [Read] collects every image that the
// pod templates in the manifests of those releases name.
//
// # References
//
// A manifest's reference goes through three steps, which the lock records:
//
//  1. the matrix's override for this release, if the manifest names a floating or lagging tag: the
//     lock maps the written reference to the override's, and holds the image under that name;
//  2. normalisation, as container runtimes do it ([image.ParseReference]);
//  3. [image.Relocate], for registries that no longer exist: the lock keeps the image's name, and
//     records its location in source and the cause in reason.
//
// Two tags of one name are two images.
package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// DefaultMinors is how many Kubernetes minors a bundle covers by default.
const DefaultMinors = 3

// Request is what the user wants. The zero value selects the newest supported drivers for the last three Kubernetes
// minors of the matrix. Releases whose needs the matrix does not list must be named, since the operator refuses them.
type Request struct {
	Drivers    []matrix.Driver    // none: cpi, csi, and the snapshot-controller that csi qualifies
	Kubernetes []matrix.Minor     // none: the last three covered, unless Releases is set
	VSphere    []matrix.Version   // the vCenters of one cluster, all of which must be in range; none: any
	Releases   []matrix.ReleaseID // always taken, with their requirements; of a service, instead of the newest
	NoDrivers  bool               // services only
	Services   []matrix.Driver    // of [matrix.Services]
	File       string             // of the matrix, for hints; "": the built-in one
}

// Selection is the content of a bundle.
type Selection struct {
	Releases []matrix.Release        // sorted by driver, then version; each once
	Services []matrix.ServiceRelease // sorted by service, then version; each once
	Picks    []string                // per Kubernetes minor, newest first: "Kubernetes 1.35: cpi@1.35.1, csi@3.7.3"
	Warnings []string                // for the user; sorted
}

// Select chooses the releases of a bundle.
func Select(doc *matrix.Document, req Request) (Selection, error) {
	if len(req.Drivers) == 0 {
		req.Drivers = []matrix.Driver{matrix.CPI, matrix.CSI, matrix.SnapshotController}
	}
	b := builder{doc: doc, unlisted: doc.Unlisted(), req: req, chosen: map[string]bool{}}
	err := fault.Join(b.minors(), b.explicit(), b.services())
	if err != nil {
		return Selection{}, err
	}
	if len(b.chosen) == 0 && (!req.NoDrivers || len(b.Services) == 0) {
		hint := req.see()
		if req.NoDrivers {
			hint = "add --services sip, or leave out --drivers none"
		}
		return Selection{}, fault.Errorf(fault.Incompatible, "select", "drivers", hint, "no release fits the request")
	}
	for _, r := range doc.Releases { // the document's order is the lock's order
		if b.chosen[r.ReleaseID.String()] {
			b.Releases = append(b.Releases, r)
		}
	}
	slices.Sort(b.Warnings)
	b.Warnings = slices.Compact(b.Warnings)
	return b.Selection, nil
}

type builder struct {
	Selection
	doc      *matrix.Document
	unlisted map[string]string // see matrix.Document.Unlisted
	req      Request
	chosen   map[string]bool // by ReleaseID.String()
}

// minors resolves the requested Kubernetes minors, newest first. Without a request it takes the newest minors for
// which every requested driver has a release.
func (b *builder) minors() error {
	asked := slices.Clone(b.req.Kubernetes)
	isOfDriver := func(id matrix.ReleaseID) bool { return id.Driver.Valid() }
	if b.req.NoDrivers || len(asked) == 0 && slices.ContainsFunc(b.req.Releases, isOfDriver) {
		return nil
	}
	slices.SortFunc(asked, matrix.Minor.Compare)
	minors := slices.Compact(asked)
	if len(asked) == 0 {
		minors = b.doc.Minors()
	}
	var problems []error
	for _, minor := range slices.Backward(minors) {
		if len(asked) == 0 && len(b.Picks) == DefaultMinors {
			break
		}
		chosen, err := b.resolve(minor)
		if err != nil {
			problems = append(problems, fmt.Errorf("select drivers for Kubernetes %s: %w", minor, err))
			continue
		}
		b.take(minor, chosen)
	}
	switch {
	case len(asked) > 0 || len(problems) == 0:
		return fault.Join(problems...)
	case len(b.Picks) > 0:
		return nil
	}
	return problems[0]
}

func (b *builder) resolve(minor matrix.Minor) (matrix.Selection, error) {
	version, err := matrix.ParseKubernetes(minor.String())
	if err != nil {
		return matrix.Selection{}, err
	}
	facts := matrix.Facts{Kubernetes: version}
	for _, v := range b.req.VSphere {
		facts.VCenters = append(facts.VCenters, matrix.VCenter{Version: v})
	}
	selection, refusal := matrix.Resolve(b.doc, facts, nil, matrix.Policy{Rules: b.rules(), Refused: b.unlisted}, nil)
	if refusal != nil {
		return selection, refusal.Fault()
	}
	return selection, nil
}

// rules disables every driver that is not requested.
func (b *builder) rules() map[matrix.Driver]matrix.Rule {
	rules := map[matrix.Driver]matrix.Rule{}
	for _, d := range []matrix.Driver{matrix.CNI, matrix.CPI, matrix.SnapshotController, matrix.CSI} {
		rules[d] = matrix.Disabled
		if b.wants(d) {
			rules[d] = matrix.Latest
		}
	}
	return rules
}

func (b *builder) wants(d matrix.Driver) bool { return slices.Contains(b.req.Drivers, d) }

func (b *builder) take(minor matrix.Minor, s matrix.Selection) {
	var ids []string
	for _, c := range s.Choices {
		b.chosen[c.Release.ReleaseID.String()] = true
		ids = append(ids, c.Release.ReleaseID.String())
	}
	b.Picks = append(b.Picks, fmt.Sprintf("Kubernetes %s: %s", minor, strings.Join(ids, ", ")))
	for _, w := range s.Warnings {
		b.Warnings = append(b.Warnings, w.Text)
	}
}

// see is the hint to look at the matrix.
func (r Request) see() string {
	show := "vdo-bundle matrix show"
	if r.File != "" {
		show += " --matrix " + fault.Quote(r.File)
	}
	return "see `" + show + "` for what the matrix covers"
}

// explicit adds the releases that the user named, and their requirements.
func (b *builder) explicit() error {
	var problems []error
	for _, id := range b.req.Releases {
		if !id.Driver.Valid() {
			continue // see services
		}
		release, ok := b.doc.Release(id)
		if !ok {
			problems = append(problems, notListed(b.doc, id))
			continue
		}
		b.chosen[id.String()] = true
		b.warn(release)
		b.requirements(release)
	}
	return fault.Join(problems...)
}

// warn says why a release that the user named, or that it requires, does not serve the site.
func (b *builder) warn(release matrix.Release) {
	say := func(format string, args ...any) {
		b.Warnings = append(b.Warnings, release.ReleaseID.String()+fmt.Sprintf(format, args...))
	}
	if release.State == matrix.Withdrawn {
		b.Warnings = append(b.Warnings, release.Discouraged(release.State, release.Reason))
	}
	if why, unlisted := b.unlisted[release.ReleaseID.String()]; unlisted {
		say(": %s, so the operator will refuse it; `vdo-bundle matrix add` makes the list", why)
	}
	asked := b.req.Kubernetes // a cpi fits one of several
	if len(asked) > 0 && !slices.ContainsFunc(asked, release.Kubernetes.Contains) {
		say(" does not fit the given Kubernetes: it needs %s", release.Kubernetes)
	}
	for _, v := range b.req.VSphere {
		if !release.VSphere.Contains(v) {
			say(" does not fit vSphere %s: it needs %s", v, release.VSphere)
		}
	}
}

// requirements adds the exact releases that an explicit one qualifies, such as a CSI release's snapshot-controller,
// if that driver is requested.
func (b *builder) requirements(release matrix.Release) {
	for _, need := range release.Requires {
		if need.Version.IsZero() || !b.wants(need.Driver) {
			continue
		}
		id := matrix.ReleaseID{Driver: need.Driver, Version: need.Version}
		if required, ok := b.doc.Release(id); ok {
			b.chosen[id.String()] = true
			b.warn(required)
		} else {
			b.Warnings = append(b.Warnings, fmt.Sprintf("%s asks for %s, which the matrix does not list", release.ReleaseID, id))
		}
	}
}

// notListed returns a fault that names the releases that the matrix lists instead.
func notListed(doc *matrix.Document, id matrix.ReleaseID) error {
	listed := map[matrix.Driver][]string{}
	for _, r := range doc.Releases {
		listed[r.Driver] = append(listed[r.Driver], r.Version.String())
	}
	for _, s := range doc.Services {
		listed[s.Driver] = append(listed[s.Driver], s.Version.String())
	}
	hint := "give a matrix that lists it with --matrix"
	if others := listed[id.Driver]; len(others) > 0 {
		hint = fmt.Sprintf("the matrix lists %s@%s", id.Driver, strings.Join(others, ", "))
	}
	return fault.Errorf(fault.NotFound, "select", "release "+id.String(), hint,
		"the matrix of serial %d does not list it", doc.Serial)
}

// services selects a release of each requested service: the named ones, else the newest supported one.
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

// named adds a service's release that the user named.
func (b *builder) named(id matrix.ReleaseID) error {
	if !slices.Contains(b.req.Services, id.Driver) {
		return fault.Errorf(fault.InvalidInput, "select", "release "+id.String(),
			"add --services sip, or leave the release out", "it belongs to a service, and no services are requested")
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
	if why := s.Discouraged(s.State, s.Reason); why != "" {
		b.Warnings = append(b.Warnings, why)
	}
}

// readService returns the lock's entry for a service, and its image.
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
