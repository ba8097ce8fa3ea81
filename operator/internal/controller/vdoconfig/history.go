package vdoconfig

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
)

// The history of revisions is a part of the inventory: who may delete ConfigMaps deletes it. The
// status, which is written under another right, has enough of it that losing it lets no upgrade
// begin that waited, and none be tried again that failed. What it says is believed as far as it
// holds something back. What is in force by it alone is sealed, and so installed from or gone
// back to, only where its bundle is trusted now.

// historyOf is what is remembered, or, of an installation that has no history yet, what
// runs. That is sealed only once its bundle is trusted: the inventory alone names it.
func (g *gatherer) historyOf(ctx context.Context) revision.History {
	h := g.inventory.Memory().Revisions
	h.Last = max(h.Last, highestRevision(&g.config.Status)) // of an inventory that was lost
	if g.historyLost() {
		return g.recalled(ctx, h)
	}
	h = g.sealRetained(ctx, h)
	cur, known := h.InForce()
	if g.inventory.Len() == 0 || (known && (cur.Seal != "" || unknown(cur))) {
		return h
	}
	rev, complete := g.running()
	if rev.Bundle == "" || len(rev.Releases) == 0 {
		return h
	}
	if !known {
		h = h.Adopt(rev, complete, revision.Beginning{Now: g.at0(), Attempt: g.attempt()})
	}
	if g.trusts(ctx, revision.Record{Revision: rev, Made: g.at0()}) != nil {
		return h
	}
	return h.Seal(rev, g.at0(), g.hash)
}

// historyLost tells whether there is no record of what the status knows to have been installed.
func (s *site) historyLost() bool {
	st := &s.config.Status
	return s.inventory.Len() == 0 && len(s.inventory.Memory().Revisions.Records) == 0 && (st.Revision != "" || st.Bundle != "")
}

// recalling tells whether a history was recalled while nothing that is installed could be taken
// over yet: it is remembered all the same, since what there was to remember is not seen twice.
func (s *site) recalling() bool {
	return s.inventory.Len() == 0 && len(s.installed) > 0 && (s.historyLost() || len(s.inventory.Memory().Revisions.Records) > 0)
}

// recalled is the history as the status has it. In force is what was, where that runs or had not
// been seen healthy yet; else what runs.
func (g *gatherer) recalled(ctx context.Context, h revision.History) revision.History {
	st := &g.config.Status
	var all []revision.Record
	for i := range st.Revisions {
		if rec, ok := g.recordOf(&st.Revisions[i]); ok {
			all = append(all, rec)
		}
	}
	h = h.Recall(all, st.Revision, g.attempt().Retry)
	switch cur, known := h.InForce(); {
	case !known || !g.agrees(ctx, h):
		h = g.takenOver(ctx, h)
	case cur.Outcome == revision.Progressing && !cur.Returned:
		// what was amiss before it was begun is lost, and not held against it either
		h = h.WithGate(revision.Gate{Seen: g.at0(), Before: g.before()})
	}
	for _, rec := range h.Retained(historyLimit(&g.config.Spec)) {
		h = h.With(g.recalledOne(ctx, rec, rec.Number == h.Current))
	}
	return h
}

// takenOver is the history with what runs in force. That is of the bundle that was last installed
// from; where that lacks it, and the accepted one has it, an upgrade was begun that the status
// does not know of, and is ended.
func (g *gatherer) takenOver(ctx context.Context, h revision.History) revision.History {
	rev, complete := g.running()
	cur, _ := h.InForce()
	if rev.Bundle = cmp.Or(rev.Bundle, cur.Bundle); rev.Bundle == "" || len(rev.Releases) == 0 {
		return h
	}
	begins := revision.Beginning{Now: g.at0(), Attempt: g.attempt()}
	o, err := g.openAgain(ctx, revision.Record{Revision: rev})
	if err != nil || missingIn(o, revision.Record{Revision: rev}) == "" || missingIn(g.bundle, revision.Record{Revision: rev}) != "" {
		return h.Adopt(rev, complete, begins)
	}
	rev.Bundle, begins.Before = g.bundle.reference(), g.before()
	return h.Resume(rev, begins)
}

// recallReason is what the status says of a revision that is in force by what it says itself.
const recallReason = "the records of what is installed were deleted; it is in force by what the status knew and what runs"

// recordOf is the record of what the status says of a revision; false where its name does not
// fit what it is said to be of, as where that was cut.
func (g *gatherer) recordOf(row *v1alpha1.RevisionStatus) (revision.Record, bool) {
	rec := revision.Record{
		Number:   revisionNumber(row.Name),
		Revision: releasesOf(row),
		Outcome:  revision.Outcome(row.Outcome), Reason: row.Reason, Made: row.MadeAt.UTC(), Since: row.Since.UTC(), Attempt: g.attempt(),
		ImageNames: row.ImageNames,
	}
	rec.Source, rec.Contents = g.bundle.source.Name, map[string]string{}
	rec.Revision = rec.Parted(row.Apart)
	if seen := g.config.Status.ObservedGeneration; seen > 0 {
		rec.Attempt.Generation = seen // what was changed since nothing was tried with
	}
	if rec.Outcome == revision.Healthy {
		rec.Healthy = rec.Since
	}
	if row.ApprovedAt != nil {
		rec.Approval = &revision.Approval{By: row.ApprovedBy, Seen: row.ApprovedAt.UTC()}
	}
	if c := g.config.Status.Canary; c != nil && c.Revision == row.Name {
		rec.Canary = &revision.Canary{} // its time begins anew
	}
	return rec, rec.Number > 0 && rec.Name() == row.Name
}

