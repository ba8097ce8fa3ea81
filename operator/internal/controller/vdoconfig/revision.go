package vdoconfig

import (
	"cmp"
	"context"
	"errors"
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
	offered   *revision.Revision // what would come in force without gates, which approvals are of; nil for nothing
	candidate *revision.Revision // what comes in force: the same, but for the drivers that are gated
	verdict   upgrade.Verdict    // on that, with the gates of all rounds
	gates     map[matrix.Driver]error
	// untrusted is why the bundle of the revision that is rolled out is not trusted any more.
	untrusted string
}

// gatherRevisions decides which drivers go from what is current of them to what was chosen. It is last:
// it asks what the rest was gathered for.
func (g *gatherer) gatherRevisions(ctx context.Context) error {
	if g.bundle == nil {
		return nil
	}
	r := &g.revisions
	r.history = g.historyOf()
	cur, _ := r.history.InForce()
	g.current = g.currentOfRecord(ctx, cur)
	g.revoke(ctx, cur)
	facts, err := g.upgradeFacts(ctx)
	if err != nil {
		g.hold(err)
	}
	if g.site.hold() == nil {
		free := g.site
		free.ungated = true
		if r.offered, err = free.offers(); err != nil {
			return err
		}
	}
	if facts.Candidate, err = g.offers(); err != nil {
		return err
	}
	facts.Offered = r.offered
	r.verdict = upgrade.Decide(facts)
	for r.verdict.Action == upgrade.RollBack {
		target, _ := r.history.Named(r.verdict.To)
		err := g.goBackTo(ctx, target)
		if err == nil {
			break
		}
		facts.Unusable[target.Name()] = fault.Text(err)
		r.verdict = upgrade.Decide(facts)
	}
	if r.verdict.Message != "" && (r.verdict.Action == upgrade.RollBack || r.verdict.Action == upgrade.Stay) {
		for _, d := range g.wanted() {
			g.gate(upgrade.Gate{Driver: d, Message: r.verdict.Message})
		}
		return nil
	}
	return g.gateDrivers(facts)
}

// gateDrivers has the drivers that rules gate stay what they are, until the rest meets the rules.
func (g *gatherer) gateDrivers(facts upgrade.Facts) error {
	r, v := &g.revisions, g.revisions.verdict
	for len(v.Gates) > 0 {
		before := len(r.gates)
		for _, gate := range v.Gates {
			g.gate(gate)
		}
		var err error
		if facts.Candidate, err = g.offers(); err != nil || facts.Candidate == nil || len(r.gates) == before {
			return err
		}
		v = upgrade.Decide(facts)
		r.verdict.Gates = append(r.verdict.Gates, v.Gates...)
	}
	cur, _ := r.history.InForce()
	r.candidate, r.verdict.Begins = facts.Candidate, v.Begins && g.begins(cur, *facts.Candidate)
	return nil
}

// gate has a driver stay what it is.
func (g *gatherer) gate(by upgrade.Gate) {
	g.revisions.gates = joined(g.revisions.gates, by.Driver, &fault.Error{
		Reason: fault.Refused, Op: "change", Subject: string(by.Driver), Err: errors.New(by.Message),
		Hint: "until then it stays as it is",
	})
}

// begins reports whether a revision has anything that the one in force does not have, is another try at
// it, or has all of the same from another bundle.
func (s *site) begins(cur revision.Record, to revision.Revision) bool {
	all := len(s.revisions.gates) == 0 && len(to.Bundles) == 0
	if all || to.Same(cur.Revision) || len(cur.Releases) != len(to.Releases) {
		return true
	}
	return slices.ContainsFunc(to.Drivers(), func(d string) bool {
		return cur.Version(d) == "" || revision.Changes(cur.Revision, to, d)
	})
}

// revoke notes which current drivers come from a bundle that is not trusted any more, while a revision is
// rolled out: nothing new of them is applied, and the revision fails where it is its own bundle.
func (g *gatherer) revoke(ctx context.Context, cur revision.Record) {
	if cur.Outcome != revision.Progressing || cur.Returned {
		return
	}
	for _, bundle := range bundles([]revision.Record{cur}) {
		err := g.trusts(ctx, bundle)
		if fault.ReasonOf(err) != fault.Untrusted {
			continue // it is trusted, or nobody can tell
		}
		if bundle == cur.Bundle {
			g.revisions.untrusted = fault.Text(err)
		}
		for d, c := range g.current {
			if c.bundle == bundle {
				c.revoked = fault.Text(err)
				g.current[d] = c
			}
		}
	}
}

