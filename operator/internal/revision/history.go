package revision

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// History is all revisions of a VDOConfig that are remembered, by number. The zero value
// is of one that never installed anything. Values are not changed: operations return
// new ones.
type History struct {
	Current int      `json:"current,omitempty"` // number of the one in force; 0: none
	Last    int      `json:"last,omitempty"`    // highest number that was given
	Records []Record `json:"records,omitempty"`
	// Wish is the wish for another try that was acted on, while it is still there.
	Wish string `json:"wish,omitempty"`
}

// Asks tells whether a wish, which is a revision's name and what follows after a space, is
// for a revision, and was not acted on yet.
func (h History) Asks(wish string, r Revision) bool {
	return wish != h.Wish && r.Called(wishedFor(wish))
}

func wishedFor(wish string) string {
	name, _, _ := strings.Cut(wish, " ")
	return name
}

// Wished forgets a wish that was acted on once there is another one or none: the same may
// be asked for again after.
func (h History) Wished(wish string) History {
	if wish != h.Wish {
		h.Wish = ""
	}
	return h
}

// InForce returns the revision in force.
func (h History) InForce() (Record, bool) { return h.byNumber(h.Current) }

func (h History) byNumber(n int) (Record, bool) {
	for _, r := range h.Records {
		if r.Number == n && n > 0 {
			return r, true
		}
	}
	return Record{}, false
}

// Named returns a revision by its name.
func (h History) Named(name string) (Record, bool) {
	for _, r := range h.Records {
		if r.Name() == name {
			return r, true
		}
	}
	return Record{}, false
}

// Find returns the record of a revision that was begun before.
func (h History) Find(r Revision) (Record, bool) {
	for _, known := range h.Records {
		if known.Same(r) {
			return known, true
		}
	}
	return Record{}, false
}

// Beginning is how a revision is begun.
type Beginning struct {
	Now      time.Time
	Attempt  Attempt
	Approval *Approval
	Before   []string
	Canary   bool // chosen nodes have it first
	// Offered is what it was begun for, where not all of that could be: a retry may name it.
	Offered *Revision
}

// Begin puts a revision in force. One that was begun before goes on under its name, and was not
// seen healthy where it has something else of a driver now. The one that was in force is
// superseded, if it was not healthy yet.
func (h History) Begin(r Revision, b Beginning) History {
	rec, known := h.Find(r)
	if !known {
		rec = Record{Number: h.Last + 1, Made: b.Now}
	}
	if !maps.Equal(rec.Contents, r.Contents) {
		rec.Healthy = time.Time{}
	}
	was, had := h.InForce()
	if had && was.Outcome == Progressing && was.Gate != nil {
		b.Before = was.Gate.Before // what came since may be its doing
	}
	if rec.Number != h.Current {
		rec.Changed = slices.DeleteFunc(r.Drivers(), func(d string) bool {
			return was.Version(d) != "" &&
				!Changes(was.Revision, r, d)
		})
	}
	rec.Revision = r
	rec.Outcome, rec.Reason, rec.Since, rec.Returned = Progressing, "", b.Now, false
	rec.Attempt, rec.Gate = b.Attempt, &Gate{Seen: b.Now, Before: b.Before}
	rec.Approval, rec.Canary = b.Approval, nil
	if b.Canary {
		rec.Canary = &Canary{}
	}
	out := h.leave(b.Now)
	out.Current, out.Last = rec.Number, max(h.Last, rec.Number)
	name := wishedFor(b.Attempt.Retry)
	if rec.Called(name) || (b.Offered != nil && b.Offered.Called(name)) {
		out.Wish = b.Attempt.Retry
	}
	return out.With(rec)
}

// Changes reports whether a driver that both revisions have changes.
func Changes(from, to Revision, d string) bool {
	was, is := from.Version(d), to.Version(d)
	return was != "" && is != "" && (was != is || (from.Contents[d] != "" && to.Contents[d] != "" &&
		from.Contents[d] != to.Contents[d]))
}

// Adopt notes what runs and has no history; where all of it was seen rolled out it can be gone back
// to.
func (h History) Adopt(r Revision, complete bool, b Beginning) History {
	rec := Record{Number: h.Last + 1, Revision: r, Made: b.Now, Outcome: Superseded, Since: b.Now, Attempt: b.Attempt}
	if complete {
		rec.Outcome, rec.Healthy = Healthy, b.Now
	}
	out := h.clone()
	out.Current, out.Last = rec.Number, rec.Number
	return out.With(rec)
}

// leave notes that another one takes the place of the one in force.
func (h History) leave(now time.Time) History {
	was, ok := h.InForce()
	if ok && was.Outcome == Progressing {
		was.Outcome, was.Reason, was.Since = Superseded, "another revision took its place before it was healthy", now
	}
	if was.Gate = nil; ok {
		return h.With(was)
	}
	return h.clone()
}

// Fail notes that the revision in force is not healthy within its deadline. Where it had
// been healthy before it is not gone back to.
func (h History) Fail(reason string, now time.Time) History {
	rec, ok := h.InForce()
	if !ok {
		return h
	}
	rec.Outcome, rec.Reason, rec.Since, rec.Healthy, rec.Gate = Failed, reason, now, time.Time{}, nil
	return h.With(rec)
}

// RollBack puts an earlier revision back in force.
func (h History) RollBack(to string, now time.Time) History {
	target, ok := h.Named(to)
	was, had := h.InForce()
	if !ok || !had || target.Number == was.Number {
		return h
	}
	was.Outcome, was.Since, was.Gate = RolledBack, now, nil
	target.Outcome, target.Since, target.Returned, target.Gate, target.Canary = Progressing, now, true, nil, nil
	target.Reason = "put back in the place of " + was.Name()
	out := h.With(was).With(target)
	out.Current = target.Number
	return out
}

