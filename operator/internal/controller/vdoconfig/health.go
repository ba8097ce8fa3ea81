package vdoconfig

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/rollout"
)

// assess judges the requested and installed drivers after the pass's changes. It judges nothing if the operator cannot
// read them.
func (p *pass) assess(ctx context.Context) error {
	if p.observed == nil {
		return nil // the fault is reported
	}
	if p.outcome.changed > 0 {
		if err := p.observe(ctx, p.Cluster.Observe); err != nil {
			return err
		}
	}
	return p.assessed(ctx)
}

// observe reads the drivers' state from the cache, or with a list before irreversible steps: a removal, and the outcome
// Healthy.
func (p *pass) observe(ctx context.Context, look func(context.Context) (assess.Observed, error)) error {
	observed, err := look(ctx)
	if err != nil {
		return err
	}
	observed.Nodes = p.onVSphere(observed.Nodes)
	p.omitLeftWebhook(&observed)
	observed.Now = p.now
	p.observed = &observed
	return nil
}

// omitLeftWebhook omits a storage webhook that is neither requested nor installed by the operator. It stays in its
// version, and does not count as an installed driver.
func (p *pass) omitLeftWebhook(o *assess.Observed) {
	key := webhookDeployment.Key
	if _, ours := p.inventory.Get(key); ours || wantsWebhook(&p.config.Spec) {
		return
	}
	o.Deployments = slices.DeleteFunc(o.Deployments, func(d appsv1.Deployment) bool {
		return d.Namespace == key.Namespace && d.Name == key.Name
	})
}

func (p *pass) assessed(ctx context.Context) error {
	// The drivers' secrets are removed from quoted logs.
	var holders []inventory.ID
	for _, key := range slices.Concat(configured, copies) {
		if e, ok := p.inventory.Get(key); ok {
			holders = append(holders, e.ID)
		}
	}
	live, _, err := p.Cluster.Read(ctx, holders)
	if err != nil {
		return err
	}
	storage := p.outcome.spec.StorageProvider
	report := assess.Assess(assess.Input{
		Observed: *p.observed, Requested: p.judged(),
		Topology: storage != nil && len(storage.TopologyCategories) > 0,
		Missing:  p.missing(), Secrets: p.secrets(live),
	})
	p.outcome.report = &report
	return nil
}

// judged returns the drivers to judge: the decided ones, and those that are requested or retained and exist or were
// installed.
func (p *result) judged() []matrix.Driver {
	exists := installed(p.observed, p.inventory)
	requested := p.facts.requested()
	return slices.DeleteFunc(slices.Clone(inOrder), func(d matrix.Driver) bool {
		_, is := exists[d]
		return (!is && p.decision.version(d) == "") || (!slices.Contains(requested, d) && p.facts.retained[d] == "")
	})
}

// missing returns the workloads of the inventory that the cluster lacks, except those that are obsolete.
func (p *result) missing() []assess.Missing {
	exists := map[inventory.Key]bool{}
	for _, w := range p.observed.All() {
		exists[plan.WorkloadID(w).Key] = true
	}
	steps := map[inventory.Key]plan.Step{}
	if p.outcome.plan != nil {
		for _, s := range p.outcome.plan.Steps {
			steps[s.Key] = s
		}
	}
	var all []assess.Missing
	for _, e := range p.inventory.Entries() {
		s := steps[e.Key]
		if p.observed.Unread[e.Driver] != nil {
			continue // unknown
		}
		if !isWorkload(e.Key) || e.Release == "" || exists[e.Key] || slices.Contains([]plan.Action{plan.Prune, plan.Gone, plan.Forget}, s.Action) {
			continue
		}
		all = append(all, assess.Missing{Driver: e.Driver, Workload: e.Key.String(), BeingMade: s.Writes() && !stopped(&p.config.Spec) && !p.tolerated(s)})
	}
	return all
}

func isWorkload(k inventory.Key) bool {
	return k.Group == "apps" && (k.Kind == "DaemonSet" || k.Kind == "Deployment")
}

