// Package decide decides whether a group of drivers (package revision) may go from what is current of it
// to what a candidate has, now. It is pure, and knows no clock but the time that it is given.
//
// # What is an upgrade
//
// A driver changes where the candidate has another version of it than the current revision, or
// the same version made of something else. It changes as well where that revision does not have it
// and it runs in another version: someone else installed it, and it is adopted. The installation of
// what does not run is no change, nor is the adoption of a driver in the version that runs, its
// removal, or another bundle with the same of every release. Those proceed.
//
// A driver counts as running in the version that its label or its image's tag tells. One that
// neither tells of is installed as if it did not run.
//
// # The gates
//
// A gate is why a change may not start now. A group of which one driver is gated stays what it is, or is not
// installed; its repairs and its configuration go on, and so do all other groups. These are all gates, with the
// function that is to be changed for another one of the kind; all but this package's are in package vdoconfig.
//
//	gate                                        of which drivers     provider
//	bundle: none, unread, unverified            all                  bundle.go, by pass.gateBundle
//	bundle that is stale                        all                  bundle.go, as findings.starts
//	login that the mirror did not let in        all                  login.go, by pass.gateAll
//	VDOConfig deleted                           all                  decided.gateOfAll
//	policy unreadable                           all                  collect.go, as findings.starts
//	vCenter: not checked, away, refused,        those that use it    vcenters.go, by facts.driverHolds
//	  another one than was accepted
//	checks of cluster, vCenters and images      as they say          checks.go, by facts.driverHolds
//	cpi not installed, or not the one that csi  csi                  decided.needsCloud
//	  is for alone
//	release or settings refused by rendering    its group            decided.render
//	object of someone else                      its group            result.blocked
//	mirror set of OpenShift: none served, or    all                  mirrorset.go, by pass.gateAll
//	  it may not be read
//	Failed: it failed before; a retry by name,  groups that change   [Decide]
//	  or, under Automatic, another program or
//	  VDOConfig, tries it again. A failure
//	  consumes an approval
//	DowngradeRefused: an older version than     groups that change   [Decide]
//	  runs needs consent to that release, and
//	  none goes back across an irreversible one
//	NotApproved: under Manual the candidate     groups that change   [Decide]
//	  needs an approval by its name
//	Interlocked: mixed API servers, workloads   groups that change   [Decide], with what gates.go and canary.go
//	  unread, nodes, vCenters or pools                               say in decided.interlock
//	  changing, no node chosen for a canary
//	WindowClosed: no maintenance window is      groups that change   [Decide]
//	  open; what was begun is ended outside
//	its revision is rolled back or stays        its group            [Decide]
//
// Of those of this package, which are the rows of rules, the first that applies counts. A driver whose place cannot be
// read is left as it is.
//
// # The current revision
//
// It stays so while there is nothing to put in its place. From one that failed, or whose
// bundle is not trusted any more while it is rolled out, the operator goes back (but for
// spec.upgradePolicy.rollback, an irreversible release, or nothing to go back to), unless
// another candidate may start.
//
// # Canary nodes first
//
// An upgrade of the storage driver may come to canary nodes first (spec.upgradePolicy.canary,
// [Canaries]). Until those were healthy for a while no other node gets its pods: an upgrade
// that fails is one that no other node has seen. Where a storage driver is adopted that is not
// so: there is no revision of what runs to go back to.
package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// Action is what is done.
type Action string

// What can be done.
const (
	// Proceed has the candidate be, or come, in force.
	Proceed Action = "Proceed"
	// Stay keeps what is in force; nothing is gated.
	Stay Action = "Stay"
	// Wait keeps what is in force until something ends by itself, or someone consents.
	Wait Action = "Wait"
	// Gated keeps what is in force until someone mends something.
	Gated Action = "Hold"
	// RollBack puts an earlier revision back.
	RollBack Action = "RollBack"
)

// Reason is why, for machines.
type Reason string

// Why it is done.
const (
	NotApproved      Reason = "NotApproved"
	WindowClosed     Reason = "WindowClosed"
	Interlocked      Reason = "Interlocked"
	DowngradeRefused Reason = "DowngradeRefused"
	Failed           Reason = "Failed"
)

// Verdict is the decision on a group.
type Verdict struct {
	Action  Action
	Reason  Reason
	Message string
	Until   time.Time // of Wait, where it is known when to look again
	To      string    // of RollBack: the revision's name
	// Starts is set where the candidate is to be begun: it is not current, or is tried again.
	Starts bool
}

// IsGated tells whether a candidate is kept from becoming current.
func (v Verdict) IsGated() bool {
	return v.Action == Wait || v.Action == Gated || v.Action == RollBack
}

// Gates tells whether the group stays what it is, or goes back.
func (v Verdict) Gates() bool { return v.IsGated() || (v.Action == Stay && v.Message != "") }

// urgency is the order in which verdicts are told: what goes back or stays at fault, then as the rules are.
func (v Verdict) urgency() int {
	if v.Action == RollBack || v.Action == Stay {
		return -1
	}
	return slices.IndexFunc(rules, func(r rule) bool { return r.reason == v.Reason })
}

