package vdoconfig

import (
	"context"
	"errors"
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

// rest is what is chosen without the drivers that a candidate takes over, or that wait for nodes:
// from now on they are left as they are.
func (g *gatherer) rest(facts upgrade.Facts) (decision, revision.Revision, error) {
	g.revisions.approved = false // the consent is to what was offered
	for {
		g.leaveOut(&facts)
		d := g.choose(g.bundle, nil, g.unseen())
		rev, err := g.comesOf(d)
		facts.Candidate = &rev
		if err != nil || d.refused != nil || !g.leaveOut(&facts) { // another one may have to go with them
			return d, rev, err
		}
	}
}

// leaveOut notes why drivers of a candidate are left as they are, and tells whether there are more
// of them than before.
func (g *gatherer) leaveOut(facts *upgrade.Facts) bool {
	r, before := &g.revisions, len(g.revisions.left)
	leave := func(op, why string, drivers []matrix.Driver) {
		for _, d := range drivers {
			if r.left[d] == nil {
				r.left = joined(r.left, d, &fault.Error{
					Reason: fault.Refused, Op: op, Subject: string(d), Err: errors.New(why),
					Hint: "until then it stays as it is",
				})
			}
		}
	}
	leave("take over", r.verdict.Message, facts.TakenOver())
	why, drivers := g.nodesChange(facts)
	leave("upgrade", why, drivers)
	return len(r.left) > before
}

// goesOn tells whether something may come in force though what was offered may not, and notes it:
// the same without the drivers that it takes over, and, where others are upgraded by that, without
// those that wait for nodes. That has to pass the rules by itself. It needs no consent to a bundle that
// has the same of what is installed, or away from what does not suit the cluster any more.
func (g *gatherer) goesOn(ctx context.Context, facts upgrade.Facts, cur revision.Record) bool {
	was, offered := g.revisions, facts.Candidate
	d, rest, err := g.rest(facts)
	lacks := slices.ContainsFunc(cur.Drivers(), func(d string) bool { return offered.Version(d) != "" && rest.Version(d) == "" })
	waits := func(d matrix.Driver) bool { return cur.Version(string(d)) != "" } // for nodes: it is not taken over
	parts := slices.ContainsFunc(slices.Collect(maps.Keys(g.revisions.left)), waits)
	lacks = lacks || (parts && !upgrade.Upgrades(cur.Revision, rest))
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
