// Package decide decides whether a group of drivers (package revision) may change now from its current revision to a
// candidate. It is pure: it knows no clock but the time that it is given.
//
// The rules are those of operator/docs/upgrade.md. A gate is why a change may not start now. The table has all gates
// and the functions that provide them; those outside of this package are in package vdoconfig.
//
//	gate                                        of which drivers     provider
//	bundle: none, unread, unverified            all                  bundle.go, by pass.gateBundle
//	bundle that is stale                        all                  bundle.go, as findings.starts
//	login that the mirror refused               all                  vcenters.go, by pass.gateAll
//	VDOConfig deleted                           all                  decided.gateOfAll
//	policy unreadable                           all                  collect.go, as findings.starts
//	vCenter: not checked, away, refused,        those that use it    vcenters.go, by facts.driverHolds
//	  another one than was accepted
//	checks of cluster, vCenters and images      as they say          checks.go, by facts.driverHolds
//	cpi not installed, or not the only one      csi                  decided.needsCloud
//	  that csi works with
//	release or settings refused by rendering    its group            decided.render
//	foreign object                              its group            result.blocked
//	mirror set of OpenShift: none served, or    all                  mirrorset.go, by pass.gateAll
//	  the operator may not read it
//	Failed: it failed before; a retry by name,  groups that change   [Decide]
//	  or, under Automatic, another program or
//	  VDOConfig, tries it again. A failure
//	  consumes an approval
//	DowngradeRefused: an older version than     groups that change   [Decide]
//	  runs needs approval of that release, and
//	  never crosses an irreversible upgrade
//	NotApproved: under Manual the candidate     groups that change   [Decide]
//	  needs an approval by its name
//	Interlocked: mixed API servers, workloads   groups that change   [Decide], with what gates.go and canary.go
//	  unread, nodes, vCenters or pools                               say in decided.interlock
//	  changing, no canary node
//	WindowClosed: no maintenance window is      groups that change   [Decide]
//	  open; a started change also ends outside
//	its revision is rolled back or stays        its group            [Decide]
//
// This package's gates are the rows of rules; the first that applies counts.
package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// Action is what the operator does with a group.
type Action string

// All actions.
const (
	// Proceed makes the candidate current, or keeps it current.
	Proceed Action = "Proceed"
	// Stay keeps the current revision; nothing is gated.
	Stay Action = "Stay"
	// Wait keeps the current revision until a condition ends by itself, or a person approves.
	Wait Action = "Wait"
	// Gated keeps the current revision until a person fixes the cause.
	Gated Action = "Hold"
	// RollBack makes an earlier revision current.
	RollBack Action = "RollBack"
)

// Reason is the cause of a verdict, for machines.
type Reason string

// All reasons.
const (
	NotApproved      Reason = "NotApproved"
	WindowClosed     Reason = "WindowClosed"
	Interlocked      Reason = "Interlocked"
	DowngradeRefused Reason = "DowngradeRefused"
	Failed           Reason = "Failed"
	Blocked          Reason = "Blocked" // of no verdict: a vCenter or a check of a driver
)

// Verdict is the decision on a group.
type Verdict struct {
	Action  Action
	Reason  Reason
	Message string
	Until   time.Time // of Wait: when to decide again; zero if unknown
	To      string    // of RollBack: the revision's name
	// Starts is set if the candidate starts: it is not current, or is tried again.
	Starts bool
}

// IsGated reports whether a gate or a rollback keeps a candidate from becoming current.
func (v Verdict) IsGated() bool {
	return v.Action == Wait || v.Action == Gated || v.Action == RollBack
}

// Gates reports whether the group stays unchanged, or is rolled back.
func (v Verdict) Gates() bool { return v.IsGated() || (v.Action == Stay && v.Message != "") }

// urgency returns the order in which verdicts are reported: rollbacks and failures that stay, then the order of rules.
func (v Verdict) urgency() int {
	if v.Action == RollBack || v.Action == Stay {
		return -1
	}
	return slices.IndexFunc(rules, func(r rule) bool { return r.reason == v.Reason })
}

