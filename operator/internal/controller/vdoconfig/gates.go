package vdoconfig

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// A gate is why a change may not start now. A driver that is gated stays what it is, or is not
// installed (current.go); its repairs and its configuration go on, and so do all other drivers.
//
//	gate                                        of which drivers     where
//	bundle: none, unread, unverified, stale     all                  bundle.go, by site.hold
//	login that the mirror did not let in        all                  login.go, by site.hold
//	VDOConfig deleted, policy unreadable        all                  site.hold
//	vCenter: not checked, away, refused,        those that use it    vcenters.go, by site.vCenterHolds
//	  another one than was accepted
//	checks of cluster, vCenters and images      as they say          checks.go, by site.checkHolds
//	cpi not installed, csi not installed        csi, snapshots       site.dependents
//	failed before, downgrade, irreversible      those that change    package upgrade
//	  release, approval, window
//	mixed API servers, workloads unread,        those that change    interlock.go, canary.go, by
//	  nodes, vCenters or pools changing,                             site.interlocks
//	  no node chosen for a canary
//	a revision is rolled back or stays          all                  gatherer.gatherRevisions
//
// A new gate is one more function of the place that it is about, called by one of those; nothing else
// holds a change back. Drivers whose place cannot be read are left as they are (site.faults), and what
// belongs to others is a conflict (package plan).

// awaited is a vCenter or bundle that nobody has looked at yet.
func awaited(what string) error {
	return &fault.Error{Reason: fault.Incomplete, Op: "install", Subject: "drivers", Err: errors.New(what)}
}

// holds says why nothing new may be installed of a driver, for each that is asked for and
// uses a vCenter that was not verified, that a check keeps back or that was not checked yet,
// or needs a driver that is held: pure.
func (s *site) holds() map[matrix.Driver]error { return s.gatedBy(nil) }

// gates are those, and the rules that an upgrade has to meet: pure. By these the storage driver and the
// snapshot-controller change together.
func (s *site) gates() map[matrix.Driver]error {
	rules := maps.Clone(s.revisions.gates)
	for _, pair := range [][2]matrix.Driver{{matrix.CSI, matrix.SnapshotController},
		{matrix.SnapshotController, matrix.CSI}} {
		if _, there := s.installed[pair[1]]; there && rules[pair[0]] != nil && rules[pair[1]] == nil {
			rules[pair[1]] = rules[pair[0]]
		}
	}
	return s.gatedBy(rules)
}

func (s *site) gatedBy(rules map[matrix.Driver]error) map[matrix.Driver]error {
	var all map[matrix.Driver]error
	if s.ungated {
		return all
	}
	wanted, checks := s.wanted(), s.checkHolds()
	for _, d := range wanted {
		for _, why := range []error{s.vCenterHolds(d), checks[d], rules[d]} {
			if why != nil {
				all = joined(all, d, why)
			}
		}
	}
	return s.dependents(all, wanted)
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

// dependents adds the drivers that are not installed without one that is gated and not there
// either: the storage driver takes its nodes' identity from the provider ID that the cloud
// provider sets, and the snapshot-controller is installed for the storage driver.
func (s *site) dependents(gated map[matrix.Driver]error, wanted []matrix.Driver) map[matrix.Driver]error {
	for _, need := range []struct {
		driver, needs matrix.Driver
		why           string
	}{
		{matrix.CSI, matrix.CPI, "it needs the provider IDs of nodes, which %s sets, and that is not installed: %w"},
		{matrix.SnapshotController, matrix.CSI, "it is installed for %s, which is not installed: %w"},
	} {
		_, there := s.installed[need.driver]
		_, other := s.installed[need.needs]
		if why := gated[need.needs]; why != nil && !there && !other && slices.Contains(wanted, need.driver) {
			gated = joined(gated, need.driver, fmt.Errorf(need.why, need.needs, why))
		}
	}
	return gated
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

// ask asks the matrix around the drivers that are held: those that are installed are pinned
// to what they are, or, where that fits no more, left out of the question, as those are that
// are not installed. It tells whether there is an answer only without a hold; then nothing
// else may move either.
func (q *question) ask(policy matrix.Policy, pins matrix.Pins) (selection matrix.Selection, refusal *matrix.Refusal, stuck bool) {
	if len(q.gates) == 0 {
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
	for d := range q.gates {
		if v, there := q.current[d]; there && stay {
			pins[d] = v
			continue
		}
		rules[d] = matrix.Disabled
		delete(pins, d)
	}
	return rules, pins
}
