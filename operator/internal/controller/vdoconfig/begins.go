package vdoconfig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
)

// leave has what somebody else installed in another version stay as it is, where nothing is in
// force yet, and begins the rest: drivers that do not run, or run in the version that is taken.
func (g *gatherer) leave(facts upgrade.Facts) {
	r := &g.revisions
	r.candidate = nil
	d, rest, err := g.rest(facts)
	if err != nil {
		g.hold(err)
		return
	}
	if d.refused == nil && len(rest.Releases) > 0 {
		r.candidate, r.verdict.Begins = &rest, true
	}
}

// rest is what is chosen without the drivers that a candidate takes over: from now on they are
// left as they are.
func (g *gatherer) rest(facts upgrade.Facts) (decision, revision.Revision, error) {
	r := &g.revisions
	r.approved = false // the consent is to what was offered
	for {
		for _, d := range facts.TakenOver() {
			r.left = joined(r.left, d, &fault.Error{
				Reason: fault.Refused, Op: "take over", Subject: string(d), Err: errors.New(r.verdict.Message),
				Hint: "until then it stays as it is",
			})
		}
		d := g.choose(g.bundle, nil, g.unseen())
		rev, err := g.comesOf(d)
		facts.Candidate = &rev
		if err != nil || d.refused != nil || len(facts.TakenOver()) == 0 { // another one may have to go with them
			return d, rev, err
		}
	}
}

// consented tells whether what is offered has its consent and only waits. It is not forestalled:
// with a revision in between it would have another name.
func (r *revisions) consented(facts upgrade.Facts) bool {
	return r.approved && facts.Policy.Manual && r.verdict.Action == upgrade.Wait
}

// awaitsWhole tells whether what would be offered has its consent and waits, were nothing of it held
// back and all there to be read, where nothing is in force yet; and notes it. It is not forestalled,
// neither by what is left of it nor by taking over what runs in the bundle's version: with a revision
// in between it would have another name. What takes nothing over needs no consent, and waits for none.
func (g *gatherer) awaitsWhole(ctx context.Context, facts upgrade.Facts) bool {
	if !facts.Policy.Manual || facts.Policy.Approved == "" || g.frozen != "" {
		return false
	}
	free := g.site.released()
	free.revisions.approved = true
	d := free.choose(g.bundle, nil, nil)
	whole, err := revisionOf(d)
	if err != nil || d.refused != nil || facts.History.NameOf(whole) != facts.Policy.Approved {
		return false
	}
	unseen := g.unseen()
	maps.DeleteFunc(unseen, func(d matrix.Driver, _ error) bool { return whole.Version(string(d)) == "" })
	facts.Candidate = &whole
	if len(unseen) == 0 && len(facts.TakenOver()) == 0 {
		return false
	}
	facts.Interlock, facts.OneWay = g.interlocks(&facts), g.oneWay(ctx)
	switch v := upgrade.Decide(facts); v.Action {
	case upgrade.Wait:
		g.await(whole, v, errors.New(v.Message))
	case upgrade.Proceed:
		why := g.site.hold()
		if why == nil {
			why = fault.Join(together(g.holds()), together(unseen))
		}
		if why == nil {
			return false
		}
		g.await(whole, upgrade.Verdict{Action: upgrade.Wait, Reason: upgrade.Interlocked, Message: fault.Text(why)}, why)
	default:
		return false
	}
	return true
}

// await has a revision that has its consent be the first to begin, and nothing be installed or taken
// over before.
func (g *gatherer) await(rev revision.Revision, v upgrade.Verdict, why error) {
	reason := fault.Refused
	if fault.Gravest(why) == fault.Incomplete {
		reason = fault.Incomplete // it ends by itself
	}
	held := g.site.hold()
	r := &g.revisions
	r.candidate, r.offered, r.verdict = nil, &rev, v
	r.awaited = &fault.Error{
		Reason: reason, Op: "install", Subject: "drivers", Err: fmt.Errorf("revision %s has its consent, and waits: %w", r.history.NameOf(rev), why),
		Hint: "it begins then; to have at once what need not wait, take the approval back",
	}
	if held == nil {
		g.hold(r.awaited)
	}
}

// goesOn tells whether something may come in force though what was offered may not, and notes it:
// the same without the drivers that it takes over. That has to pass the rules by itself. It needs no
// consent to a bundle that has the same of what is installed, or away from what does not suit the
// cluster any more.
func (g *gatherer) goesOn(ctx context.Context, facts upgrade.Facts, cur revision.Record) bool {
	was, offered := g.revisions, facts.Candidate
	if was.consented(facts) {
		return false
	}
	d, rest, err := g.rest(facts)
	lacks := slices.ContainsFunc(cur.Drivers(), func(d string) bool { return offered.Version(d) != "" && rest.Version(d) == "" })
	if err == nil && d.refused == nil && !lacks && (len(g.revisions.left) == 0 || !g.needsLast(d)) {
		facts.Candidate, facts.Policy.Approved = &rest, ""
		facts.Interlock = g.interlocks(&facts)
		if facts.Policy.Manual && !sameVersions(cur.Revision, rest) {
			suits, err := g.suits(ctx, cur)
			facts.Policy.Manual = err != nil || suits // what cannot be opened may suit as well
		}
		if v := upgrade.Decide(facts); v.Action == upgrade.Proceed {
			g.revisions.candidate, g.revisions.verdict.Begins = &rest, v.Begins
			return true
		}
	}
	g.revisions = was
	return false
}

func sameVersions(a, b revision.Revision) bool {
	return !slices.ContainsFunc(a.Drivers(), func(d string) bool { return b.Version(d) != "" && b.Version(d) != a.Version(d) })
}