// First returns the most urgent verdict, with the messages of all others of the same reason and action. It
// returns false if none gates.
func First(all []Verdict) (first Verdict, ok bool) {
	for _, v := range all {
		switch {
		case !v.Gates():
		case !ok || v.urgency() < first.urgency():
			first, ok = v, true
		case v.Reason == first.Reason && v.Action == first.Action && !strings.Contains(first.Message, v.Message):
			first.Message += "; " + v.Message
		}
	}
	return first, ok
}

// Policy is the upgrade policy of the VDOConfig.
type Policy struct {
	Manual         bool
	Approved       string // name of the approved revision
	Windows        []Window
	NeverRollBack  bool
	AllowDowngrade []string // "csi@3.5.1"
}

// OneWay is a release with an irreversible upgrade: earlier releases do not read what it changes.
type OneWay struct {
	matrix.ReleaseID
	Why string
}

// Facts are the inputs of a decision.
type Facts struct {
	Now    time.Time
	Policy Policy
	// History is of the group. Unusable says which of its revisions cannot be installed again.
	History revision.History
	// Candidate is the revision chosen for the group; nil if none.
	Candidate *revision.Revision
	// Whole is the candidate of all groups, which approvals and retries name; nil: Candidate.
	Whole *revision.Revision
	// Running are the running versions, by driver; the zero one if unknown.
	Running map[matrix.Driver]matrix.Version
	OneWay  []OneWay
	// Attempt are the current circumstances of a try.
	Attempt revision.Attempt
	// Interlock is the change in progress that the group depends on, "" if none.
	Interlock string
	// Frozen is why the operator only repairs, and does not roll back; "" if it may do both.
	Frozen string
	// Untrusted is why the current revision's bundle is no longer trusted, "" if it is.
	Untrusted string
	// Unusable is why a rollback cannot use a revision, by its name.
	Unusable map[string]string
}

// Decide returns the verdict on a group.
func Decide(f Facts) Verdict {
	cur, _ := f.History.InForce()
	next := f.candidate(cur)
	failed := cur.Outcome == revision.Failed
	if why := f.Untrusted; why != "" && cur.Outcome == revision.Progressing && !cur.Returned {
		failed, cur.Reason = true, why
	}
	if !failed || next.Action == Proceed {
		return next
	}
	return f.rollBack(cur, next)
}

func (f *Facts) candidate(cur revision.Record) Verdict {
	if f.Candidate == nil {
		return Verdict{Action: Stay}
	}
	same := f.Candidate.Equal(cur.Revision)
	if same && cur.Outcome == revision.Failed && !f.again(cur) {
		return Verdict{Action: Stay}
	}
	changing := f.changing(cur)
	if same && len(changing) == 0 {
		return Verdict{Action: Proceed, Starts: cur.Outcome == revision.Failed}
	}
	for _, rule := range rules {
		if rule.why == nil || len(changing) == 0 && rule.reason != Failed {
			continue // of no verdict, or it only leaves a driver out
		}
		if why := rule.why(f, cur, changing); why != "" {
			v := Verdict{Action: rule.action, Reason: rule.reason, Message: why}
			if rule.reason == WindowClosed {
				_, v.Until = f.Policy.Closed(f.Now)
			}
			return v
		}
	}
	return Verdict{Action: Proceed, Starts: true}
}

// changing returns the drivers of the candidate that change, in its order.
func (f *Facts) changing(cur revision.Record) []matrix.Driver {
	return slices.DeleteFunc(f.Candidate.Drivers(), func(d matrix.Driver) bool {
		return !revision.Changes(cur.Revision, *f.Candidate, d) && !f.adopts(cur, d)
	})
}

// adopts reports whether a driver of the candidate runs in another version and is not in the current
// revision. It is foreign, or its record is missing.
func (f *Facts) adopts(cur revision.Record, d matrix.Driver) bool {
	runs, exists := f.Running[d]
	return exists && cur.Version(d).IsZero() && f.Candidate.Version(d).String() != runs.String()
}

