// Package upgrade decides whether the revision that was chosen may take the place of the
// one in force, now. It is pure, and knows no clock but the time that it is given.
//
// # What is an upgrade
//
// Another revision of which a driver that runs changes: its version, or what the bundle
// has of that version. So is the one in force where a driver goes over to what its bundle has
// that was held when it was begun: nothing of that was rolled out. And so is one with a driver
// that the revision in force, if there is any, does not have, and that runs in another version:
// somebody else installed it, and it is taken over ([Facts.TakenOver]). The installation of what
// does not run is none, nor is it one where a driver is taken over in the version that runs or
// taken away, and the others stay as they are, or where another bundle has the same of every
// release. Those proceed.
//
// A driver counts as running in the version that its label or its image's tag tells. One that
// neither tells of is installed as if it did not run.
//
// # The rules, the first that applies
//
//   - What is in force stays in force while there is nothing to put in its place.
//   - A revision that failed is rolled back from, unless it may not be (spec.upgradePolicy,
//     a one-way mark of the matrix, nothing to go back to), or another one may proceed.
//   - A revision whose bundle is not trusted any more while it is rolled out counts as failed.
//   - A revision that failed is not tried again while the bundle, the releases, the program
//     and the VDOConfig are the same, unless it is asked for by name: once each time that
//     the wish changes. Under Manual only that counts: the consent was to one attempt.
//   - A driver is changed to an older version than runs only with consent to that release,
//     and never across a one-way mark.
//   - Under Manual an upgrade waits for an approval by the name of its revision.
//   - While something else changes that drivers depend on, it waits.
//   - It begins in a maintenance window, where there are any. What was begun is ended.
//
// # Chosen nodes first
//
// An upgrade of the storage driver may come to chosen nodes first (spec.upgradePolicy.canary,
// [Canaries]). Until those were healthy for a while no other node gets its pods: an upgrade
// that fails is one that no other node has seen. Where a storage driver is taken over that is not
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

// Verdict is the decision.
type Verdict struct {
	Action  Action
	Reason  Reason
	Message string
	Until   time.Time // of Wait, where it is known when to look again
	To      string    // of RollBack: the revision's name
	// Begins is set where the candidate is to be begun: it is not in force, or is tried again.
	Begins bool
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
	// Running are the versions that run, by driver.
	Running map[matrix.Driver]matrix.Version
	OneWay  []OneWay
	// Attempt is what it is now.
	Attempt revision.Attempt
	// Interlock is what changes just now, "" for nothing.
	Interlock string
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
	if failed && next.Action != Proceed {
		return f.rollBack(cur, next)
	}
	return next
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
	if same && !catchesUp(cur.Revision, *f.Candidate) {
		return Verdict{Action: Proceed, Begins: cur.Outcome == revision.Failed}
	}
	if !Upgrades(cur.Revision, *f.Candidate) && len(f.TakenOver()) == 0 {
		return Verdict{Action: Proceed, Begins: true}
	}
	for _, rule := range []func(revision.Record) (Verdict, bool){f.failedBefore, f.downgrades, f.unapproved, f.interlocked, f.outside} {
		if v, applies := rule(cur); applies {
			return v
		}
	}
	return Verdict{Action: Proceed, Begins: true}
}

// Upgrades tells whether a driver that both have changes.
func Upgrades(from, to revision.Revision) bool {
	return slices.ContainsFunc(from.Drivers(), func(d string) bool {
		return to.Version(d) != "" && (to.Version(d) != from.Version(d) || differs(from.Contents[d], to.Contents[d]))
	})
}

// TakenOver are the drivers of the candidate that run in another version and that the revision
// in force does not have: what runs is somebody else's, or nobody remembers it.
func (f *Facts) TakenOver() []matrix.Driver {
	cur, _ := f.History.InForce()
	var all []matrix.Driver
	for _, d := range f.Candidate.Drivers() {
		runs, there := f.Running[matrix.Driver(d)]
		if there && cur.Version(d) == "" && f.Candidate.Version(d) != runs.String() {
			all = append(all, matrix.Driver(d))
		}
	}
	return all
}

