// Package upgrade decides whether drivers may go from what is current of them to what a candidate
// has, now. It is pure, and knows no clock but the time that it is given.
//
// # What is an upgrade
//
// A driver changes where the candidate has another version of it than the revision in force, or
// the same version made of something else. It changes as well where that revision does not have it
// and it runs in another version: somebody else installed it, and it is adopted. The installation of
// what does not run is no change, nor is the adoption of a driver in the version that runs, its
// removal, or another bundle with the same of every release. Those proceed.
//
// A driver counts as running in the version that its label or its image's tag tells. One that
// neither tells of is installed as if it did not run.
//
// # The gates
//
// Each driver that changes meets these, the first that applies counts:
//
//	Failed            it failed with the same changes; a retry by name, or, under Automatic, another
//	                  program or VDOConfig, tries it again. A failure consumes an approval.
//	DowngradeRefused  an older version than runs needs consent to that release, and none goes back
//	                  across an irreversible release
//	NotApproved       under Manual the candidate needs an approval by its name
//	Interlocked       something that the driver depends on changes just now
//	WindowClosed      no maintenance window is open; what was begun is ended outside of them
//
// # The revision in force
//
// It stays in force while there is nothing to put in its place. From one that failed, or whose
// bundle is not trusted any more while it is rolled out, the operator goes back (but for
// spec.upgradePolicy.rollback, an irreversible release, or nothing to go back to), unless all of
// another candidate may start.
//
// # Chosen nodes first
//
// An upgrade of the storage driver may come to chosen nodes first (spec.upgradePolicy.canary,
// [Canaries]). Until those were healthy for a while no other node gets its pods: an upgrade
// that fails is one that no other node has seen. Where a storage driver is adopted that is not
// so: there is no revision of what runs to go back to.
//
// # Failure
//
// [Judge] says of a roll-out, look by look, whether it is healthy, has failed or goes on.
// It has failed once it made no progress for its deadline. It is not held against it what
// was amiss before it was begun, nor the time in which something else is known to be at
// fault or the operator did not run.
package upgrade

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

// The actions.
const (
	// Proceed: the candidate is, or comes, in force.
	Proceed Action = "Proceed"
	// Stay: what is in force stays so; nothing is held back.
	Stay Action = "Stay"
	// Wait: what is in force stays so until something ends by itself, or somebody consents.
	Wait Action = "Wait"
	// Hold: what is in force stays so until somebody mends something.
	Hold Action = "Hold"
	// RollBack: an earlier revision is put back.
	RollBack Action = "RollBack"
)

// Reason is why, for machines.
type Reason string

// The reasons.
const (
	NotApproved      Reason = "NotApproved"
	WindowClosed     Reason = "WindowClosed"
	Interlocked      Reason = "Interlocked"
	DowngradeRefused Reason = "DowngradeRefused"
	Failed           Reason = "Failed"
)

// ToDo says what a person can do about a revision that waits or is refused, by the reason of the
// verdict on it.
func ToDo(r Reason, name string) string {
	switch r {
	case NotApproved:
		return "vdoctl upgrade approve " + name
	case DowngradeRefused:
		return "vdoctl upgrade approve " + name + " --allow-downgrade, where no release says that it cannot be gone back from"
	case Failed:
		return "mend what it failed at, then try it once more: vdoctl upgrade approve " + name
	case Interlocked:
		return "end what it waits for, where that does not end by itself"
	}
	return "nothing: it goes on by itself"
}

// Gate is why a driver does not change to what the candidate has of it now.
type Gate struct {
	Driver  matrix.Driver
	Reason  Reason
	Message string
	Until   time.Time // when to ask again, the zero time where nobody knows
}

// Verdict is the decision.
type Verdict struct {
	Action  Action
	Reason  Reason
	Message string
	Until   time.Time // of Wait, where it is known when to look again
	To      string    // of RollBack: the revision's name
	// Begins is set where the candidate is to be begun: it is not in force, or is tried again.
	Begins bool
	// Gates are why drivers do not change, one for each of them. The others may.
	Gates []Gate
}

