package vdoconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
)

// revisions is what a pass knows of what was installed from, and what it decides on the
// upgrade to what was chosen.
type revisions struct {
	history   revision.History
	candidate *revision.Revision // what comes in force, where it may; nil where nothing was chosen
	offered   *revision.Revision // what was chosen, as if upgrades were automatic
	verdict   upgrade.Verdict
	approved  bool // spec.upgradePolicy.approval is of the candidate
	// left are drivers that somebody else installed in another version than was chosen, or that
	// wait for nodes, and why, where the others go on without them.
	left map[matrix.Driver]error
	// kept is in force instead of what the bundle would give, and why; nil where nothing is.
	kept *revision.Record
	from *opened // that kept is read from
	why  string
	// untrusted is why the bundle of the revision that is rolled out is not trusted any more.
	untrusted string
}

// gatherRevisions decides whether what was chosen may take the place of what is in force,
// and opens what is in force instead. It is last: it asks what the rest was gathered for.
func (g *gatherer) gatherRevisions(ctx context.Context) error {
	if g.bundle == nil {
		return nil
	}
	r := &g.revisions
	r.history = g.historyOf()
	facts, err := g.upgradeFacts(ctx)
	if err != nil {
		g.hold(err)
		facts.Candidate = nil
	}
	r.candidate, r.offered, r.untrusted = facts.Candidate, facts.Candidate, g.revoked(ctx)
	facts.Untrusted = r.untrusted
	for {
		r.verdict = upgrade.Decide(facts)
		if r.verdict.Action != upgrade.RollBack {
			break
		}
		target, _ := r.history.Named(r.verdict.To)
		err := g.keepTarget(ctx, target)
		if err == nil {
			r.why = r.verdict.Message
			return nil
		}
		facts.Unusable[target.Name()] = fault.Text(err)
	}
	return g.keepInForce(ctx, facts)
}

// keepInForce opens the revision in force where nothing else may take its place. Where it
// cannot be opened nothing new is installed at all.
func (g *gatherer) keepInForce(ctx context.Context, facts upgrade.Facts) error {
	r := &g.revisions
	cur, installed := r.history.InForce()
	switch {
	case !installed && r.verdict.Holds():
		g.leave(facts)
		return nil
	case !installed, r.verdict.Action == upgrade.Proceed:
		return nil
	case r.verdict.Holds() && (slices.Contains([]upgrade.Reason{upgrade.NotApproved, upgrade.Interlocked}, r.verdict.Reason) ||
		len(facts.TakenOver()) > 0) && g.goesOn(ctx, facts, cur):
		return nil
	case !r.verdict.Holds() && !cur.Returned && cur.Outcome != revision.Failed && r.untrusted == "":
		return nil // what is held back for other reasons is decided on release by release
	}
	err := g.keep(ctx, cur)
	r.why = r.verdict.Message
	if r.why == "" {
		r.why = fmt.Sprintf("revision %s is in force", cur.Name())
	}
	if err != nil {
		r.why += "; it cannot be read: " + fault.Text(err)
		g.unkept = &fault.Error{Reason: fault.Refused, Op: "upgrade", Subject: "drivers", Err: errors.New(r.why)}
		g.bundleHeld = true
	}
	return nil
}

// at0 is the time of the pass as it is written down.
func (s *site) at0() time.Time { return s.now.UTC().Truncate(time.Second) }

// attempt is under which circumstances a revision is tried now.
func (s *site) attempt() revision.Attempt {
	return revision.Attempt{Program: cmp.Or(s.program, program), Generation: s.config.Generation, Retry: v1alpha1.Asked(s.config, v1alpha1.AnnotationRetry)}
}

// oneWay are the releases that cannot be gone back from, as the accepted bundle's matrix
// says, and that of the bundle that is installed from: an older bundle knows nothing of a
// newer release.
func (g *gatherer) oneWay(ctx context.Context) []upgrade.OneWay {
	read, last := []*opened{g.bundle}, g.last
	if last == nil {
		last, _ = g.openLastBut(ctx, g.bundle.source) // one that cannot be read says nothing
	}
	if last != nil {
		read = append(read, last)
	}
	var all []upgrade.OneWay
	for _, o := range read {
		for _, r := range o.matrix.Releases {
			if r.OneWay != "" {
				all = append(all, upgrade.OneWay{ReleaseID: r.ReleaseID, Why: r.OneWay})
			}
		}
	}
	return all
}

// upgradeFacts are what package upgrade decides on.
func (g *gatherer) upgradeFacts(ctx context.Context) (upgrade.Facts, error) {
	f := upgrade.Facts{
		Now: g.at0(), History: g.revisions.history, Running: g.installed,
		Attempt: g.attempt(), Frozen: g.frozen, Unusable: map[string]string{}, OneWay: g.oneWay(ctx),
	}
	var err error
	if f.Policy, err = upgradePolicy(&g.config.Spec, manual(&g.config.Spec, g.bundle.source)); err != nil || g.site.hold() != nil {
		return f, err
	}
	d := g.chooseFreely(g.bundle)
	if d.refused != nil || (g.last != nil && g.staysWithLast(g.choose(g.bundle, nil, g.faults))) {
		return f, nil //nolint:nilerr // it is told by the decision
	}
	rev, err := g.comesOf(d)
	if err != nil {
		return f, err
	}
	f.Candidate = &rev
	f.Interlock = g.interlocks(&f)
	g.revisions.approved = rev.Called(f.Policy.Approved)
	return f, nil
}