// rule is one gate, with its texts.
type rule struct {
	reason Reason
	// action is Wait if the gate ends by itself or by an approval; the running drivers count as healthy meanwhile.
	action Action
	// why returns why the gate blocks a group in which these drivers change, "" if it does not; nil: of no verdict.
	why func(f *Facts, cur revision.Record, changing []matrix.Driver) string
	// approvable is set if an approval ends the gate.
	approvable bool
	// toDo is what a person can do if the gate has no known end; NAME stands for the candidate's name.
	toDo string
}

// rules are the gates in the order in which they count and are reported.
var rules = []rule{
	{reason: Failed, action: Gated, why: (*Facts).failedBefore, approvable: true,
		toDo: "fix what it failed at, then try it once more: vdoctl upgrade approve NAME"},
	{reason: DowngradeRefused, action: Gated, why: (*Facts).downgrades, approvable: true,
		toDo: "vdoctl upgrade approve NAME --allow-downgrade, unless a release cannot be gone back from"},
	{reason: NotApproved, action: Wait, why: (*Facts).unapproved, approvable: true,
		toDo: "vdoctl upgrade approve NAME"},
	{reason: Interlocked, action: Wait,
		why:  func(f *Facts, _ revision.Record, _ []matrix.Driver) string { return f.Interlock },
		toDo: "correct or end what it names, where that does not end by itself"},
	{reason: WindowClosed, action: Wait, why: (*Facts).outside,
		toDo: "correct spec.upgradePolicy.windows of the VDOConfig"},
	{reason: Blocked, action: Wait, approvable: true, toDo: "correct what it names, where that does not end by itself"},
}

func ruleOf(r Reason) rule {
	i := slices.IndexFunc(rules, func(known rule) bool { return known.reason == r })
	if i < 0 {
		return rule{toDo: "nothing: it goes on by itself", approvable: true} // of another version: it does no harm
	}
	return rules[i]
}

// ToDo returns what a person can do about a gated candidate of that name, and until when it is gated.
func (r Reason) ToDo(until time.Time, name string) string {
	if !until.IsZero() {
		return "nothing: it begins at " + clock(until)
	}
	return strings.Replace(ruleOf(r).toDo, "NAME", name, 1)
}

// Waits reports whether the gate ends by itself or by an approval.
func (r Reason) Waits() bool { return ruleOf(r).action == Wait }

// Approvable reports whether an approval ends the gate.
func (r Reason) Approvable() bool { return ruleOf(r).approvable }

// Canaries reports whether canary nodes get an upgrade first. They do if it changes pods of the storage
// driver, or the current revision is still open on its canary nodes.
func Canaries(from revision.Record, to revision.Revision) bool {
	const d = matrix.CSI
	changes := revision.Changes(from.Revision, to, d)
	if from.Same(to) && !changes {
		return from.Canary.Open() || (from.Failed() && from.Canary != nil)
	}
	return !to.Version(d).IsZero() && (changes || from.Canary.Open())
}

func (f *Facts) failedBefore(revision.Record, []matrix.Driver) string {
	for _, known := range f.History.Records {
		if known.Failed() && known.Equal(*f.Candidate) && !f.again(known) {
			return fmt.Sprintf("%s failed at %s and is not tried again: %s", known.Name(), clock(known.Since), known.Reason)
		}
	}
	return ""
}

func (f *Facts) again(known revision.Record) bool {
	was := known.Attempt
	if f.Attempt.Asks(was, known.Revision, f.offered()) {
		return true
	}
	return !f.Policy.Manual && (was.Program != f.Attempt.Program || was.Generation != f.Attempt.Generation)
}

// offered returns the revision that approvals name.
func (f *Facts) offered() revision.Revision {
	if f.Whole != nil {
		return *f.Whole
	}
	return *f.Candidate
}

func (f *Facts) downgrades(cur revision.Record, changing []matrix.Driver) string {
	var all []string
	for _, d := range changing {
		to, runs := f.Candidate.Version(d), f.runs(cur, d)
		if !to.LessThan(runs) {
			continue
		}
		was, id := fmt.Sprintf("%s@%s runs", d, runs), fmt.Sprintf("%s@%s", d, to)
		if why := NoWayBack(f.OneWay, d, to, runs); why != "" {
			all = append(all, fmt.Sprintf("%s, and %s may not take its place: %s", was, id, why))
		} else if !slices.Contains(f.Policy.AllowDowngrade, id) {
			all = append(all, fmt.Sprintf("%s: add %s to spec.upgradePolicy.allowDowngrade to approve the downgrade", was, id))
		}
	}
	return strings.Join(all, "; ")
}

