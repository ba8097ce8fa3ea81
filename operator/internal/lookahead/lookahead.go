// Package lookahead computes from a bundle's matrix what future upgrades lack, and what the operator would do after
// each. It is pure.
package lookahead

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
)

// Question has the inputs for a bundle's matrix.
type Question struct {
	Document  *matrix.Document
	Available matrix.Available
	Policy    matrix.Policy // Refused says why a release of the bundle may not be installed again
	Pins      matrix.Pins
	Facts     matrix.Facts
	Requested []matrix.Driver // in order of installation
}

// Choose resolves the matrix with other facts.
func (q *Question) Choose(facts matrix.Facts) (matrix.Selection, *matrix.Refusal) {
	return matrix.Resolve(q.Document, facts, q.Pins, q.Policy, q.Available)
}

// Outlook is the result for the next upgrades of Kubernetes and the vCenters.
type Outlook struct {
	Looked []string // targets: "Kubernetes 1.34", "vCenter vc 9.0.0"
	Lacks  []string // why one of them cannot be upgraded yet, and what to do
}

// Move is a driver's change of release.
type Move struct {
	Driver matrix.Driver `json:"driver"`
	From   string        `json:"from,omitempty"` // version; "" if not installed
	To     string        `json:"to"`
	// Why has the reasons of the choice.
	Why []string `json:"why,omitempty"`
	// OneWay is why a rollback from To is impossible, "" if it is possible.
	OneWay string `json:"oneWay,omitempty"`
}

// Step is an upgrade of Kubernetes or a vCenter, and what the operator does after it. The first step of a path is no
// upgrade: it has what the operator does now.
type Step struct {
	To    string `json:"to,omitempty"` // "Kubernetes 1.35", "vCenter east 9.0.0"
	Moves []Move `json:"moves,omitempty"`
	// Lacks are why the upgrade must wait, and what to do.
	Lacks []string `json:"lacks,omitempty"`
}

// Upgrade returns its target from the facts before it.
type Upgrade func(matrix.Facts) Target

// Path returns what the operator does now and after each upgrade, and the final facts. Each step starts with what the
// earlier ones installed.
func (q Question) Path(oneWay []decide.OneWay, upgrades []Upgrade) (steps []Step, end matrix.Facts) {
	now := Step{}
	now.Moves, now.Lacks = q.arrive(q.Facts, oneWay)
	steps = []Step{now}
	for _, to := range upgrades {
		t := to(q.Facts)
		s := Step{To: t.Name, Lacks: q.lacks(t)}
		s.Moves, _ = q.arrive(t.Facts, oneWay)
		steps = append(steps, s)
	}
	return steps, q.Facts
}

// arrive moves on to the given facts. It returns the installations that follow, or why none can.
func (q *Question) arrive(facts matrix.Facts, oneWay []decide.OneWay) (moves []Move, refused []string) {
	installed := map[matrix.Driver]matrix.Version{}
	maps.Copy(installed, q.Facts.Installed)
	q.Facts = facts
	selection, refusal := q.Choose(facts)
	if refusal != nil {
		return nil, []string{refusal.Error()}
	}
	for _, c := range selection.Choices {
		d, to := c.Release.Driver, c.Release.Version
		from, exists := installed[d]
		if exists && from.Equal(to) {
			continue
		}
		m := Move{Driver: d, To: to.String(), Why: c.Reasons}
		if exists {
			m.From, m.OneWay = from.String(), decide.NoWayBack(oneWay, d, from, to)
		}
		moves, installed[d] = append(moves, m), to
	}
	q.Facts.Installed = installed
	return moves, nil
}

// Target is the state after an upgrade.
type Target struct {
	Name  string
	Facts matrix.Facts
	// covers returns why a release does not support the target, "" if it does.
	covers func(matrix.Release) string
}

