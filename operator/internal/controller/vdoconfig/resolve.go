package vdoconfig

import (
	"errors"
	"maps"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// question is what is asked of the matrix.
type question struct {
	spec v1alpha1.VDOConfigSpec
	hold error // why nothing new may be installed
	// gates are why single drivers stay what they are, and current what those are.
	gates     map[matrix.Driver]error
	current   map[matrix.Driver]matrix.Version
	document  *matrix.Document
	available matrix.Available
	refused   map[string]string // why a release of the bundle may not be installed anew
	facts     matrix.Facts
}

// decision is what shall be there.
type decision struct {
	made     bool                      // false where nothing could be asked
	from     *opened                   // the bundle that was asked; nil where none was
	current  map[matrix.Driver]current // the drivers that stay what they are
	releases []matrix.ReleaseID        // in order of installation, at most one a driver
	reasons  map[matrix.Driver][]string
	// held are drivers that are asked for and left as they are, and why.
	held      map[matrix.Driver]string
	warnings  []string
	withdrawn map[matrix.Driver]string // of what is installed
	unfit     map[matrix.Driver]string // why what is installed does not fit the cluster
	refused   error
	ahead     ahead
}

// version returns the version decided for a driver, or "".
func (d decision) version(driver matrix.Driver) string {
	for _, id := range d.releases {
		if id.Driver == driver {
			return id.Version.String()
		}
	}
	return ""
}

// resolve asks the matrix.
func (s *site) resolve() decision {
	if s.bundle == nil {
		return decision{held: map[matrix.Driver]string{}, reasons: map[matrix.Driver][]string{}}
	}
	return s.choose(s.bundle, s.hold(), s.faults)
}

// hold is why nothing new may be installed now, or nil.
func (s *site) hold() error {
	switch {
	case s.ungated:
	case s.held != nil:
		return s.held
	case s.waiting != "":
		return awaited(s.waiting)
	case s.frozen != "":
		return &fault.Error{Reason: fault.Refused, Op: "install", Subject: "drivers", Err: errors.New(s.frozen)}
	}
	return nil
}

// questionOf is what is asked of a bundle's matrix.
func (s *site) questionOf(b *opened, hold error) question {
	q := question{
		spec: s.config.Spec, hold: hold, gates: s.gates(), current: map[matrix.Driver]matrix.Version{},
		document:  b.matrix,
		available: available(b.contents.Lock), refused: s.unlisted(b),
		facts: matrix.Facts{Kubernetes: s.kubernetes.version, VCenters: s.versions, Distribution: s.distribution,
			Installed: s.installed},
	}
	for d := range q.gates {
		if c, installed := s.currentOf(d); installed {
			q.current[d] = c.id.Version
			if c.from != nil {
				q.available[c.id.String()] = true
			}
		}
	}
	return q
}

// choose decides from a bundle; drivers at fault are left as they are.
func (s *site) choose(b *opened, hold error, faults map[matrix.Driver]error) decision {
	d := decide(s.questionOf(b, hold))
	d.from = b
	for _, driver := range s.retained {
		d.held[driver] = "it serves volumes"
	}
	d = s.stay(d)
	for driver, why := range faults {
		d = d.without(driver, why.Error())
	}
	return d
}

// without leaves a driver as it is, and says why.
func (d decision) without(driver matrix.Driver, why string) decision {
	d.releases = slices.DeleteFunc(slices.Clone(d.releases), func(id matrix.ReleaseID) bool { return id.Driver == driver })
	d.held, d.current = maps.Clone(d.held), maps.Clone(d.current)
	delete(d.current, driver)
	d.held[driver] = why
	return d
}

// manual tells whether upgrades wait for a person: as the VDOConfig says, else as
// the predecessor's matrix ConfigMap does.
func manual(spec *v1alpha1.VDOConfigSpec, b *v1alpha1.DriverBundle) bool {
	mode := spec.Upgrade
	if mode == "" {
		mode = v1alpha1.UpgradeMode(b.Annotations[v1alpha1.AnnotationUpgrade])
	}
	return mode == v1alpha1.UpgradeManual
}

// unlisted are the releases of a bundle whose needs no matrix lists; those that are
// installed may stay.
func (s *site) unlisted(b *opened) map[string]string {
	refused := map[string]string{}
	for _, r := range b.contents.Lock.Releases {
		if !r.Driver.Valid() || s.installed[r.Driver].Equal(r.Version) {
			continue
		}
		if err := render.Listed(b.contents.Lock, matrix.ReleaseID{Driver: r.Driver, Version: r.Version}, b.matrix); err != nil {
			refused[r.ID()] = err.Error()
		}
	}
	return refused
}

func available(l *bundle.Lock) matrix.Available {
	all := matrix.Available{}
	for _, r := range l.Releases {
		all[r.ID()] = true
	}
	return all
}

// policies turns the spec into rules and pins. A driver without a provider in the
// spec is not asked for, whatever its policy says.
func policies(spec v1alpha1.VDOConfigSpec) (map[matrix.Driver]matrix.Rule, matrix.Pins, error) {
	rules, pins := map[matrix.Driver]matrix.Rule{}, matrix.Pins{}
	var errs []error
	for _, d := range spec.Drivers {
		if d.Policy != "" {
			rules[matrix.Driver(d.Driver)] = matrix.Rule(d.Policy)
		}
		if d.Version == "" {
			continue
		}
		v, err := matrix.ParseVersion(d.Version)
		if err != nil {
			errs = append(errs, &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: "spec.drivers[" + d.Driver + "].version", Hint: "write it as 3.5.1", Err: err})
			continue
		}
		pins[matrix.Driver(d.Driver)] = v
		if d.Driver == string(matrix.CNI) && d.Policy == "" {
			rules[matrix.CNI] = matrix.Latest // a pin asks for it
		}
	}
	if spec.Cloud() == nil {
		rules[matrix.CPI] = matrix.Disabled
		delete(pins, matrix.CPI)
	}
	if spec.StorageProvider == nil {
		rules[matrix.CSI], rules[matrix.SnapshotController] = matrix.Disabled, matrix.Disabled
		delete(pins, matrix.CSI)
		delete(pins, matrix.SnapshotController)
	}
	return rules, pins, fault.Join(errs...)
}

