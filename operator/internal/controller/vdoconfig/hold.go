package vdoconfig

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// What holds a driver back is of two kinds. The bundle, its trust and the mirror's login are
// every driver's: [site.hold]. A vCenter is of the drivers that use it, and so is what the
// checks of package preflight find, and that somebody else installed a driver in another version,
// from which it may not be taken over yet, or that it waits for nodes while the others go on
// ([gatherer.rest]): [site.holds]. A driver that is held
// keeps the release that it has, and what that is made of, or is not installed; its repairs and
// its configuration go on (origin.go), and so does all of the others.

// awaited is a vCenter or bundle that nobody has looked at yet.
func awaited(what string) error {
	return &fault.Error{Reason: fault.Incomplete, Op: "install", Subject: "drivers", Err: errors.New(what)}
}

// holds says why nothing new may be installed of a driver, for each that is asked for and
// uses a vCenter that was not verified, that a check keeps back or that was not checked yet,
// or needs a driver that is held: pure.
func (s *site) holds() map[matrix.Driver]error {
	all := map[matrix.Driver]error{}
	rules, _, _ := policies(s.config.Spec) //nolint:errcheck // what is wrong with pins is reported by deciding
	for _, d := range asked(rules) {
		if why := s.vCenterHolds(d); why != nil {
			all = joined(all, d, why)
		}
	}
	for d, why := range s.checkHolds() {
		if slices.Contains(asked(rules), d) {
			all = joined(all, d, why)
		}
	}
	for d, why := range s.revisions.left {
		all = joined(all, d, why)
	}
	return s.dependents(all, rules)
}

// vCenterHolds is why the vCenters that a driver uses hold it back, nil where they do not.
func (s *site) vCenterHolds(d matrix.Driver) error {
	var all error
	for _, name := range vCentersOf(d, &s.config.Spec) {
		vc := s.vcenters[name]
		why := vc.held
		if why == nil && vc.waiting != "" {
			why = awaited(vc.waiting)
		}
		all = fault.Join(all, why)
	}
	return all
}

// dependents adds the drivers that are not installed without one that is held and not there
// either: the storage driver takes its nodes' identity from the provider ID that the cloud
// provider sets, and the snapshot-controller is installed for the storage driver.
func (s *site) dependents(held map[matrix.Driver]error, rules map[matrix.Driver]matrix.Rule) map[matrix.Driver]error {
	for _, need := range []struct {
		driver, needs matrix.Driver
		why           string
	}{
		{matrix.CSI, matrix.CPI, "it needs the provider IDs of nodes, which %s sets, and that is not installed: %w"},
		{matrix.SnapshotController, matrix.CSI, "it is installed for %s, which is not installed: %w"},
	} {
		_, there := s.installed[need.driver]
		_, other := s.installed[need.needs]
		if why := held[need.needs]; why != nil && !there && !other && slices.Contains(asked(rules), need.driver) {
			held = joined(held, need.driver, fmt.Errorf(need.why, need.needs, why))
		}
	}
	return held
}

// vcentersHeld is what of the vCenters that drivers are asked for with is not known yet, and
// the faults of them, each once.
func (s *site) vcentersHeld() (waiting string, held error) {
	for _, name := range vCenterNames(&s.config.Spec) {
		vc := s.vcenters[name]
		held = fault.Join(held, vc.held)
		if vc.waiting != "" {
			waiting = vc.waiting
		}
	}
	return waiting, held
}

// together are the reasons of all drivers, in order of installation.
func together(holds map[matrix.Driver]error) error {
	var all []error
	for _, d := range inOrder {
		all = append(all, holds[d])
	}
	return fault.Join(all...)
}

// heldTexts are the reasons as a plan has them.
func heldTexts(holds map[matrix.Driver]error) map[matrix.Driver]string {
	all := make(map[matrix.Driver]string, len(holds))
	for d, why := range holds {
		all[d] = why.Error()
	}
	return all
}

// ask asks the matrix around the drivers that are held: those that are installed are pinned
// to what they are, or, where that fits no more, left out of the question, as those are that
// are not installed. It tells whether there is an answer only without a hold; then nothing
// else may move either.
func (q *question) ask(policy matrix.Policy, pins matrix.Pins) (selection matrix.Selection, refusal *matrix.Refusal, stuck bool) {
	if len(q.holds) == 0 {
		selection, refusal = matrix.Resolve(q.document, q.facts, pins, policy, q.available)
		return selection, refusal, false
	}
	for _, stay := range []bool{true, false} {
		rules, fixed := q.around(policy.Rules, pins, stay)
		around := policy
		around.Rules = rules
		if selection, refusal = matrix.Resolve(q.document, q.facts, fixed, around, q.available); refusal == nil {
			return selection, nil, false
		}
	}
	free, freeRefusal := matrix.Resolve(q.document, q.facts, pins, policy, q.available)
	return free, freeRefusal, freeRefusal == nil
}

// around is the question without what is held.
func (q *question) around(rules map[matrix.Driver]matrix.Rule, pins matrix.Pins, stay bool) (map[matrix.Driver]matrix.Rule, matrix.Pins) {
	rules, pins = maps.Clone(rules), maps.Clone(pins)
	for d := range q.holds {
		if v, there := q.facts.Installed[d]; there && stay {
			pins[d] = v
			continue
		}
		rules[d] = matrix.Disabled
		delete(pins, d)
	}
	return rules, pins
}

// keepHeld decides for the drivers that are held: each keeps what it has. So does a
// snapshot-controller that the answer lacks, since it follows from the storage driver.
func (d decision) keepHeld(q question, asked []matrix.Driver) decision {
	held := maps.Clone(q.holds)
	if why := held[matrix.CSI]; why != nil && d.version(matrix.SnapshotController) == "" && slices.Contains(asked, matrix.SnapshotController) {
		held[matrix.SnapshotController] = why
	}
	for _, driver := range slices.Sorted(maps.Keys(held)) {
		d.releases = slices.DeleteFunc(d.releases, func(id matrix.ReleaseID) bool { return id.Driver == driver })
		d = d.keepInstalled(q, []matrix.Driver{driver}, held[driver].Error())
	}
	d.sort()
	return d
}

// sort puts the releases in order of installation.
func (d decision) sort() {
	slices.SortStableFunc(d.releases, func(a, b matrix.ReleaseID) int {
		return slices.Index(inOrder, a.Driver) - slices.Index(inOrder, b.Driver)
	})
}