func message(h assess.Health) string {
	if err := h.Err(); err != nil {
		return fault.Text(err)
	}
	return cmp.Or(h.Waits(), h.Note)
}

func nodes(rep *assess.Report) []v1alpha1.NodeStatus {
	var all []v1alpha1.NodeStatus
	for _, f := range rep.Nodes[:min(len(rep.Nodes), maxNodes)] {
		text := f.Message
		if !f.Waiting { // unfinished work needs no remedy yet
			text += ": " + f.Remedy
		}
		all = append(all, v1alpha1.NodeStatus{
			Name: f.Node, Driver: string(f.Driver), Reason: string(f.Reason), Message: condition.Cut(text, maxText)})
	}
	return all
}

// Reasons of the condition Upgraded, besides those of package decide.
const reasonRolledBack = "RolledBack"

// before returns the findings of before a revision's start: they do not count against it.
func (s *facts) before() []string {
	drivers := slices.Collect(maps.Keys(s.site.Installed))
	report := assess.Assess(assess.Input{Observed: *s.observed, Requested: drivers})
	return findingsOf(&report, drivers)
}

// findingsOf returns the failures of a report by stable short names, without those of nodes that are not ready.
func findingsOf(report *assess.Report, of []matrix.Driver) []string {
	var all []string
	for _, d := range of {
		if report.Drivers[d].Unserved {
			all = append(all, string(d)+"/Unserved")
		}
		for _, f := range report.Drivers[d].Findings {
			if !f.Waiting && !f.Away {
				all = append(all, string(d)+"/"+string(f.Reason))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// judgeRevisions judges the current revisions and records their outcomes. It lists the drivers before the outcome
// Healthy.
func (p *pass) judgeRevisions(ctx context.Context) error {
	was := p.inventory.Memory().Revisions
	if p.outcome.report == nil || stopped(&p.config.Spec) {
		return nil
	}
	now, healthy := p.afterLook(was)
	if healthy {
		if err := p.observe(ctx, p.Cluster.ObserveListed); err != nil {
			return err
		}
		if err := p.assessed(ctx); err != nil {
			return err
		}
		now, _ = p.afterLook(was)
	}
	memory := p.inventory.Memory()
	memory.Revisions = now
	if err := p.record(ctx, p.inventory.WithMemory(memory)); err != nil {
		return err
	}
	p.emitRevisions(was, now)
	return nil
}

// afterLook returns the histories after a look at the groups that are not healthy, and whether one became healthy.
func (p *pass) afterLook(was revision.Histories) (now revision.Histories, healthy bool) {
	now = was
	for group, h := range was {
		cur, ok := h.InForce()
		if !ok || cur.Outcome == revision.Healthy {
			continue
		}
		h = rollout.Judge(h, p.lookAt(cur)).Bounded(historyLimit(&p.config.Spec))
		is, _ := h.InForce()
		now, healthy = now.With(group, h), healthy || is.Outcome == revision.Healthy
	}
	return now, healthy
}

// clockPaused reports whether a fault or wait outside of a revision prevents its judgement. Such are forbidden reads,
// and an API server, mirror or vCenter that is down or unchecked. A changed class, a drift rule or a candidate is none
// of these.
func (p *pass) clockPaused(cur revision.Record) bool {
	own := slices.ContainsFunc(cur.Drivers(), func(d matrix.Driver) bool {
		return p.facts.faults[d] != nil || condition.Passing(p.outcome.failed[d]) || p.stuck(d)
	})
	return own || p.outcome.broken != nil || p.facts.gated != nil ||
		p.facts.waiting != "" || p.facts.sets.rolls
}

// stuck reports whether a driver is behind, or uses a vCenter that is down or unchecked.
func (p *pass) stuck(d matrix.Driver) bool {
	return p.behind(d) || slices.ContainsFunc(p.facts.driverHolds(), func(h hold) bool { return h.driver == d && !h.check })
}

// mayLackOthers reports whether the storage driver may fail on account of an earlier driver: one that is stuck and not
// healthy.
func (p *pass) mayLackOthers(group revision.Group) bool {
	return group == matrix.CSI && slices.ContainsFunc([]matrix.Driver{matrix.CNI, matrix.CPI}, func(d matrix.Driver) bool {
		h, judged := p.outcome.report.Drivers[d]
		return judged && !h.Healthy() && p.stuck(d)
	})
}

func (p *pass) lookAt(cur revision.Record) rollout.Facts {
	group := cur.Group()
	report := p.outcome.report
	// An earlier stage waits.
	comes := group == matrix.CSI && !cur.Returned && p.waitsForOthers(group)
	own := func(s plan.Step) bool { return revision.GroupOf(s.Driver) == group }
	contested := p.contested(group)
	l := rollout.Facts{
		Now: p.facts.at0(), Deadline: policyOf(&p.config.Spec).HealthDeadline.Duration, Attempt: p.facts.attempt(),
		Complete: !p.waitsFor(group) && !comes && !slices.ContainsFunc(p.outcome.did, own) &&
			p.outcome.broken == nil && !contested,
		ClockPaused: comes || contested || p.mayLackOthers(group) || p.clockPaused(cur),
	}
	var drivers []matrix.Driver
	lacks := ""
	for _, d := range cur.Drivers() {
		h, judged := report.Drivers[d]
		if !judged {
			continue // another driver's serves
		}
		drivers = append(drivers, d)
		l.Complete = l.Complete && h.Complete && h.Version == cur.Version(d).String() && p.outcome.failed[d] == nil &&
			!p.behind(d)
		l.Why = sentences(l.Why, fault.Text(p.outcome.failed[d]))
		if text := message(h); text != "" {
			lacks = sentences(lacks, string(d)+": "+text)
		}
	}
	for _, w := range p.facts.observed.All() {
		if !w.Foreign && slices.Contains(drivers, w.Driver) && w.Version == cur.Version(w.Driver).String() {
			desired, done := p.facts.observed.Progress(w)
			l.Desired, l.Progress = l.Desired+desired, l.Progress+done
			l.ClockPaused = l.ClockPaused || (desired == 0 && w.Desired > 0) // all of its nodes are down
		}
	}
	if group == matrix.CSI {
		l.Canary = p.canaryLook()
	}
	l.Complete = l.Complete && l.Canary == nil && len(drivers) > 0 // none is judged of a group that is being removed
	l.Findings = findingsOf(report, drivers)
	l.Why = sentences(lacks, l.Why)
	return l
}

// behind reports whether a driver stays unchanged because no readable bundle has its release of the current revision.
// The version does not tell whether it has changed to that.
func (p *pass) behind(d matrix.Driver) bool {
	c, current := p.upgrades.current[d]
	return current && c.from == nil && p.decision.version(d) == ""
}

func (p *result) history() revision.Histories { return p.inventory.Memory().Revisions }

func (p *pass) emitRevisions(was, now revision.Histories) {
	for _, group := range revision.Groups {
		for _, r := range now[group].Records {
			before, known := was[group].ByNumber(r.Number)
			p.emitRevision(before, known, r)
		}
	}
}

// told has the event of each outcome of a revision.
var told = map[revision.Outcome]struct{ kind, reason, note string }{
	revision.Progressing: {corev1.EventTypeNormal, "RevisionStarted", "Started revision %s: %s"},
	revision.Healthy:     {corev1.EventTypeNormal, "RevisionHealthy", "Rolled out revision %s: %s"},
	revision.Failed:      {corev1.EventTypeWarning, "UpgradeFailed", "Failed to roll out revision %s: %s"},
	revision.RolledBack:  {corev1.EventTypeWarning, reasonRolledBack, "Rolled back revision %s: %s"},
}

func (p *pass) emitRevision(before revision.Record, known bool, r revision.Record) {
	if known && before.Outcome == r.Outcome && before.Since.Equal(r.Since) {
		if before.Canary.Open() && r.Canary != nil && r.Canary.Passed && p.facts.canaryPolicy() != nil {
			p.emit(corev1.EventTypeNormal, "CanaryHealthy", "Upgrade",
				fmt.Sprintf("Verified revision %s on the canary nodes: the other nodes follow", r.Name()))
		}
		return
	}
	event, tells := told[r.Outcome]
	if !tells || (r.Outcome == revision.Healthy && known && r.Healthy.Equal(before.Healthy)) {
		return // known before, and another revision replaced it
	}
	what := cmp.Or(r.Reason, strings.Join(r.Releases, ", "))
	if r.Approval != nil && r.Outcome == revision.Progressing && !r.Returned { // a rollback was not approved
		what += "; approved by " + r.Approval.By
	}
	p.emit(event.kind, event.reason, "Upgrade", fmt.Sprintf(event.note, r.Name(), what))
}

func (p *result) recordRevisions(st *v1alpha1.VDOConfigStatus) {
	all := p.history()
	decided := p.outcome.report != nil || p.facts.bundle != nil
	if len(all) == 0 && !decided {
		return
	}
	st.Revisions = nil
	for _, group := range revision.Groups {
		for _, r := range all[group].Records {
			s := v1alpha1.RevisionStatus{
				Name: r.Name(), Group: string(group), Current: r.Number == all[group].Current, Bundle: r.Bundle,
				Releases: strings.Join(r.Releases, ", "), Outcome: string(r.Outcome), ImageNames: r.ImageNames,
				Reason: condition.Cut(r.Reason, maxText/2), MadeAt: metav1.NewTime(r.Made), Since: metav1.NewTime(r.Since),
			}
			if r.Approval != nil {
				s.ApprovedBy, s.ApprovedAt = r.Approval.By, &metav1.Time{Time: r.Approval.Seen}
			}
			st.Revisions = append(st.Revisions, s)
		}
	}
	slices.SortStableFunc(st.Revisions, func(a, b v1alpha1.RevisionStatus) int {
		return a.MadeAt.Compare(b.MadeAt.Time)
	})
	if decided {
		st.Candidate, st.Rollout = p.candidateStatus(), p.rolloutStatus(all)
	}
}

func (p *result) candidateStatus() *v1alpha1.CandidateStatus {
	r := &p.upgrades
	if r.candidate == nil {
		return nil
	}
	c := &v1alpha1.CandidateStatus{Name: r.candidate.Name(), Releases: strings.Join(r.candidate.Releases, ", ")}
	var waiting []decide.Verdict
	for _, group := range revision.Groups {
		v := r.verdicts[group]
		if why := p.groupGates()[group]; why != nil && !v.Gates() && p.upgradesTo(group) {
			v = decide.Verdict{Action: decide.Wait, Reason: decide.Blocked, Message: fault.Text(why)}
		}
		if v.Action != decide.Wait && v.Action != decide.Gated {
			continue
		}
		waiting = append(waiting, v)
		c.Gates = append(c.Gates, v1alpha1.CandidateGate{Driver: string(group), Reason: string(v.Reason),
			Message: condition.Cut(v.Message, maxText/2), NotBefore: timeUnlessZero(v.Until)})
	}
	first, ok := decide.First(waiting)
	if !ok {
		return nil
	}
	c.Reason, c.Message = string(first.Reason), condition.Cut(first.Message, maxText)
	c.NotBefore = timeUnlessZero(first.Until)
	return c
}

// upgradesTo reports whether the candidate changes an installed driver of a group.
func (p *result) upgradesTo(group revision.Group) bool {
	part, _ := p.upgrades.candidate.Of(group)
	cur, _ := p.upgrades.history[group].InForce()
	return slices.ContainsFunc(part.Drivers(), func(d matrix.Driver) bool {
		return revision.Changes(cur.Revision, part, d)
	})
}

// freshFailure returns why a group's revision failed in this pass, "" if none did: the next one decides what follows.
func (p *result) freshFailure(group revision.Group) string {
	was, _ := p.upgrades.history[group].InForce()
	is, _ := p.history()[group].InForce()
	if was.Outcome != revision.Progressing || is.Outcome != revision.Failed {
		return ""
	}
	return fmt.Sprintf("%s failed: %s; the operator rolls it back next, if it may", is.Name(), is.Reason)
}

func (p *result) upgradeFault() error {
	var all []error
	for _, group := range revision.Groups {
		v := p.upgrades.verdicts[group]
		was, _ := p.upgrades.history[group].InForce()
		name, why := was.Name(), v.Message
		hint := "push another bundle, pin the running releases, or retry a failed revision with the annotation " +
			v1alpha1.AnnotationRetry
		switch candidate, fresh := p.upgrades.candidate, p.freshFailure(group); {
		case fresh != "":
			why = fresh
		case !v.Gates() || v.Action == decide.Wait:
			continue
		case v.Action == decide.Gated && candidate != nil:
			name, hint = candidate.Name(), v.Reason.ToDo(v.Until, candidate.Name())
		}
		all = append(all, fault.Errorf(fault.Refused, "upgrade to", "revision "+name, hint, "%s", why))
	}
	return fault.Join(all...)
}

func (p *result) upgradedCondition() metav1.Condition {
	const typ = v1alpha1.ConditionUpgraded
	first, gates := p.upgrades.first()
	current, err := p.history().InForce(), p.upgradeFault()
	c := metav1.Condition{Type: typ, Status: metav1.ConditionFalse, Reason: string(first.Reason), Message: first.Message}
	if err != nil {
		c.Message = condition.False(typ, err).Message
	}
	var failed, names []string
	returned, partial := false, p.outlook()
	for _, r := range current {
		names = append(names, r.Name()+" ("+strings.Join(r.Releases, ", ")+")")
		returned = returned || r.Returned && p.upgrades.verdicts[r.Group()].Reason == decide.Failed
		if r.Outcome == revision.Failed {
			failed = append(failed, fmt.Sprintf("revision %s failed: %s", r.Name(), r.Reason))
		}
	}
	switch {
	case p.facts.bundle == nil && err == nil:
		return metav1.Condition{} // nothing was decided
	case len(current) == 0 && !gates:
		return condition.Absent(typ)
	case first.Action == decide.RollBack, failed == nil && returned:
		c.Reason = reasonRolledBack
	case gates:
	case failed != nil:
		c.Reason, c.Message = string(decide.Failed), cmp.Or(c.Message, strings.Join(failed, "; "))
	case partial != "":
		return condition.Pending(typ, partial)
	default:
		return condition.Judged(typ, nil, "current revisions: "+strings.Join(names, "; "))
	}
	return c
}

func (p *result) outlook() string {
	var all []string
	for _, group := range revision.Groups {
		h := p.history()[group]
		switch cur, _ := h.InForce(); {
		case cur.Outcome != revision.Progressing:
		case p.contested(group):
			all = append(all, "it waits for another manager to leave what its pods run, see Drifted")
		default:
			all = append(all, rollout.Outlook(h, policyOf(&p.config.Spec).HealthDeadline.Duration))
		}
	}
	return sentences(all...)
}

// contested reports whether another manager keeps setting what a group's pods run.
func (p *result) contested(group revision.Group) bool {
	return slices.ContainsFunc(p.outcome.contested, func(d matrix.Driver) bool { return revision.GroupOf(d) == group })
}

// soonEnough schedules the next pass no later than a window's start, and often until a rollout is healthy.
func (p *result) soonEnough(next reconciler.Next) reconciler.Next {
	bound := func(d time.Duration) {
		if next.AtMost == 0 || d < next.AtMost {
			next.AtMost = max(d, time.Second)
		}
	}
	for _, group := range revision.Groups {
		v := p.upgrades.verdicts[group]
		if v.Action == decide.Wait && !v.Until.IsZero() {
			bound(v.Until.Sub(p.now))
		}
		changes := v.Action == decide.Wait && v.Reason == decide.Interlocked
		if cur, _ := p.history()[group].InForce(); cur.Outcome == revision.Progressing || changes {
			bound(notReadyInterval)
		}
		if p.freshFailure(group) != "" {
			bound(reconciler.Soon)
		}
	}
	return next
}