// chooseFreely decides from a bundle as if upgrades were automatic and no driver at fault, but that
// nobody knows what runs of it.
func (s *site) chooseFreely(b *opened) decision {
	free := *s
	free.revisions.approved = true
	return free.choose(b, nil, s.unseen())
}

// unseen are drivers that cannot be read and are not in force. Somebody else's may run in another
// version: they come in force once that is known, by the rules of a take-over.
func (s *site) unseen() map[matrix.Driver]error {
	cur, _ := s.revisions.history.InForce()
	all := maps.Clone(s.observed.Unread)
	maps.DeleteFunc(all, func(d matrix.Driver, _ error) bool { return cur.Version(string(d)) != "" })
	return all
}

// upgradePolicy reads the policy of a spec.
func upgradePolicy(spec *v1alpha1.VDOConfigSpec, manual bool) (upgrade.Policy, error) {
	p := upgrade.Policy{Manual: manual}
	from := spec.UpgradePolicy
	if from == nil {
		return p, nil
	}
	p.NeverRollBack, p.AllowDowngrade = from.Rollback == v1alpha1.RollbackNever, from.AllowDowngrade
	if from.Approval != nil {
		p.Approved = from.Approval.Revision
	}
	var errs []error
	for _, w := range from.Windows {
		parsed, err := upgrade.ParseWindow(w)
		errs = append(errs, err)
		p.Windows = append(p.Windows, parsed)
	}
	if from.Canary != nil {
		_, err := canarySelector(from.Canary)
		errs = append(errs, err)
	}
	return p, fault.Join(errs...)
}

// revisionOf is what a decision would install.
func revisionOf(d decision) (revision.Revision, error) {
	rev := revision.Revision{Bundle: d.from.reference(), Source: d.from.source.Name, Contents: map[string]string{}}
	for _, id := range d.releases {
		rev.Releases = append(rev.Releases, id.String())
	}
	made, err := content(d)
	for driver, text := range made {
		_, rev.Contents[string(driver)], _ = strings.Cut(text, "/")
	}
	return rev, err
}

// comesOf is what a decision would install with the drivers that are held as they are.
func (s *site) comesOf(d decision) (revision.Revision, error) {
	rev, err := revisionOf(d)
	if cur, ok := s.revisions.history.InForce(); ok && err == nil {
		for driver := range s.holds() {
			rev = rev.Holding(string(driver), cur.Revision)
		}
	}
	return rev, err
}

// keeps puts what is in force in the place of what was decided.
func (s *site) keeps(d decision) decision {
	r := &s.revisions
	if r.kept == nil {
		return d
	}
	d.from, d.fixed, d.releases = r.from, true, nil
	d.reasons, d.held = map[matrix.Driver][]string{}, map[matrix.Driver]string{}
	wanted := append(s.wanted(), s.retained...)
	for _, driver := range inOrder {
		if !slices.Contains(wanted, driver) {
			continue
		}
		v, err := matrix.ParseVersion(r.kept.Version(string(driver)))
		if err != nil {
			d.held[driver] = r.why
			continue
		}
		d.releases = append(d.releases, matrix.ReleaseID{Driver: driver, Version: v})
		d.reasons[driver] = []string{r.why}
	}
	for driver, why := range s.faults {
		d = d.without(driver, why.Error())
	}
	return d
}

// begun is the history once what was rendered is being applied.
func (s *site) begun(r rendering) revision.History {
	u := &s.revisions
	h := u.history.Wished(s.attempt().Retry)
	if s.frozen != "" || r.frozen != "" || r.untrusted != "" || r.refused != nil {
		return h
	}
	switch {
	case u.verdict.Action == upgrade.RollBack && u.kept != nil:
		if u.untrusted != "" {
			h = h.Fail(u.untrusted, s.at0())
		}
		h = h.RollBack(u.verdict.To, s.at0())
	case u.kept == nil && u.verdict.Begins && u.candidate != nil && r.decision.from != nil && r.decision.from.reference() == u.candidate.Bundle:
		h = h.Begin(*u.candidate, revision.Beginning{
			Now: s.at0(), Attempt: s.attempt(), Approval: s.approval(), Before: s.before(), Canary: s.canaryBegins()})
	}
	if cur, ok := h.InForce(); ok && r.decision.from != nil && r.decision.from.reference() == cur.Bundle {
		h = h.WithImageNames(r.decision.from.source.Spec.ImageNames)
	}
	return h.Bounded(historyLimit(&s.config.Spec))
}

// approval is who consented to what is begun.
func (s *site) approval() *revision.Approval {
	if !s.revisions.approved || !manual(&s.config.Spec, s.bundle.source) {
		return nil
	}
	return &revision.Approval{By: s.config.Spec.UpgradePolicy.Approval.By, Seen: s.at0()}
}

const defaultHistoryLimit = 3

func historyLimit(spec *v1alpha1.VDOConfigSpec) int {
	if p := spec.UpgradePolicy; p != nil && p.RevisionHistoryLimit != nil {
		return int(*p.RevisionHistoryLimit)
	}
	return defaultHistoryLimit
}