// releasesOf is what a status says that a revision is of.
func releasesOf(row *v1alpha1.RevisionStatus) revision.Revision {
	return revision.Revision{Bundle: row.Bundle, Releases: strings.Split(row.Releases, ", ")}
}

// agrees tells whether the revision in force is what runs, as far as it is seen, or is on its way
// to be. On its way to an older release is only one that was gone back to, from one that is as
// new as what runs, and across no one-way mark: the status may be older than what runs.
func (g *gatherer) agrees(ctx context.Context, h revision.History) bool {
	cur, _ := h.InForce()
	under := cur.Outcome == revision.Progressing || cur.Failed()
	return !slices.ContainsFunc(cur.Drivers(), func(d string) bool {
		runs, there := g.installed[matrix.Driver(d)]
		is, err := matrix.ParseVersion(cur.Version(d))
		switch {
		case !there:
			return false
		case err != nil || !under:
			return runs.String() != cur.Version(d)
		case !is.LessThan(runs):
			return false
		}
		return !cur.Returned || h.TakenBack(d).LessThan(runs) || upgrade.NoWayBack(g.oneWay(ctx), matrix.Driver(d), is, runs) != ""
	})
}

// unknown tells whether nobody knows what a revision's bundle has of its releases.
func unknown(rec revision.Record) bool {
	return slices.Contains(slices.Collect(maps.Values(rec.Contents)), revision.Unknown)
}

// sealRetained seals revisions that were recalled when their bundles could not be read, or were
// not trusted: else they could never be gone back to.
func (g *gatherer) sealRetained(ctx context.Context, h revision.History) revision.History {
	for _, rec := range h.Retained(historyLimit(&g.config.Spec)) {
		if rec.Seal == "" && (unknown(rec) || rec.Number != h.Current || g.inventory.Len() == 0) {
			h = h.With(g.recalledOne(ctx, rec, false))
		}
	}
	return h
}

// recalledOne is a revision with what its bundle has of its releases, sealed where that is
// trusted now. Where it cannot be read it is another one's than any that comes. Drivers that are
// apart stay so.
func (g *gatherer) recalledOne(ctx context.Context, rec revision.Record, inForce bool) revision.Record {
	if inForce && rec.Reason == "" {
		rec.Reason = recallReason
	}
	parts := rec.Parts()
	made, err := g.contentsOf(ctx, rec)
	if rec.Contents = made; err != nil {
		rec.Contents = map[string]string{}
		for _, d := range rec.Drivers() {
			rec.Contents[d] = revision.Unknown
		}
	}
	if rec.Revision = rec.Parted(parts); err != nil {
		return rec
	}
	if now := (revision.Record{Revision: rec.Revision, Made: g.at0()}); g.trusts(ctx, now) == nil {
		rec = rec.SealedAt(g.at0(), g.hash)
	}
	return rec
}

// contentsOf are hashes of what the bundle of a revision has of its releases, by driver.
func (g *gatherer) contentsOf(ctx context.Context, rec revision.Record) (map[string]string, error) {
	o, err := g.openBundleOf(ctx, rec)
	if err != nil {
		return nil, err
	}
	d := decision{from: o}
	for _, text := range rec.Releases {
		id, err := matrix.ParseReleaseID(text)
		if err != nil {
			return nil, err
		}
		d.releases = append(d.releases, id)
	}
	rev, err := revisionOf(d)
	return rev.Contents, err
}

// running is what runs as a revision, and whether all of it was seen rolled out.
func (g *gatherer) running() (rev revision.Revision, complete bool) {
	rev = revision.Revision{Bundle: lastFrom(g.config, g.inventory), Source: g.bundle.source.Name, Contents: map[string]string{}}
	complete = true
	lost := g.historyLost()
	for _, d := range inOrder {
		v, there := g.installed[d]
		if !there || (!lost && !g.runs(d)) {
			continue
		}
		id := matrix.ReleaseID{Driver: d, Version: v}.String()
		rev.Releases = append(rev.Releases, id)
		if made := g.contentOf(id); made != "" {
			rev.Contents[string(d)] = made
		}
		complete = complete && g.inventory.Complete(d) == v.String()
	}
	return rev, complete
}

// contentOf is what the objects of a release were made of, "" where they do not agree.
func (s *site) contentOf(release string) string {
	all := map[string]bool{}
	for _, e := range s.inventory.Entries() {
		if _, made, _ := strings.Cut(e.Content, "/"); e.Release == release {
			all[made] = true
		}
	}
	if len(all) != 1 {
		return ""
	}
	return slices.Collect(maps.Keys(all))[0]
}