// Holds tells whether a candidate is kept from coming in force.
func (v Verdict) Holds() bool {
	return v.Action == Wait || v.Action == Hold || v.Action == RollBack
}

// Policy is what the site says of upgrades.
type Policy struct {
	Manual         bool
	Approved       string // name of the revision that somebody consented to
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
	// History with the revisions that may be installed from: see Unusable.
	History revision.History
	// Candidate is what was chosen; nil where nothing could be.
	Candidate *revision.Revision
	// Offered is what would be chosen if nothing gated it, which approvals are of; nil: Candidate.
	Offered *revision.Revision
	// Running are the versions that run, by driver.
	Running map[matrix.Driver]matrix.Version
	OneWay  []OneWay
	// Attempt is what it is now.
	Attempt revision.Attempt
	// Interlocks are what changes just now that a driver depends on, "" or absent for nothing.
	Interlocks map[matrix.Driver]string
	// Frozen is why nothing but repairs is done, "" where more may be: nothing is gone back
	// from then.
	Frozen string
	// Untrusted is why the bundle of the revision in force is not trusted any more, "" where it is.
	Untrusted string
	// Unusable says of revisions, by name, why they cannot be gone back to.
	Unusable map[string]string
}

// Decide decides.
func Decide(f Facts) Verdict {
	cur, installed := f.History.InForce()
	if !installed && f.Candidate == nil {
		return Verdict{Action: Proceed}
	}
	next := f.candidate(cur)
	failed := cur.Outcome == revision.Failed
	if why := f.Untrusted; why != "" && cur.Outcome == revision.Progressing && !cur.Returned {
		failed, cur.Reason = true, why
	}
	if !failed || (next.Action == Proceed && !f.keepsFailed(cur)) {
		return next
	}
	back := f.rollBack(cur, next)
	if back.Action != RollBack && f.Candidate != nil && len(next.Gates) < len(f.changing(cur)) {
		return next // it stays, and drivers that nothing gates go on
	}
	return back
}

// keepsFailed reports whether the candidate keeps something that the revision in force changed and failed
// with.
func (f *Facts) keepsFailed(cur revision.Record) bool {
	another := f.Candidate != nil && !f.Candidate.Same(cur.Revision) // else it is tried again
	return another && slices.ContainsFunc(changedBy(cur), func(d string) bool {
		return f.Candidate.Version(d) != "" && !revision.Changes(cur.Revision, *f.Candidate, d)
	})
}

// candidate decides on the candidate alone.
func (f *Facts) candidate(cur revision.Record) Verdict {
	if f.Candidate == nil {
		return Verdict{Action: Stay}
	}
	same := f.Candidate.Same(cur.Revision)
	if same && cur.Outcome == revision.Failed && !f.again(cur) {
		return Verdict{Action: Stay}
	}
	changing := f.changing(cur)
	if same && len(changing) == 0 {
		return Verdict{Action: Proceed, Begins: cur.Outcome == revision.Failed}
	}
	return f.gates(cur, changing)
}

// changing are the drivers of the candidate that change, in its order.
func (f *Facts) changing(cur revision.Record) []matrix.Driver {
	var all []matrix.Driver
	for _, d := range f.Candidate.Drivers() {
		if revision.Changes(cur.Revision, *f.Candidate, d) || f.adopts(cur, d) {
			all = append(all, matrix.Driver(d))
		}
	}
	return all
}

// adopts reports whether a driver of the candidate runs in another version and the revision in force
// does not have it: what runs is somebody else's, or nobody remembers it.
func (f *Facts) adopts(cur revision.Record, d string) bool {
	runs, there := f.Running[matrix.Driver(d)]
	return there && cur.Version(d) == "" && f.Candidate.Version(d) != runs.String()
}

// rules are what gates a driver, in order.
var rules = []func(f *Facts, cur revision.Record, d matrix.Driver) (Gate, bool){
	(*Facts).failedBefore, (*Facts).downgrades, (*Facts).unapproved, (*Facts).interlocked, (*Facts).outside,
}