// Outlook checks the next Kubernetes minor, and the next update and major version of each vCenter. The installed
// releases must support it before the upgrade, and the bundle must have releases for it. For a cloud provider and
// Kubernetes only the bundle counts: each release serves one minor.
func (q *Question) Outlook() Outlook {
	all := []Target{Kubernetes(q.Facts, q.Facts.Kubernetes.Minor().Next())}
	for i, vc := range q.Facts.VCenters {
		for _, next := range following(vc.Version) {
			all = append(all, VCenter(q.Facts, i, next))
		}
	}
	var a Outlook
	for _, t := range all {
		a.Looked = append(a.Looked, t.Name)
		for _, why := range q.lacks(t) {
			a.Lacks = append(a.Lacks, t.Name+": "+why)
		}
	}
	return a
}

// lacks returns why an upgrade must wait: an installed release does not support it, or the bundle has none that does.
func (q *Question) lacks(t Target) []string {
	var all []string
	for _, d := range q.Requested {
		all = append(all, q.installedLacks(d, t))
	}
	return slices.DeleteFunc(append(all, q.bundleLacks(t)), func(why string) bool { return why == "" })
}

// Kubernetes returns the upgrade to a minor.
func Kubernetes(facts matrix.Facts, minor matrix.Minor) Target {
	facts.Kubernetes, _ = matrix.ParseKubernetes(minor.String()) //nolint:errcheck // a minor is always a version
	return Target{Name: "Kubernetes " + minor.String(), Facts: facts, covers: func(r matrix.Release) string {
		if r.Driver == matrix.CPI || r.Kubernetes.Contains(minor) {
			return ""
		}
		return "serves Kubernetes " + r.Kubernetes.String()
	}}
}

// VCenter returns the upgrade of facts.VCenters[i].
func VCenter(facts matrix.Facts, i int, to matrix.Version) Target {
	facts.VCenters = slices.Clone(facts.VCenters)
	name := facts.VCenters[i].Name
	facts.VCenters[i] = matrix.VCenter{Name: name, Version: to}
	return Target{Name: fmt.Sprintf("vCenter %s %s", name, to), Facts: facts, covers: func(r matrix.Release) string {
		if r.VSphere.Contains(to) {
			return ""
		}
		return "serves vSphere " + r.VSphere.String()
	}}
}

// following returns the next update and the next major version of vSphere.
func following(v matrix.Version) []matrix.Version {
	var major, minor, update uint64
	if _, err := fmt.Sscanf(v.String(), "%d.%d.%d", &major, &minor, &update); err != nil {
		return nil
	}
	var all []matrix.Version
	for _, text := range []string{fmt.Sprintf("%d.%d.%d", major, minor, update+1), fmt.Sprintf("%d.0.0", major+1)} {
		if next, err := matrix.ParseVSphere(text); err == nil {
			all = append(all, next)
		}
	}
	return all
}

func (q *Question) installedLacks(d matrix.Driver, t Target) string {
	v, exists := q.Facts.Installed[d]
	if !exists {
		return ""
	}
	id := matrix.ReleaseID{Driver: d, Version: v}
	r, listed := q.Document.Release(id)
	if !listed {
		return fmt.Sprintf("%s is installed, and the matrix does not list it", id)
	}
	if why := t.covers(r); why != "" {
		return fmt.Sprintf("%s is installed and %s: upgrade it first", id, why)
	}
	return ""
}

func (q *Question) bundleLacks(t Target) string {
	if _, refusal := q.Choose(t.Facts); refusal == nil {
		return ""
	}
	selection, refusal := matrix.Resolve(q.Document, t.Facts, nil, matrix.Policy{Rules: q.Policy.Rules}, nil)
	if refusal != nil {
		var none []string
		for _, d := range refusal.Drivers {
			none = append(none, string(d))
		}
		return "the matrix lists no " + strings.Join(none, " and no ") + " for it: fetch a bundle with " + matrix.Newer
	}
	var missing []string
	for _, c := range selection.Choices {
		if id := c.Release.ReleaseID.String(); !q.Available[id] {
			missing = append(missing, id)
		}
	}
	would := cmp.Or(strings.Join(missing, ", "), "a release without the pins of spec.drivers")
	return "the bundle has no drivers for it: " + would + " would serve; push a bundle that holds it"
}