// First returns the verdict of several that is told before the others, with what those that wait for the same
// say; false where none gates.
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

// Policy is what the site says of upgrades.
type Policy struct {
	Manual         bool
	Approved       string // name of the revision that someone consented to
	Windows        []Window
	NeverRollBack  bool
	AllowDowngrade []string // "csi@3.5.1"
}

// OneWay is a release that cannot be gone back from: what it changes its predecessors do
// not read.
type OneWay struct {
	matrix.ReleaseID
	Why string
}

// Facts are what is decided on.
type Facts struct {
	Now    time.Time
	Policy Policy
	// History of the group, with the revisions that may be installed from: see Unusable.
	History revision.History
	// Candidate is what was chosen for the group; nil where nothing could be.
	Candidate *revision.Revision
	// Whole is the candidate of all groups, which approvals and retries name; nil: Candidate.
	Whole *revision.Revision
	// Running are the versions that run, by driver.
	Running map[matrix.Driver]matrix.Version
	OneWay  []OneWay
	// Attempt is what it is now.
	Attempt revision.Attempt
	// Interlock is what changes just now that the group depends on, "" for nothing.
	Interlock string
	// Frozen is why nothing but repairs is done, "" where more may be: nothing is gone back
	// from then.
	Frozen string
	// Untrusted is why the bundle of the current revision is not trusted any more, "" where it is.
	Untrusted string
	// Unusable says of revisions, by name, why they cannot be gone back to.
	Unusable map[string]string
}

// Decide decides.
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

// candidate decides on the candidate alone.
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
		if why := rule.why(f, cur, changing); why != "" && len(changing) > 0 {
			v := Verdict{Action: rule.action, Reason: rule.reason, Message: why}
			if rule.until != nil {
				v.Until = rule.until(f)
			}
			return v
		}
	}
	return Verdict{Action: Proceed, Starts: true}
}

// changing are the drivers of the candidate that change, in its order.
func (f *Facts) changing(cur revision.Record) []string {
	return slices.DeleteFunc(f.Candidate.Drivers(), func(d string) bool {
		return !revision.Changes(cur.Revision, *f.Candidate, d) && !f.adopts(cur, d)
	})
}

// adopts reports whether a driver of the candidate runs in another version and the current revision
// does not have it: what runs is someone else's, or no one remembers it.
func (f *Facts) adopts(cur revision.Record, d string) bool {
	runs, exists := f.Running[matrix.Driver(d)]
	return exists && cur.Version(d) == "" && f.Candidate.Version(d) != runs.String()
}

// rule is one gate, and all that is said of it anywhere.
type rule struct {
	reason Reason
	// action is Wait of what ends by itself or by an approval: what runs counts as all right meanwhile.
	action Action
	// why says what gates a group of which drivers change, "" where nothing does.
	why func(f *Facts, cur revision.Record, changing []string) string
	// approvable is set where an approval ends it.
	approvable bool
	// toDo is what a person can do about it where it has no end that is known; NAME is the candidate's.
	toDo string
	// until is when it ends by itself, the zero time where it does not; nil where no one knows.
	until func(f *Facts) time.Time
}

// rules are the gates in the order in which they count, and are told. Another one is another row.
var rules = []rule{
	{reason: Failed, action: Gated, why: (*Facts).failedBefore, approvable: true,
		toDo: "fix what it failed at, then try it once more: vdoctl upgrade approve NAME"},
	{reason: DowngradeRefused, action: Gated, why: (*Facts).downgrades, approvable: true,
		toDo: "vdoctl upgrade approve NAME --allow-downgrade, where no release says that it cannot be gone back from"},
	{reason: NotApproved, action: Wait, why: (*Facts).unapproved, approvable: true,
		toDo: "vdoctl upgrade approve NAME"},
	{reason: Interlocked, action: Wait,
		why:  func(f *Facts, _ revision.Record, _ []string) string { return f.Interlock },
		toDo: "end what it waits for, where that does not end by itself"},
	{reason: WindowClosed, action: Wait, why: (*Facts).outside, until: (*Facts).opens,
		toDo: "correct spec.upgradePolicy.windows of the VDOConfig"},
}

func ruleOf(r Reason) rule {
	i := slices.IndexFunc(rules, func(known rule) bool { return known.reason == r })
	if i < 0 {
		return rule{toDo: "nothing: it goes on by itself", approvable: true} // of another version: it does no harm
	}
	return rules[i]
}

// ToDo says what a person can do about a candidate of that name that is gated, and until when.
func (r Reason) ToDo(until time.Time, name string) string {
	if !until.IsZero() {
		return "nothing: it begins at " + clock(until)
	}
	return strings.Replace(ruleOf(r).toDo, "NAME", name, 1)
}

// Waits reports whether it ends by itself or by an approval.
func (r Reason) Waits() bool { return ruleOf(r).action == Wait }

