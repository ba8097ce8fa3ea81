package vdoconfig

import (
	"errors"
	"fmt"
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
	spec   v1alpha1.VDOConfigSpec
	manual bool
	hold   error // why nothing new may be installed
	// holds are why nothing new may be installed of single drivers.
	holds     map[matrix.Driver]error
	document  *matrix.Document
	available matrix.Available
	refused   map[string]string // why a release of the bundle may not be installed anew
	facts     matrix.Facts
}

// decision is what shall be there.
type decision struct {
	made     bool                      // false where nothing could be asked
	from     *opened                   // the bundle that the releases are in; nil where none was made
	apart    map[matrix.Driver]*opened // the bundles of held drivers that come from another one
	releases []matrix.ReleaseID        // in order of installation, at most one a driver
	reasons  map[matrix.Driver][]string
	fixed    bool // they are those of a revision, whatever runs and the bundle has
	// held are drivers that are asked for and left as they are, and why.
	held map[matrix.Driver]string
	// pending upgrades that only wait for a person.
	pending   []string
	warnings  []string
	withdrawn map[matrix.Driver]string // of what is installed
	unfit     map[matrix.Driver]string // why what is installed does not fit the cluster
	refused   error
	// next says whether the bundle has releases for the next Kubernetes minor.
	nextMinor matrix.Minor
	next      error
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

// resolve asks the matrix. Where what is installed has to stay and the bundle does not
// hold it, or may not replace it, the one that it was installed from is used.
func (s *site) resolve() decision {
	if s.bundle == nil {
		return decision{held: map[matrix.Driver]string{}, reasons: map[matrix.Driver][]string{}}
	}
	d := s.choose(s.bundle, s.hold(), s.faults)
	if !s.staysWithLast(d) {
		return s.fromOrigins(s.keeps(d))
	}
	again := s.choose(s.last, fault.Join(s.hold(), d.refused, together(s.holds())), s.faults)
	again.refused = d.refused
	return s.fromOrigins(s.keeps(again))
}

// hold is why nothing new may be installed now, or nil.
func (s *site) hold() error {
	switch {
	case s.held != nil:
		return s.held
	case s.waiting != "":
		return awaited(s.waiting)
	case s.unkept != nil:
		return s.unkept
	case s.frozen != "":
		return &fault.Error{Reason: fault.Refused, Op: "install", Subject: "drivers", Err: errors.New(s.frozen)}
	}
	return nil
}

// staysWithLast tells whether all drivers stay with the bundle that they were installed from, whatever
// was decided from the accepted one: nothing of that comes in force then.
func (s *site) staysWithLast(d decision) bool {
	return s.last != nil && s.needsLast(d) && len(s.stranded(s.last)) == 0
}

// needsLast tells whether what was decided cannot or may not be had from the bundle.
func (s *site) needsLast(d decision) bool {
	return s.strands(d) || (s.bundleHeld && s.another(s.bundle))
}

// strands tells whether a decision leaves without its release what has to stay.
func (s *site) strands(d decision) bool {
	stranded, held := s.stranded(s.bundle), s.holds()
	return len(stranded) > 0 && (s.hold() != nil || d.refused != nil ||
		slices.ContainsFunc(stranded, func(id matrix.ReleaseID) bool { return held[id.Driver] != nil }))
}

// stranded are the installed releases of drivers that are asked for, or have to stay,
// which a bundle does not hold.
func (s *site) stranded(b *opened) []matrix.ReleaseID {
	holds, unasked := available(b.contents.Lock), s.unasked()
	var all []matrix.ReleaseID
	for _, d := range inOrder {
		id := matrix.ReleaseID{Driver: d, Version: s.installed[d]}
		wanted := !slices.Contains(unasked, d) || slices.Contains(s.retained, d)
		if _, there := s.installed[d]; there && wanted && s.runs(d) && !holds[id.String()] {
			all = append(all, id)
		}
	}
	return all
}

// questionOf is what is asked of a bundle's matrix.
func (s *site) questionOf(b *opened, hold error) question {
	return question{
		spec: s.config.Spec, manual: !s.revisions.approved && manual(&s.config.Spec, b.source), hold: hold, holds: s.holds(), document: b.matrix, available: available(b.contents.Lock),
		refused: s.unlisted(b),
		facts:   matrix.Facts{Kubernetes: s.kubernetes.version, VCenters: s.versions, Distribution: s.distribution, Installed: s.installed},
	}
}

// choose decides from a bundle; drivers at fault are left as they are.
func (s *site) choose(b *opened, hold error, faults map[matrix.Driver]error) decision {
	q := s.questionOf(b, hold)
	d := decide(q).with(s.retained, q)
	d.from = b
	for driver, why := range faults {
		d = d.without(driver, why.Error())
	}
	return d
}

// with adds drivers that have to stay as they are, in order of installation.
func (d decision) with(retained []matrix.Driver, q question) decision {
	if len(retained) == 0 {
		return d
	}
	d = d.keepInstalled(q, retained, "it serves volumes")
	d.sort()
	return d
}

// without leaves a driver as it is, and says why.
func (d decision) without(driver matrix.Driver, why string) decision {
	d.releases = slices.DeleteFunc(slices.Clone(d.releases), func(id matrix.ReleaseID) bool { return id.Driver == driver })
	if d.held = maps.Clone(d.held); d.held == nil {
		d.held = map[matrix.Driver]string{}
	}
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

// decide is the whole of choosing: pure.
func decide(q question) decision {
	d := decision{made: true, reasons: map[matrix.Driver][]string{}, held: map[matrix.Driver]string{},
		withdrawn: withdrawn(q.document, q.facts.Installed), unfit: map[matrix.Driver]string{}}
	rules, pins, err := policies(q.spec)
	if err != nil {
		d.refused = err
		return d.keepInstalled(q, asked(rules), err.Error())
	}
	keep := q.manual || q.hold != nil
	selection, refusal, stuck := q.ask(matrix.Policy{Rules: rules, KeepInstalled: keep, Refused: q.refused}, pins)
	for _, w := range selection.Warnings {
		d.warnings = append(d.warnings, w.Text)
		if w.Code == matrix.WarnInstalledUnfit {
			d.unfit[w.Release.Driver] = w.Text
		}
	}
	d.nextMinor, d.next = next(q, rules, pins)
	d.ahead = lookAhead(q, rules, pins)
	switch {
	case refusal != nil:
		d.refused = refusalFault(refusal)
		return d.keepInstalled(q, asked(rules), "no release fits")
	case q.hold != nil:
		return d.keepInstalled(q, asked(rules), q.hold.Error())
	case stuck:
		return d.keepInstalled(q, asked(rules), together(q.holds).Error())
	}
	for _, c := range selection.Choices {
		d.releases = append(d.releases, c.Release.ReleaseID)
		d.reasons[c.Release.Driver] = c.Reasons
	}
	if q.manual {
		d.pending = upgrades(q, rules, pins, d)
	}
	return d.keepHeld(q, asked(rules))
}

// keepInstalled decides for what is installed, as far as the bundle holds it: it is repaired,
// nothing else. The rest is left as it is.
func (d decision) keepInstalled(q question, drivers []matrix.Driver, why string) decision {
	for _, driver := range drivers {
		v, there := q.facts.Installed[driver]
		id := matrix.ReleaseID{Driver: driver, Version: v}
		switch {
		case !there:
			d.held[driver] = why
		case q.available[id.String()]:
			d.releases = append(d.releases, id)
			d.reasons[driver] = []string{"it is installed, and nothing else may be: " + why}
		default:
			d.held[driver] = fmt.Sprintf("%s is installed and the bundle does not hold it: %s", id, why)
		}
	}
	return d
}

// upgrades lists what an automatic upgrade would do.
func upgrades(q question, rules map[matrix.Driver]matrix.Rule, pins matrix.Pins, d decision) []string {
	selection, refusal := matrix.Resolve(q.document, q.facts, pins, matrix.Policy{Rules: rules, Refused: q.refused}, q.available)
	if refusal != nil {
		return nil
	}
	var all []string
	for _, c := range selection.Choices {
		from, to := d.version(c.Release.Driver), c.Release.Version.String()
		if from != "" && from != to {
			all = append(all, fmt.Sprintf("upgrade %[1]s@%[2]s to %[1]s@%[3]s: consent to it in spec.upgradePolicy.approval, set spec.upgrade to Automatic, or pin it in spec.drivers", c.Release.Driver, from, to))
		}
	}
	return all
}

// next asks the same question for the Kubernetes minor to come.
func next(q question, rules map[matrix.Driver]matrix.Rule, pins matrix.Pins) (matrix.Minor, error) {
	minor := q.facts.Kubernetes.Minor().Next()
	v, err := matrix.ParseKubernetes(minor.String())
	if err != nil {
		return minor, err
	}
	facts := q.facts
	facts.Kubernetes = v
	if _, refusal := matrix.Resolve(q.document, facts, pins, matrix.Policy{Rules: rules, Refused: q.refused}, q.available); refusal != nil {
		return minor, &fault.Error{
			Reason: fault.Incompatible, Op: "look ahead to", Subject: "Kubernetes " + minor.String(), Err: refusal,
			Hint: "push a bundle with drivers for it before upgrading Kubernetes",
		}
	}
	return minor, nil
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
