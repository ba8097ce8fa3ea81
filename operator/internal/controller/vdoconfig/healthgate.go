package vdoconfig

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
)

// Reasons of the condition Upgraded, beside those of package upgrade.
const reasonRolledBack = "RolledBack"

// before are the findings that there are before a revision is begun: they are not held against it.
func (s *site) before() []string {
	var wanted []matrix.Driver
	for d := range s.installed {
		wanted = append(wanted, d)
	}
	report := assess.Assess(assess.Input{Observed: *s.observed, Now: s.now, Wanted: wanted})
	return amiss(&report, wanted)
}

// amiss are a report's findings of what is wrong, as short names that stay the same; but for those
// of nodes that are not ready.
func amiss(report *assess.Report, of []matrix.Driver) []string {
	var all []string
	for _, d := range of {
		for _, f := range report.Drivers[d].Findings {
			if !f.Waiting && !f.Away {
				all = append(all, string(d)+"/"+string(f.Reason))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// judgeRevision looks at how the revision in force fares, and records what came of it.
// That it is healthy is listed before.
func (p *pass) judgeRevision(ctx context.Context, spec *v1alpha1.VDOConfigSpec) error {
	was := p.inventory.Memory().Revisions
	cur, ok := was.InForce()
	if !ok || p.outcome.report == nil || stopped(&p.config.Spec) || cur.Outcome == revision.Healthy {
		return nil
	}
	now := upgrade.Judge(was, p.lookAt(cur))
	if is, _ := now.InForce(); is.Outcome == revision.Healthy {
		if err := p.observeListed(ctx); err != nil {
			return err
		}
		if err := p.assessed(ctx, spec, p.site.observed); err != nil {
			return err
		}
		now = upgrade.Judge(was, p.lookAt(cur))
	}
	memory := p.inventory.Memory()
	memory.Revisions = now.Bounded(historyLimit(&p.config.Spec))
	before := p.inventory
	if err := p.record(ctx, p.inventory.WithMemory(memory)); err != nil {
		return err
	}
	p.tellRevision(was, now)
	return p.dropRevisions(ctx, before, p.inventory)
}

// elsewhere tells whether something is at fault, or waited for, that is none of a revision's doing and
// that it cannot be judged beside: what may not be read of its drivers, an API server that does not
// answer, a mirror that lets nobody in. What holds single drivers is [pass.unheld]. What concerns
// something else is none of that, such as a class that differs, a rule about drift, or a candidate.
func (p *pass) elsewhere(cur revision.Record) bool {
	unread := slices.ContainsFunc(cur.Drivers(), func(name string) bool {
		d := matrix.Driver(name)
		return p.site.faults[d] != nil || condition.Passing(p.outcome.failed[d])
	})
	stale := p.site.stale != nil && p.site.held == p.site.stale //nolint:errorlint // it is the same one
	return unread || p.outcome.broken != nil || (p.site.held != nil && !stale) ||
		p.site.waiting != "" || p.site.sets.taking.rolls(p.site.now)
}

// lookAt is what this pass saw of the revision in force.
func (p *pass) lookAt(cur revision.Record) upgrade.Look {
	report := p.outcome.report
	l := upgrade.Look{Now: p.site.at0(), Complete: p.outcome.gate == "" && p.outcome.changed == 0 && p.outcome.broken == nil,
		Elsewhere: p.elsewhere(cur), Deadline: healthDeadline(p.config)}
	var drivers []matrix.Driver
	for _, name := range cur.Drivers() {
		d := matrix.Driver(name)
		h, judged := report.Drivers[d]
		if !judged {
			continue // another one's serves
		}
		drivers = append(drivers, d)
		l.Complete = l.Complete && h.Complete && h.Version == cur.Version(name) && p.outcome.failed[d] == nil
	}
	for _, w := range p.site.observed.All() {
		if !w.Foreign && slices.Contains(drivers, w.Driver) && w.Version == cur.Version(string(w.Driver)) {
			wanted, done := p.site.observed.Progress(w)
			l.Wanted, l.Progress = l.Wanted+wanted, l.Progress+done
			l.Elsewhere = l.Elsewhere || (wanted == 0 && w.Desired > 0) // all of its nodes are away
		}
	}
	l.Canary = p.canaryLook()
	behind := slices.ContainsFunc(cur.Drivers(), func(name string) bool { return p.behind(matrix.Driver(name)) })
	l.Complete = l.Complete && l.Canary == nil && !behind
	l.Amiss = amiss(report, drivers)
	unheld := p.unheld(cur, drivers)
	waiting, away := p.site.vcentersHeld()
	if behind || waiting != "" || away != nil {
		var before []string
		if cur.Gate != nil {
			before = cur.Gate.Before
		}
		// To wait for it is no fault of what is rolled out already; what falls over of that is.
		l.Elsewhere = l.Elsewhere || len(upgrade.Look{Amiss: amiss(report, unheld)}.New(before)) == 0
	}
	l.Why = lacks(report, unheld)
	for _, d := range unheld {
		l.Why = sentences(l.Why, fault.Text(p.outcome.failed[d]))
	}
	return l
}

// lacks is what drivers lack, in words.
func lacks(report *assess.Report, of []matrix.Driver) string {
	var all []string
	for _, d := range of {
		if text := message(report.Drivers[d]); text != "" {
			all = append(all, string(d)+": "+text)
		}
	}
	return strings.Join(all, "; ")
}

// unheld are those of a revision's drivers, in order of installation, whose faults are its own:
// not those that are behind, or use a vCenter that is away or not checked yet, nor those that come
// after such a one that is not well, which they may need.
func (p *pass) unheld(cur revision.Record, drivers []matrix.Driver) []matrix.Driver {
	var all []matrix.Driver
	for _, d := range drivers {
		switch {
		case !p.behind(d) && p.site.vCenterHolds(d) == nil:
			all = append(all, d)
		case !p.outcome.report.Drivers[d].Healthy():
			return all
		}
	}
	return all
}

// behind reports whether a driver is left as it is, since nothing that can be read has its release of the
// revision in force: whether it has gone over to that the version does not tell.
func (p *pass) behind(d matrix.Driver) bool {
	c, current := p.site.current[d]
	return current && c.from == nil && p.decision.version(d) == ""
}

// healthDeadline is how long a roll-out may go without progress; 0 for the default.
func healthDeadline(config *v1alpha1.VDOConfig) time.Duration {
	if policy := config.Spec.UpgradePolicy; policy != nil {
		return policy.HealthDeadline.Duration
	}
	return 0
}

// history is the one in the inventory.
func (p *result) history() revision.History { return p.inventory.Memory().Revisions }

// tellRevision tells what became of revisions.
func (p *pass) tellRevision(was, now revision.History) {
	for _, r := range now.Records {
		before, known := was.Named(r.Name())
		if known && before.Outcome == r.Outcome && before.Since.Equal(r.Since) {
			p.tellCanary(before, r)
			continue
		}
		typ := "Normal"
		var reason, note string
		switch r.Outcome {
		case revision.Progressing:
			reason, note = "RevisionStarted", fmt.Sprintf("Started revision %s: %s", r.Name(), strings.Join(r.Releases, ", "))
			if r.Approval != nil {
				note += fmt.Sprintf("; approved by %s", r.Approval.By)
			}
		case revision.Healthy:
			reason, note = "RevisionHealthy", fmt.Sprintf("Revision %s is healthy: %s", r.Name(), strings.Join(r.Releases, ", "))
		case revision.Failed:
			typ, reason, note = "Warning", "UpgradeFailed", fmt.Sprintf("Revision %s failed: %s", r.Name(), r.Reason)
		case revision.RolledBack:
			typ, reason, note = "Warning", reasonRolledBack, fmt.Sprintf("Rolled back revision %s: %s", r.Name(), r.Reason)
		default:
			continue
		}
		p.Recorder.Eventf(p.config, nil, typ, reason, "Upgrade", "%s", condition.Cut(note, condition.MaxNote))
	}
}

// tellWaiting tells of an upgrade that waits, once for each reason.
func (p *pass) tellWaiting() {
	was, now := p.config.Status.Candidate, p.candidateStatus()
	if now == nil || p.site.revisions.verdict.Action != upgrade.Wait ||
		(was != nil && was.Name == now.Name && was.Reason == now.Reason) {
		return
	}
	p.Recorder.Eventf(p.config, nil, "Normal", "UpgradeWaits", "Upgrade", "%s",
		condition.Cut(fmt.Sprintf("Delayed upgrade to revision %s (%s): %s", now.Name, now.Reason, now.Message), condition.MaxNote))
}

// maxRevisions is how many revisions the status lists: all that are remembered.
const maxRevisions = 24

func (p *result) recordRevisions(st *v1alpha1.VDOConfigStatus) {
	h := p.inventory.Memory().Revisions
	decided := p.outcome.report != nil || p.site.bundle != nil
	if len(h.Records) == 0 && !decided {
		return
	}
	st.Revision, st.Revisions = "", nil
	if cur, ok := h.InForce(); ok {
		st.Revision = cur.Name()
	}
	for _, r := range h.Records[max(0, len(h.Records)-maxRevisions):] {
		s := v1alpha1.RevisionStatus{
			Name: r.Name(), Bundle: r.Bundle, Releases: strings.Join(r.Releases, ", "), Outcome: string(r.Outcome),
			ImageNames: r.ImageNames,
			Reason:     condition.Cut(r.Reason, maxText/2), MadeAt: metav1.NewTime(r.Made), Since: metav1.NewTime(r.Since),
		}
		if r.Approval != nil {
			s.ApprovedBy, s.ApprovedAt = r.Approval.By, timeOf(r.Approval.Seen)
		}
		st.Revisions = append(st.Revisions, s)
	}
	if decided {
		st.Candidate, st.Canary = p.candidateStatus(), p.canaryStatus(h)
	}
}

// candidateStatus is the upgrade that does not come in force now, nil where there is none.
func (p *result) candidateStatus() *v1alpha1.CandidateStatus {
	r := &p.site.revisions
	if r.offered == nil || (r.verdict.Action != upgrade.Wait && r.verdict.Action != upgrade.Hold) {
		return nil
	}
	c := &v1alpha1.CandidateStatus{
		Name: r.offered.Name(), Releases: strings.Join(r.offered.Releases, ", "),
		Reason: string(r.verdict.Reason), Message: condition.Cut(r.verdict.Message, maxText),
	}
	if !r.verdict.Until.IsZero() {
		c.NotBefore = timeOf(r.verdict.Until)
	}
	for _, g := range r.verdict.Gates {
		gate := v1alpha1.CandidateGate{Driver: string(g.Driver), Reason: string(g.Reason),
			Message: condition.Cut(g.Message, maxText/2)}
		if !g.Until.IsZero() {
			gate.NotBefore = timeOf(g.Until)
		}
		c.Gates = append(c.Gates, gate)
	}
	return c
}

// upgradeFault is an upgrade that somebody has to see to, or nil.
func (p *result) upgradeFault() error {
	r := &p.site.revisions
	name, installed := p.history().InForce()
	stays := "what runs stays as it is"
	if installed {
		stays = fmt.Sprintf("revision %s stays current", name.Name())
	}
	switch {
	case r.verdict.Message == "" || r.verdict.Action == upgrade.Wait || r.verdict.Action == upgrade.RollBack:
		return nil
	case r.verdict.Action == upgrade.Hold && r.offered != nil:
		return &fault.Error{
			Reason: fault.Refused, Op: "upgrade to", Subject: "revision " + r.offered.Name(), Err: fmt.Errorf("%s", r.verdict.Message),
			Hint: fmt.Sprintf("%s; push another bundle, pin what shall stay, or ask for a revision that failed once more by the annotation %s", stays, v1alpha1.AnnotationRetry),
		}
	}
	return &fault.Error{
		Reason: fault.Refused, Op: "upgrade to", Subject: "revision " + name.Name(), Err: fmt.Errorf("%s", r.verdict.Message),
		Hint: "push another bundle, or correct what its drivers say",
	}
}

// upgradedCondition says whether what was chosen is in force.
func (p *result) upgradedCondition() []metav1.Condition {
	const typ = v1alpha1.ConditionUpgraded
	r := &p.site.revisions
	cur, ok := p.history().InForce()
	err := p.upgradeFault()
	switch {
	case p.site.bundle == nil && err == nil:
		return nil // nothing was decided
	case !ok && !r.verdict.Holds():
		return []metav1.Condition{condition.Absent(typ)}
	case err != nil && cur.Returned:
		c := condition.False(typ, err)
		c.Reason = reasonRolledBack
		return []metav1.Condition{c}
	case err != nil:
		c := condition.False(typ, err)
		c.Reason = string(r.verdict.Reason)
		return []metav1.Condition{c}
	case r.verdict.Action == upgrade.RollBack:
		return []metav1.Condition{{Type: typ, Status: metav1.ConditionFalse, Reason: reasonRolledBack, Message: r.verdict.Message}}
	case r.verdict.Action == upgrade.Wait:
		return []metav1.Condition{{Type: typ, Status: metav1.ConditionFalse, Reason: string(r.verdict.Reason), Message: r.verdict.Message}}
	case cur.Outcome == revision.Failed:
		return []metav1.Condition{{Type: typ, Status: metav1.ConditionFalse, Reason: string(upgrade.Failed),
			Message: fmt.Sprintf("revision %s failed: %s", cur.Name(), cur.Reason)}}
	case cur.Outcome == revision.Progressing:
		return []metav1.Condition{condition.Pending(typ, upgrade.Outlook(p.history(), healthDeadline(p.config)))}
	}
	return []metav1.Condition{condition.Judged(typ, nil, fmt.Sprintf("revision %s is current", cur.Name()))}
}

// soonEnough lets no window go by, and looks at a roll-out until it is healthy.
func (p *result) soonEnough(next reconciler.Next) reconciler.Next {
	bound := func(d time.Duration) {
		if next.AtMost == 0 || d < next.AtMost {
			next.AtMost = max(d, time.Second)
		}
	}
	if v := p.site.revisions.verdict; v.Action == upgrade.Wait && !v.Until.IsZero() && v.Until.Sub(p.now) < next.Interval {
		bound(v.Until.Sub(p.now))
	}
	if cur, ok := p.history().InForce(); (ok && cur.Outcome == revision.Progressing) || p.site.revisions.verdict.Reason == upgrade.Interlocked {
		bound(notReadyInterval)
	}
	if p.site.checks.made {
		bound(p.site.checks.again(&p.config.Spec))
	}
	return next
}