// gates applies the rules to the drivers that change. The verdict is that of the first rule that gates
// one.
func (f *Facts) gates(cur revision.Record, changing []matrix.Driver) Verdict {
	v := Verdict{Action: Proceed, Begins: true}
	gated := map[matrix.Driver]bool{}
	for _, rule := range rules {
		var messages []string
		for _, d := range changing {
			g, applies := rule(f, cur, d)
			if !applies || gated[d] {
				continue
			}
			g.Driver, gated[d] = d, true
			v.Gates = append(v.Gates, g)
			if v.Reason == "" || v.Reason == g.Reason {
				v.Reason, v.Until = g.Reason, g.Until
				messages = slices.DeleteFunc(messages, func(m string) bool { return strings.Contains(g.Message, m) })
				messages = append(messages, g.Message)
			}
		}
		if len(messages) > 0 {
			v.Action, v.Begins, v.Message = actionOf(v.Reason), false, strings.Join(messages, "; ")
		}
	}
	return v
}

// actionOf is what a reason means: some end by themselves or by an approval.
func actionOf(r Reason) Action {
	if slices.Contains([]Reason{NotApproved, WindowClosed, Interlocked}, r) {
		return Wait
	}
	return Hold
}

// Canaries tells whether a revision that takes the place of another one changes pods that
// chosen nodes are to have first: those of the storage driver. Where what is in force did not
// come past its chosen nodes, what takes its place begins there too.
func Canaries(from revision.Record, to revision.Revision) bool {
	const d = string(matrix.CSI)
	changes := revision.Changes(from.Revision, to, d)
	if from.Same(to) && !changes {
		return from.Canary.Open() || (from.Failed() && from.Canary != nil)
	}
	return to.Version(d) != "" && (changes || from.Canary.Open())
}

// failedBefore gates a driver that changes as in a revision that failed, from the same bundle, where all
// that changed with it there changes so again.
func (f *Facts) failedBefore(_ revision.Record, d matrix.Driver) (Gate, bool) {
	for _, known := range f.History.Records {
		if !known.Failed() || f.again(known) {
			continue
		}
		changed := changedBy(known)
		another := func(d string) bool {
			return known.Version(d) != f.Candidate.Version(d) || known.BundleOf(d) != f.Candidate.BundleOf(d)
		}
		if slices.Contains(changed, string(d)) && !slices.ContainsFunc(changed, another) {
			return Gate{Reason: Failed, Message: fmt.Sprintf(
				"%s failed at %s and is not tried again: %s", known.Name(), known.Since.UTC().Format(time.RFC3339),
				known.Reason)}, true
		}
	}
	return Gate{}, false
}

// changedBy are the drivers that a revision fails for: all of one that does not know.
func changedBy(r revision.Record) []string {
	if r.Changed == nil {
		return r.Drivers()
	}
	return r.Changed
}

// again tells whether a revision that failed may be tried again.
func (f *Facts) again(known revision.Record) bool {
	if f.History.Asks(f.Attempt.Retry, known.Revision) || f.History.Asks(f.Attempt.Retry, f.offered()) {
		return true
	}
	was := known.Attempt
	return !f.Policy.Manual && (was.Program != f.Attempt.Program || was.Generation != f.Attempt.Generation)
}

// offered is what approvals are of.
func (f *Facts) offered() revision.Revision {
	if f.Offered != nil {
		return *f.Offered
	}
	return *f.Candidate
}

// downgrades gates one without consent.
func (f *Facts) downgrades(cur revision.Record, d matrix.Driver) (Gate, bool) {
	to, err := matrix.ParseVersion(f.Candidate.Version(string(d)))
	runs := f.runs(cur, string(d))
	if err != nil || runs.IsZero() || !to.LessThan(runs) {
		return Gate{}, false
	}
	was, id := fmt.Sprintf("%s@%s runs", d, runs), fmt.Sprintf("%s@%s", d, to)
	if why := f.oneWay(string(d), to, runs); why != "" {
		return Gate{Reason: DowngradeRefused, Message: fmt.Sprintf("%s, and %s may not take its place: %s", was,
			id, why)}, true
	}
	return Gate{Reason: DowngradeRefused,
			Message: fmt.Sprintf("%s: add %s to spec.upgradePolicy.allowDowngrade to approve the downgrade", was, id)},
		!slices.Contains(f.Policy.AllowDowngrade, id)
}