// catchesUp tells whether a driver that is apart in a revision goes over to what its bundle has.
func catchesUp(from, to revision.Revision) bool {
	return slices.ContainsFunc(from.Drivers(), func(d string) bool {
		return from.Apart(d) && !to.Apart(d) && differs(from.Contents[d], to.Contents[d])
	})
}

// Canaries tells whether a revision that takes the place of another one changes pods that
// chosen nodes are to have first: those of the storage driver. Where what is in force did not
// come past its chosen nodes, what takes its place begins there too.
func Canaries(from revision.Record, to revision.Revision) bool {
	const d = string(matrix.CSI)
	if from.Same(to) && !catchesUp(from.Revision, to) {
		return from.Canary != nil
	}
	changes := from.Version(d) != "" && (to.Version(d) != from.Version(d) || differs(from.Contents[d], to.Contents[d]))
	return to.Version(d) != "" && (changes || from.Canary.Open())
}

// differs tells whether two contents are known and are not the same.
func differs(a, b string) bool { return a != "" && b != "" && a != b }

func (f *Facts) failedBefore(revision.Record) (Verdict, bool) {
	known, ok := f.History.Find(*f.Candidate)
	if !ok || !known.Failed() || f.again(known) {
		return Verdict{}, false
	}
	return Verdict{Action: Hold, Reason: Failed, Message: fmt.Sprintf(
		"%s failed at %s and is not tried again: %s", known.Name(), known.Since.UTC().Format(time.RFC3339), known.Reason)}, true
}

// again tells whether a revision that failed may be tried again.
func (f *Facts) again(known revision.Record) bool {
	if f.History.Asks(f.Attempt.Retry, known.Revision) {
		return true
	}
	was := known.Attempt
	return !f.Policy.Manual && (was.Program != f.Attempt.Program || was.Generation != f.Attempt.Generation)
}

// downgrades refuses one without consent.
func (f *Facts) downgrades(cur revision.Record) (Verdict, bool) {
	var refused []string
	for _, d := range f.Candidate.Drivers() {
		to, err := matrix.ParseVersion(f.Candidate.Version(d))
		runs := f.runs(cur, d)
		if err != nil || runs.IsZero() || !to.LessThan(runs) {
			continue
		}
		id := d + "@" + to.String()
		if why := f.oneWay(d, to, runs); why != "" {
			refused = append(refused, fmt.Sprintf("%s runs, and %s may not take its place: %s", d+"@"+runs.String(), id, why))
		} else if !slices.Contains(f.Policy.AllowDowngrade, id) {
			refused = append(refused, fmt.Sprintf("%s runs: add %s to spec.upgradePolicy.allowDowngrade to consent", d+"@"+runs.String(), id))
		}
	}
	return Verdict{Action: Hold, Reason: DowngradeRefused, Message: strings.Join(refused, "; ")}, len(refused) > 0
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

func (f *Facts) unapproved(cur revision.Record) (Verdict, bool) {
	name := f.Candidate.Name()
	if !f.Policy.Manual || f.Candidate.Called(f.Policy.Approved) {
		return Verdict{}, false
	}
	text := fmt.Sprintf("%s waits for consent: set spec.upgradePolicy.approval with revision %s and your name in by", strings.Join(f.changing(cur), ", "), name)
	if f.Policy.Approved != "" {
		text += fmt.Sprintf("; the approval of %s is of another revision, and does nothing", f.Policy.Approved)
	}
	return Verdict{Action: Wait, Reason: NotApproved, Message: text}, true
}

// changing are the releases of the candidate that are not in force as they are.
func (f *Facts) changing(cur revision.Record) []string {
	return slices.DeleteFunc(slices.Clone(f.Candidate.Releases), func(id string) bool {
		d, version, _ := strings.Cut(id, "@")
		caught := cur.Apart(d) && !f.Candidate.Apart(d)
		return cur.Version(d) == version && !differs(cur.Contents[d], f.Candidate.Contents[d]) && !caught
	})
}

func (f *Facts) interlocked(revision.Record) (Verdict, bool) {
	return Verdict{Action: Wait, Reason: Interlocked, Message: f.Interlock}, f.Interlock != ""
}

func (f *Facts) outside(revision.Record) (Verdict, bool) {
	why, next := f.Policy.Closed(f.Now)
	return Verdict{Action: Wait, Reason: WindowClosed, Until: next, Message: why}, why != ""
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