// offers is what the accepted bundle has for the drivers that nothing gates, with the others as they
// are; nil where nothing may be chosen. No driver counts as being at fault, but those of which nobody
// knows what runs.
func (s *site) offers() (*revision.Revision, error) {
	if s.hold() != nil {
		return nil, nil //nolint:nilerr // resolve reports it
	}
	d := s.choose(s.bundle, nil, s.unseen())
	if d.refused != nil {
		return nil, nil //nolint:nilerr // likewise
	}
	rev, err := s.revisionOf(d)
	return &rev, err
}

// at0 is the time of the pass as it is written down.
func (s *site) at0() time.Time { return s.now.UTC().Truncate(time.Second) }

// attempt is under which circumstances a revision is tried now.
func (s *site) attempt() revision.Attempt {
	return revision.Attempt{Program: cmp.Or(s.program, program), Generation: s.config.Generation, Retry: v1alpha1.Asked(s.config, v1alpha1.AnnotationRetry)}
}

// oneWay are the releases that cannot be gone back from, as the accepted bundle's matrix
// says, and those of the bundles that drivers come from: an older bundle knows nothing of a newer release.
func (g *gatherer) oneWay(ctx context.Context) []upgrade.OneWay {
	read := []*opened{g.bundle}
	cur, _ := g.revisions.history.InForce()
	for _, bundle := range bundles([]revision.Record{cur}) {
		if o, err := g.openSource(ctx, bundle); err == nil && o != g.bundle { // one that cannot be read says nothing
			read = append(read, o)
		}
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

// upgradeFacts are what package upgrade decides on, but for the candidate.
func (g *gatherer) upgradeFacts(ctx context.Context) (upgrade.Facts, error) {
	cur, _ := g.revisions.history.InForce()
	policy, err := upgradePolicy(&g.config.Spec, manual(&g.config.Spec, g.bundle.source))
	return upgrade.Facts{
		Now: g.at0(), Policy: policy, History: g.revisions.history, Running: g.installed, Attempt: g.attempt(),
		Frozen:    g.frozen,
		Untrusted: g.revisions.untrusted, Unusable: map[string]string{}, OneWay: g.oneWay(ctx),
		Interlocks: g.interlocks(cur),
	}, err
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

// revisionOf is what a decision would install. A driver of the revision in force that cannot be rendered
// now stays a part of it.
func (s *site) revisionOf(d decision) (revision.Revision, error) {
	rev := revision.Revision{Bundle: d.from.reference(), Source: d.from.source.Name, Contents: map[string]string{}}
	made, err := content(d)
	for _, driver := range inOrder {
		c, stays := d.current[driver]
		if !stays && d.held[driver] != "" {
			c, stays = s.current[driver]
		}
		version, name := d.version(driver), string(driver)
		if stays {
			version = c.id.Version.String()
		}
		if version == "" {
			continue
		}
		rev.Releases = append(rev.Releases, name+"@"+version)
		if _, is, ok := strings.Cut(made[driver], "/"); ok {
			rev.Contents[name] = is
		}
		if stays && c.bundle != "" && c.bundle != rev.Bundle && c.from != d.from {
			if rev.Bundles == nil {
				rev.Bundles = map[string]string{}
			}
			rev.Bundles[name], rev.Contents[name] = c.bundle, c.content
		}
	}
	return rev, err
}

// begun is the history once what was rendered is being applied.
func (s *site) begun(r rendering) revision.History {
	u := &s.revisions
	h := u.history.Wished(s.attempt().Retry)
	if s.frozen != "" || r.frozen != "" || r.refused != nil {
		return h
	}
	switch {
	case u.verdict.Action == upgrade.RollBack:
		if u.untrusted != "" {
			h = h.Fail(u.untrusted, s.at0())
		}
		h = h.RollBack(u.verdict.To, s.at0())
	case u.verdict.Begins && u.candidate != nil:
		h = h.Begin(*u.candidate, revision.Beginning{
			Now: s.at0(), Attempt: s.attempt(), Approval: s.approval(), Before: s.before(),
			Canary: s.canaryBegins(), Offered: u.offered})
	}
	if cur, ok := h.InForce(); ok && r.decision.from != nil && r.decision.from.reference() == cur.Bundle {
		h = h.WithImageNames(r.decision.from.source.Spec.ImageNames)
	}
	return h.Bounded(historyLimit(&s.config.Spec))
}

// approval is who consented to what is begun.
func (s *site) approval() *revision.Approval {
	p := s.config.Spec.UpgradePolicy
	if p == nil || p.Approval == nil || !s.revisions.offered.Called(p.Approval.Revision) ||
		!manual(&s.config.Spec, s.bundle.source) {
		return nil
	}
	return &revision.Approval{By: p.Approval.By, Seen: s.at0()}
}

const defaultHistoryLimit = 3

func historyLimit(spec *v1alpha1.VDOConfigSpec) int {
	if p := spec.UpgradePolicy; p != nil && p.RevisionHistoryLimit != nil {
		return int(*p.RevisionHistoryLimit)
	}
	return defaultHistoryLimit
}