// runs is the highest version of a driver that runs or was installed.
func (f *Facts) runs(cur revision.Record, driver string) matrix.Version {
	runs := f.Running[matrix.Driver(driver)]
	if v, err := matrix.ParseVersion(cur.Version(driver)); err == nil && cur.Outcome != revision.Progressing && !cur.Failed() && runs.LessThan(v) {
		return v
	}
	return runs
}

// NoWayBack says why a driver that was upgraded could not be gone back with, "" where it could.
func NoWayBack(marks []OneWay, driver matrix.Driver, before, after matrix.Version) string {
	f := Facts{OneWay: marks}
	return f.oneWay(string(driver), before, after)
}

// oneWay says why a driver may not go from one version to a lower one, "" where it may.
func (f *Facts) oneWay(driver string, to, from matrix.Version) string {
	for _, m := range f.OneWay {
		if string(m.Driver) == driver && to.LessThan(m.Version) && !from.LessThan(m.Version) {
			return fmt.Sprintf("%s cannot be gone back from: %s", m.ReleaseID, m.Why)
		}
	}
	return ""
}

// unapproved gates a driver under Manual unless what was approved has the same of it.
func (f *Facts) unapproved(cur revision.Record, d matrix.Driver) (Gate, bool) {
	offered := f.offered()
	name := string(d)
	same := offered.Version(name) == f.Candidate.Version(name) && !revision.Changes(offered, *f.Candidate, name)
	approved := offered.Called(f.Policy.Approved)
	if !f.Policy.Manual || (approved && same) {
		return Gate{}, false
	}
	text := fmt.Sprintf("%s waits for approval: set spec.upgradePolicy.approval with revision %s and your name in by", strings.Join(changed(cur, offered), ", "), offered.Name())
	if f.Policy.Approved != "" && !approved {
		text += fmt.Sprintf("; the approval of %s is of another revision, and does nothing", f.Policy.Approved)
	}
	return Gate{Reason: NotApproved, Message: text}, true
}

// changed are the releases of a revision that are not in force as they are.
func changed(cur revision.Record, to revision.Revision) []string {
	return slices.DeleteFunc(slices.Clone(to.Releases), func(id string) bool {
		d, _, _ := strings.Cut(id, "@")
		return cur.Version(d) != "" && !revision.Changes(cur.Revision, to, d)
	})
}

func (f *Facts) interlocked(_ revision.Record, d matrix.Driver) (Gate, bool) {
	return Gate{Reason: Interlocked, Message: f.Interlocks[d]}, f.Interlocks[d] != ""
}

func (f *Facts) outside(revision.Record, matrix.Driver) (Gate, bool) {
	why, next := f.Policy.Closed(f.Now)
	return Gate{Reason: WindowClosed, Until: next, Message: why}, why != ""
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
	return "the next maintenance window opens at " + next.UTC().Format(time.RFC3339), next
}

// rollBack goes back from a revision that failed, where it can.
func (f *Facts) rollBack(cur revision.Record, next Verdict) Verdict {
	hold := func(why string) Verdict {
		text := fmt.Sprintf("%s failed: %s; %s", cur.Name(), cur.Reason, why)
		if next.Message != "" {
			text += "; " + next.Message
		}
		return Verdict{Action: Stay, Reason: Failed, Message: text}
	}
	if f.Policy.NeverRollBack {
		return hold("it stays, as spec.upgradePolicy.rollback says")
	}
	if f.Frozen != "" {
		return hold("it stays: " + f.Frozen)
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
		return hold("there is no earlier healthy revision of the same drivers to go back to")
	}
	return hold("it cannot be gone back from: " + strings.Join(not, "; "))
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
		if why := f.oneWay(d, to, from); why != "" {
			return why
		}
	}
	return ""
}