// Succeed notes that the revision in force is healthy.
func (h History) Succeed(now time.Time) History {
	rec, ok := h.InForce()
	if !ok || (rec.Outcome == Healthy && !rec.Healthy.IsZero()) {
		return h
	}
	rec.Outcome, rec.Since, rec.Healthy, rec.Gate = Healthy, now, now, nil
	if !rec.Returned {
		rec.Reason = ""
	}
	return h.With(rec)
}

// WithGate notes how far the revision in force has come.
func (h History) WithGate(g Gate) History {
	rec, ok := h.InForce()
	if !ok {
		return h
	}
	rec.Gate = &g
	return h.With(rec)
}

// WithImageNames notes how pods name the images of the revision in force.
func (h History) WithImageNames(names v1alpha1.ImageNames) History {
	rec, ok := h.InForce()
	if !ok || rec.ImageNames == names {
		return h
	}
	rec.ImageNames = names
	return h.With(rec)
}

// WithCanary notes how the revision in force fares on the nodes that have it first.
func (h History) WithCanary(c Canary) History {
	rec, ok := h.InForce()
	if !ok {
		return h
	}
	rec.Canary = &c
	return h.With(rec)
}

// Targets returns what the revision in force can be gone back from to, the last one that
// was healthy first: those that were seen healthy and have all of its drivers.
func (h History) Targets() []Record {
	cur, ok := h.InForce()
	if !ok {
		return nil
	}
	var all []Record
	for _, r := range h.Records {
		if r.Number == cur.Number || r.Healthy.IsZero() || r.Failed() || r.Same(cur.Revision) {
			continue
		}
		if !slices.ContainsFunc(cur.Drivers(), func(d string) bool { return r.Version(d) == "" }) {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b Record) int {
		return cmp.Or(b.Healthy.Compare(a.Healthy), cmp.Compare(b.Number, a.Number))
	})
	return all
}

// maxRemembered is how many revisions are remembered that are not retained: that they
// failed, above all.
const maxRemembered = 10

// Retained returns the records of the revision in force and of the last few healthy ones
// beside it, and of the bundles that drivers of theirs come from: those whose bundles stay in the
// cluster.
func (h History) Retained(limit int) []Record {
	var all []Record
	if cur, ok := h.InForce(); ok {
		all = append(all, cur)
	}
	healthy := slices.DeleteFunc(slices.Clone(h.Records), func(r Record) bool { return r.Number == h.Current || r.Healthy.IsZero() })
	slices.SortStableFunc(healthy, func(a, b Record) int {
		return cmp.Or(b.Healthy.Compare(a.Healthy), cmp.Compare(b.Number, a.Number))
	})
	return h.withSources(append(all, healthy[:min(len(healthy), max(limit, 0))]...))
}

// withSources adds to records the newest ones of the bundles that drivers of theirs come from.
func (h History) withSources(all []Record) []Record {
	out := all
	for _, r := range all {
		for _, d := range r.Drivers() {
			of := func(o Record) bool { return o.Bundle == r.BundleOf(d) }
			if slices.ContainsFunc(out, of) {
				continue
			}
			if o, ok := h.OfBundle(r.BundleOf(d)); ok {
				out = append(out, o)
			}
		}
	}
	return out
}

// OfBundle returns the newest record of a bundle.
func (h History) OfBundle(bundle string) (Record, bool) {
	for _, r := range slices.Backward(h.Records) {
		if r.Bundle == bundle {
			return r, true
		}
	}
	return Record{}, false
}

// beforeBundles is what follows a driver in the keys of contents that programs before v0.1 wrote of a
// driver that comes from another bundle.
const beforeBundles = "/bundle"

// Imported returns the history with Bundles in the place of those keys. To be dropped in v0.2.
func (h History) Imported() History {
	out := h.clone()
	for i, r := range h.Records {
		rec := &out.Records[i]
		rec.Contents = maps.Clone(r.Contents)
		for key := range r.Contents {
			d, is := strings.CutSuffix(key, beforeBundles)
			if !is {
				continue
			}
			delete(rec.Contents, key)
			for _, o := range slices.Backward(h.Records) {
				if o.Contents[d+beforeBundles] == "" && o.Contents[d] == r.Contents[d] && o.Version(d) == r.Version(d) {
					if rec.Bundles == nil {
						rec.Bundles = map[string]string{}
					}
					rec.Bundles[d] = o.Bundle
					break
				}
			}
		}
	}
	return out
}

// Bounded forgets what is neither retained nor among the last few of the others.
func (h History) Bounded(limit int) History {
	keep := map[int]bool{}
	for _, r := range h.Retained(limit) {
		keep[r.Number] = true
	}
	out := h.clone()
	slices.SortStableFunc(out.Records, func(a, b Record) int { return cmp.Or(b.Since.Compare(a.Since), cmp.Compare(b.Number, a.Number)) })
	others := 0
	out.Records = slices.DeleteFunc(out.Records, func(r Record) bool {
		if keep[r.Number] || (r.Healthy.IsZero() && others < maxRemembered) {
			others += boolInt(!keep[r.Number])
			return false
		}
		return true
	})
	slices.SortFunc(out.Records, func(a, b Record) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (h History) clone() History {
	h.Records = slices.Clone(h.Records)
	return h
}

// With returns the history with a record put in, or replaced by its number.
func (h History) With(rec Record) History {
	out := h.clone()
	for i := range out.Records {
		if out.Records[i].Number == rec.Number {
			out.Records[i] = rec
			return out
		}
	}
	out.Records = append(out.Records, rec)
	return out
}