// asked returns the drivers that the spec asks for, in order of installation. The
// snapshot-controller comes with the storage driver.
func asked(rules map[matrix.Driver]matrix.Rule) []matrix.Driver {
	var all []matrix.Driver
	if r := rules[matrix.CNI]; r != "" && r != matrix.Disabled {
		all = append(all, matrix.CNI)
	}
	for _, d := range []matrix.Driver{matrix.CPI, matrix.SnapshotController, matrix.CSI} {
		if rules[d] != matrix.Disabled {
			all = append(all, d)
		}
	}
	return all
}

// decide is the whole of choosing, but for what becomes of the drivers that are gated: pure.
func decide(q question) decision {
	d := decision{made: true, reasons: map[matrix.Driver][]string{}, held: map[matrix.Driver]string{},
		withdrawn: withdrawn(q.document, q.facts.Installed), unfit: map[matrix.Driver]string{}}
	rules, pins, err := policies(q.spec)
	if err != nil {
		d.refused = err
		return d.gated(asked(rules), err)
	}
	selection, refusal, stuck := q.ask(matrix.Policy{Rules: rules, KeepInstalled: q.hold != nil,
		Refused: q.refused}, pins)
	for _, w := range selection.Warnings {
		d.warnings = append(d.warnings, w.Text)
		if w.Code == matrix.WarnInstalledUnfit {
			d.unfit[w.Release.Driver] = w.Text
		}
	}
	d.ahead = lookAhead(q, rules, pins)
	switch {
	case refusal != nil:
		d.refused = refusalFault(refusal)
		return d.gated(asked(rules), errors.New("no release fits"))
	case q.hold != nil:
		return d.gated(asked(rules), q.hold)
	case stuck:
		return d.gated(asked(rules), together(q.gates))
	}
	for _, c := range selection.Choices {
		if q.gates[c.Release.Driver] == nil {
			d.releases = append(d.releases, c.Release.ReleaseID)
			d.reasons[c.Release.Driver] = c.Reasons
		}
	}
	for driver, why := range q.gates {
		d = d.gated([]matrix.Driver{driver}, why)
	}
	if why := q.gates[matrix.CSI]; why != nil && d.version(matrix.SnapshotController) == "" &&
		slices.Contains(asked(rules), matrix.SnapshotController) {
		d.held[matrix.SnapshotController] = why.Error() // which one would be installed follows from the storage driver
	}
	return d
}

// gated has drivers stay what they are.
func (d decision) gated(drivers []matrix.Driver, why error) decision {
	for _, driver := range drivers {
		d.held[driver] = why.Error()
	}
	return d
}

func refusalFault(r *matrix.Refusal) error {
	return &fault.Error{
		Reason: fault.Incompatible, Op: "choose", Subject: "drivers", Err: r,
		Hint: "push a bundle with a release that fits, or change the pin; what is installed stays",
	}
}

// withdrawn says of each driver that is installed whether the matrix has withdrawn it.
func withdrawn(doc *matrix.Document, installed map[matrix.Driver]matrix.Version) map[matrix.Driver]string {
	all := map[matrix.Driver]string{}
	for _, d := range slices.Sorted(maps.Keys(installed)) {
		for _, r := range doc.Releases {
			if r.Driver != d || !r.Version.Equal(installed[d]) || r.State != matrix.Withdrawn {
				continue
			}
			all[d] = r.Reason
			if r.Reason == "" {
				all[d] = "withdrawn"
			}
		}
	}
	return all
}
