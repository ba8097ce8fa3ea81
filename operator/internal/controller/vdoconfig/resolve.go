package vdoconfig

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/lookahead"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// decision is the desired state.
type decision struct {
	from     *opened                   // the matrix's bundle; nil without one
	current  map[matrix.Driver]current // the drivers that stay in their state
	releases []matrix.ReleaseID        // in order of installation, at most one per driver
	reasons  map[matrix.Driver][]string
	// gated are requested drivers that stay unchanged, and why.
	gated     map[matrix.Driver]string
	warnings  []matrix.Warning
	withdrawn map[matrix.Driver]string         // of installed releases
	unfit     map[matrix.Driver]string         // why installed releases do not suit the cluster
	needs     map[matrix.Driver]matrix.Version // of the chosen storage driver, which supports only this version
	refused   error
	outlook   lookahead.Outlook
}

func (d decision) version(driver matrix.Driver) string {
	i := slices.IndexFunc(d.releases, func(id matrix.ReleaseID) bool { return id.Driver == driver })
	if i < 0 {
		return ""
	}
	return d.releases[i].Version.String()
}

// resolve returns the desired releases, except for gated drivers and those with a fault, which keep their state.
func (s *decided) resolve() decision { return s.keep(s.gateOfAll(), s.faults) }

func (s *decided) gateOfAll() error {
	switch {
	case s.ungated:
	case s.gated != nil || s.starts != nil:
		return fault.Join(s.gated, s.starts)
	case s.waiting != "":
		return awaited(s.waiting)
	case s.frozen != "":
		return &fault.Error{Reason: fault.Refused, Op: "install", Subject: "drivers", Err: errors.New(s.frozen)}
	}
	return nil
}

// ofMatrix returns the question to the accepted bundle's matrix. It fails if pins are invalid.
func (s *facts) ofMatrix() (lookahead.Question, error) {
	rules, pins, err := policies(s.config.Spec)
	return lookahead.Question{
		Document: s.bundle.matrix, Available: available(s.bundle.contents.Lock), Facts: s.site,
		Policy: matrix.Policy{Rules: rules, Refused: s.unlisted(s.bundle)}, Pins: pins, Requested: s.requested(),
	}, err
}

// keep returns the desired releases, except for drivers that keep their state. With a gate these are all drivers, else
// those with a gate or fault of their own.
func (s *decided) keep(gate error, faults map[matrix.Driver]error) decision {
	d := s.desired
	d.gated, d.reasons, d.releases = maps.Clone(d.gated), maps.Clone(d.reasons), slices.Clone(d.releases)
	if d.from == nil {
		return decision{gated: map[matrix.Driver]string{}, reasons: map[matrix.Driver][]string{}}
	}
	gates := s.gates()
	for _, driver := range s.requested() {
		if why := cmp.Or(gate, gates[driver]); why != nil && d.refused == nil {
			d = d.without(driver, why.Error())
			delete(d.reasons, driver)
		}
	}
	for driver, why := range s.retained {
		d.gated[driver] = why
	}
	d = s.stay(d)
	for driver, why := range faults {
		d = d.without(driver, why.Error())
	}
	return d
}

// warned returns the warnings about the decision, without those of releases that do not come now.
func (d decision) warned() []string {
	var all []string
	for _, w := range d.warnings {
		_, stays := d.gated[w.Release.Driver]
		if _, is := d.current[w.Release.Driver]; (!stays && !is) || strings.HasPrefix(string(w.Code), "Installed") {
			all = append(all, w.Text)
		}
	}
	return all
}

// without returns a decision that keeps a driver in its state, with the reason.
func (d decision) without(driver matrix.Driver, why string) decision {
	d.releases = slices.DeleteFunc(slices.Clone(d.releases), func(id matrix.ReleaseID) bool { return id.Driver == driver })
	d.gated, d.current = maps.Clone(d.gated), maps.Clone(d.current)
	delete(d.current, driver)
	d.gated[driver] = why
	return d
}

// manual reports whether upgrades wait for a person: by the VDOConfig, else by the earlier operator's matrix ConfigMap.
func manual(spec *v1alpha1.VDOConfigSpec, b *v1alpha1.DriverBundle) bool {
	otherwise := v1alpha1.UpgradeMode(b.Annotations[v1alpha1.AnnotationUpgrade])
	return cmp.Or(spec.Upgrade, otherwise) == v1alpha1.UpgradeManual
}

// unlisted returns the releases of a bundle that no matrix lists; installed ones may stay.
func (s *facts) unlisted(b *opened) map[string]string {
	refused := map[string]string{}
	for _, r := range b.contents.Lock.Releases {
		if !r.Driver.Valid() || s.site.Installed[r.Driver].Equal(r.Version) {
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

// policies returns the rules and pins of the spec. A driver without a provider in the spec is not requested, whatever
// its policy says.
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
			rules[matrix.CNI] = matrix.Latest // a pin requests it
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
	if rules[matrix.CSI] == matrix.Disabled && pins[matrix.SnapshotController].IsZero() {
		rules[matrix.SnapshotController] = cmp.Or(rules[matrix.SnapshotController], matrix.Disabled)
	}
	return rules, pins, fault.Join(errs...)
}

// requestedBy returns the drivers that the spec requests, in order of installation. The snapshot-controller comes with
// the storage driver.
func requestedBy(rules map[matrix.Driver]matrix.Rule) []matrix.Driver {
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

// chooseReleases asks the matrix for the accepted bundle's releases for the site, without gates.
func (s *facts) chooseReleases() decision {
	if s.bundle == nil {
		return decision{}
	}
	d := decision{from: s.bundle, reasons: map[matrix.Driver][]string{}, gated: map[matrix.Driver]string{},
		withdrawn: map[matrix.Driver]string{}, unfit: map[matrix.Driver]string{},
		needs: map[matrix.Driver]matrix.Version{}}
	q, unread := s.ofMatrix()
	if unread != nil {
		return d.refuse(q.Requested, unread, unread)
	}
	selection, refusal := q.Choose(q.Facts)
	d.warnings = selection.Warnings
	for _, w := range selection.Warnings {
		switch w.Code {
		case matrix.WarnInstalledUnfit:
			d.unfit[w.Release.Driver] = w.Text
		case matrix.WarnInstalledWithdrawn:
			d.withdrawn[w.Release.Driver] = w.Text
		}
	}
	d.outlook = q.Outlook()
	if refusal != nil {
		return d.refuse(q.Requested, fault.Errorf(fault.Incompatible, "choose", "drivers",
			refusal.Fault().Hint+"; what is installed stays", "%w", refusal), errors.New("no release fits"))
	}
	for _, c := range selection.Choices {
		d.releases = append(d.releases, c.Release.ReleaseID)
		d.reasons[c.Release.Driver] = c.Reasons
		for _, need := range c.Release.Requires {
			if c.Release.Driver == matrix.CSI && !need.Version.IsZero() {
				d.needs[need.Driver] = need.Version
			}
		}
	}
	return d
}

func (d decision) refuse(drivers []matrix.Driver, refused, why error) decision {
	d.refused = refused
	for _, driver := range drivers {
		d.gated[driver] = why.Error()
	}
	return d
}