// Approvable reports whether an approval ends it.
func (r Reason) Approvable() bool { return ruleOf(r).approvable }

// Canaries tells whether a revision that takes the place of another one changes pods that
// canary nodes are to have first: those of the storage driver. Where what is in force did not
// come past its canary nodes, what takes its place begins there too.
func Canaries(from revision.Record, to revision.Revision) bool {
	const d = string(matrix.CSI)
	changes := revision.Changes(from.Revision, to, d)
	if from.Same(to) && !changes {
		return from.Canary.Open() || (from.Failed() && from.Canary != nil)
	}
	return to.Version(d) != "" && (changes || from.Canary.Open())
}

func (f *Facts) failedBefore(revision.Record, []string) string {
	for _, known := range f.History.Records {
		if known.Failed() && known.Equal(*f.Candidate) && !f.again(known) {
			return fmt.Sprintf("%s failed at %s and is not tried again: %s", known.Name(), clock(known.Since), known.Reason)
		}
	}
	return ""
}

// again tells whether a revision that failed may be tried again.
func (f *Facts) again(known revision.Record) bool {
	was := known.Attempt
	if f.Attempt.Asks(was, known.Revision, f.offered()) {
		return true
	}
	return !f.Policy.Manual && (was.Program != f.Attempt.Program || was.Generation != f.Attempt.Generation)
}

// offered is what approvals are of.
func (f *Facts) offered() revision.Revision {
	if f.Whole != nil {
		return *f.Whole
	}
	return *f.Candidate
}

func (f *Facts) downgrades(cur revision.Record, changing []string) string {
	var all []string
	for _, d := range changing {
		to, err := matrix.ParseVersion(f.Candidate.Version(d))
		runs := f.runs(cur, d)
		if err != nil || runs.IsZero() || !to.LessThan(runs) {
			continue
		}
		was, id := fmt.Sprintf("%s@%s runs", d, runs), fmt.Sprintf("%s@%s", d, to)
		if why := NoWayBack(f.OneWay, matrix.Driver(d), to, runs); why != "" {
			all = append(all, fmt.Sprintf("%s, and %s may not take its place: %s", was, id, why))
		} else if !slices.Contains(f.Policy.AllowDowngrade, id) {
			all = append(all, fmt.Sprintf("%s: add %s to spec.upgradePolicy.allowDowngrade to approve the downgrade", was, id))
		}
	}
	return strings.Join(all, "; ")
}

// runs is the highest version of a driver that runs or was installed.
func (f *Facts) runs(cur revision.Record, driver string) matrix.Version {
	runs := f.Running[matrix.Driver(driver)]
	if v, err := matrix.ParseVersion(cur.Version(driver)); err == nil && cur.Outcome != revision.Progressing && !cur.Failed() && runs.LessThan(v) {
		return v
	}
	return runs
}

// NoWayBack says why a driver may not go back from one version to a lower one, "" where it may.
func NoWayBack(marks []OneWay, driver matrix.Driver, to, from matrix.Version) string {
	for _, m := range marks {
		if m.Driver == driver && to.LessThan(m.Version) && !from.LessThan(m.Version) {
			return fmt.Sprintf("%s cannot be gone back from: %s", m.ReleaseID, m.Why)
		}
	}
	return ""
}

// unapproved gates a group under Manual unless this of it was approved.
func (f *Facts) unapproved(_ revision.Record, changing []string) string {
	approval := f.History.Consent
	if !f.Policy.Manual || (approval != nil && approval.Revision == f.Candidate.Name()) {
		return ""
	}
	releases := slices.DeleteFunc(slices.Clone(f.Candidate.Releases), func(id string) bool {
		d, _, _ := strings.Cut(id, "@")
		return !slices.Contains(changing, d)
	})
	text := fmt.Sprintf("%s waits for approval: set spec.upgradePolicy.approval with revision %s and your name in by",
		strings.Join(releases, ", "), f.offered().Name())
	if f.Policy.Approved != "" && approval == nil {
		text += fmt.Sprintf("; the approval of %s is of another revision, and does nothing", f.Policy.Approved)
	}
	return text
}

func (f *Facts) outside(revision.Record, []string) string {
	why, _ := f.Policy.Closed(f.Now)
	return why
}

func (f *Facts) opens() time.Time {
	_, next := f.Policy.Closed(f.Now)
	return next
}

// Closed says that no maintenance window is open, "" where one is or there are none, and when the next
// one opens, the zero time where none ever does.
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

// rollBack goes back from a revision that failed, where it can.
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
		from, errFrom := matrix.ParseVersion(cur.Version(d))
		to, errTo := matrix.ParseVersion(target.Version(d))
		if errFrom != nil || errTo != nil {
			return d + " has no version"
		}
		if runs := f.Running[matrix.Driver(d)]; from.LessThan(runs) {
			from = runs
		}
		if why := NoWayBack(f.OneWay, matrix.Driver(d), to, from); why != "" {
			return why
		}
	}
	return ""
}