// runs returns the highest version of a driver that runs or was installed.
func (f *Facts) runs(cur revision.Record, d matrix.Driver) matrix.Version {
	runs := f.Running[d]
	if v := cur.Version(d); cur.Outcome != revision.Progressing && !cur.Failed() && runs.LessThan(v) {
		return v
	}
	return runs
}

// NoWayBack returns why a driver may not return from one version to a lower one, "" if it may.
func NoWayBack(marks []OneWay, driver matrix.Driver, to, from matrix.Version) string {
	for _, m := range marks {
		if m.Driver == driver && to.LessThan(m.Version) && !from.LessThan(m.Version) {
			return fmt.Sprintf("%s cannot be gone back from: %s", m.ReleaseID, m.Why)
		}
	}
	return ""
}

func (f *Facts) unapproved(_ revision.Record, changing []matrix.Driver) string {
	approval := f.History.Consent
	if !f.Policy.Manual || approval.Covers(*f.Candidate) {
		return ""
	}
	releases := slices.DeleteFunc(slices.Clone(f.Candidate.Releases), func(id string) bool {
		d, _, _ := strings.Cut(id, "@")
		return !slices.Contains(changing, matrix.Driver(d))
	})
	text := fmt.Sprintf("%s waits for approval: set spec.upgradePolicy.approval with revision %s and your name in by",
		strings.Join(releases, ", "), f.offered().Name())
	if f.Policy.Approved != "" && approval == nil {
		text += fmt.Sprintf("; the approval of %s is of another revision, and does nothing", f.Policy.Approved)
	}
	return text
}

func (f *Facts) outside(revision.Record, []matrix.Driver) string {
	why, _ := f.Policy.Closed(f.Now)
	return why
}

// Closed returns why no maintenance window is open, "" if one is or none is set. It also returns when the
// next one opens, the zero time if never.
func (p Policy) Closed(now time.Time) (why string, next time.Time) {
	if len(p.Windows) == 0 {
		return "", next
	}
	for _, w := range p.Windows {
		if w.Open(now) {
			return "", time.Time{}
		}
		if at := w.Next(now); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() {
		return "no maintenance window ever opens: correct spec.upgradePolicy.windows", next
	}
	return "the next maintenance window opens at " + clock(next), next
}

func (f *Facts) rollBack(cur revision.Record, next Verdict) Verdict {
	gate := func(why string) Verdict {
		text := fmt.Sprintf("%s failed: %s; %s", cur.Name(), cur.Reason, why)
		if next.Message != "" {
			text += "; " + next.Message
		}
		return Verdict{Action: Stay, Reason: Failed, Message: text}
	}
	if f.Policy.NeverRollBack {
		return gate("it stays, as spec.upgradePolicy.rollback says")
	}
	if f.Frozen != "" {
		return gate("it stays: " + f.Frozen)
	}
	var not []string
	for _, target := range f.History.Targets() {
		if why := f.unusable(cur, target); why != "" {
			not = append(not, target.Name()+": "+why)
			continue
		}
		return Verdict{Action: RollBack, Reason: Failed, To: target.Name(),
			Message: fmt.Sprintf("%s failed: %s; %s is put back", cur.Name(), cur.Reason, target.Name())}
	}
	if len(not) == 0 {
		return gate("there is no earlier healthy revision of the same drivers to go back to")
	}
	return gate("it cannot be gone back from: " + strings.Join(not, "; "))
}

func (f *Facts) unusable(cur, target revision.Record) string {
	if why := f.Unusable[target.Name()]; why != "" {
		return why
	}
	for _, d := range cur.Drivers() {
		from := cur.Version(d)
		if runs := f.Running[d]; from.LessThan(runs) {
			from = runs
		}
		if why := NoWayBack(f.OneWay, d, target.Version(d), from); why != "" {
			return why
		}
	}
	return ""
}
