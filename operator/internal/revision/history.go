package revision

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// History has the remembered revisions of a group, by number. The zero value is a group that was never
// installed. Values do not change: methods return new ones.
type History struct {
	Current int      `json:"current,omitempty"` // number of the current revision; 0: none
	Last    int      `json:"last,omitempty"`    // highest number given so far
	Records []Record `json:"records,omitempty"`
	// Consent is the last approval of a candidate; nil if none.
	Consent *Consent `json:"consent,omitempty"`
}

// Consented records an approval by its name, "" for none, if it names the candidate of all groups or the
// group's part of it. A recorded one stays while its name does.
func (h History) Consented(name string, candidate, part Revision) History {
	switch {
	case h.Consent != nil && h.Consent.Name == name:
	case name != "" && (candidate.Called(name) || part.Called(name)):
		h.Consent = &Consent{Name: name, Part: part}
	default:
		h.Consent = nil
	}
	return h
}

// InForce returns the current revision.
func (h History) InForce() (Record, bool) { return h.ByNumber(h.Current) }

// ByNumber returns a revision by its number.
func (h History) ByNumber(n int) (Record, bool) {
	return h.first(func(r Record) bool { return r.Number == n && n > 0 })
}

// Named returns a revision by its name.
func (h History) Named(name string) (Record, bool) {
	return h.first(func(r Record) bool { return r.Name() == name })
}

// Find returns the record of a revision that started before.
func (h History) Find(r Revision) (Record, bool) {
	return h.first(func(known Record) bool { return known.Same(r) })
}

func (h History) first(is func(Record) bool) (Record, bool) {
	if i := slices.IndexFunc(h.Records, is); i >= 0 {
		return h.Records[i], true
	}
	return Record{}, false
}

// Beginning has the circumstances of a start.
type Beginning struct {
	Now      time.Time
	Attempt  Attempt
	Approval *Approval
	Before   []string
	Canary   bool // canary nodes get it first
}

// Start makes a revision current. One that started before keeps its number, but counts as not healthy yet
// if its contents differ. The current revision is superseded if it was never healthy.
func (h History) Start(r Revision, b Beginning) History {
	rec, known := h.Find(r)
	if !known {
		rec = Record{Number: h.Last + 1, Made: b.Now}
	}
	if !maps.Equal(rec.Contents, r.Contents) {
		rec.Healthy = time.Time{}
	}
	was, had := h.InForce()
	if had && was.Outcome == Progressing && was.Progress != nil {
		b.Before = was.Progress.Before // findings since then may be its own faults
	}
	rec.Revision = r
	rec.Outcome, rec.Reason, rec.Since, rec.Returned = Progressing, "", b.Now, false
	rec.Attempt, rec.Progress = b.Attempt, &Progress{Seen: b.Now, Before: b.Before}
	rec.Approval, rec.Canary = b.Approval, nil
	if b.Canary {
		rec.Canary = &Canary{}
	}
	out := h.clone().changed(func(r *Record) { // another revision replaces it
		switch r.Progress = nil; {
		case r.Outcome != Progressing:
		case !r.Healthy.IsZero(): // before this rollout: a rollback may still return to it
			r.Outcome, r.Since = Healthy, r.Healthy
		default:
			r.Outcome, r.Reason, r.Since = Superseded, "another revision took its place before it was healthy", b.Now
		}
	})
	out.Current, out.Last = rec.Number, max(h.Last, rec.Number)
	return out.With(rec)
}

// Moved records that the current revision comes from another bundle with the same contents, or another DriverBundle.
func (h History) Moved(r Revision) History {
	cur, ok := h.InForce()
	if !ok {
		return h
	}
	out := h.clone()
	out.Records = slices.DeleteFunc(out.Records, func(o Record) bool { return o.Number != cur.Number && o.Same(r) })
	cur.Revision = r
	return out.With(cur)
}

// Changes reports whether a driver of both revisions changes.
func Changes(from, to Revision, d matrix.Driver) bool {
	was, is := from.Version(d).String(), to.Version(d).String()
	return was != "" && is != "" && (was != is || (from.Contents[d] != "" && to.Contents[d] != "" &&
		from.Contents[d] != to.Contents[d]))
}

// changed returns the history with the current revision changed, if any.
func (h History) changed(change func(*Record)) History {
	rec, ok := h.InForce()
	if !ok {
		return h
	}
	change(&rec)
	return h.With(rec)
}

// Fail records that the current revision was not healthy within its deadline. It is no rollback target
// then, even if it was healthy before. Changes since its start are a part of the try that failed.
func (h History) Fail(reason string, a Attempt, now time.Time) History {
	return h.changed(func(r *Record) {
		r.Attempt = a
		r.Outcome, r.Reason, r.Since, r.Healthy, r.Progress = Failed, reason, now, time.Time{}, nil
	})
}

// RollBack makes an earlier revision current.
func (h History) RollBack(to string, now time.Time) History {
	target, ok := h.Named(to)
	was, had := h.InForce()
	if !ok || !had || target.Number == was.Number {
		return h
	}
	was.Outcome, was.Since, was.Progress = RolledBack, now, nil
	target.Outcome, target.Since, target.Returned, target.Progress, target.Canary = Progressing, now, true, nil, nil
	target.Reason = "put back in the place of " + was.Name()
	out := h.With(was).With(target)
	out.Current = target.Number
	return out
}

// Succeed records that the current revision is healthy.
func (h History) Succeed(now time.Time) History {
	return h.changed(func(r *Record) {
		if r.Outcome == Healthy && !r.Healthy.IsZero() {
			return
		}
		r.Outcome, r.Since, r.Healthy, r.Progress, r.Canary = Healthy, now, now, nil, nil
		if !r.Returned {
			r.Reason = ""
		}
	})
}

// WithProgress records how far the current revision has come.
func (h History) WithProgress(g Progress) History {
	return h.changed(func(r *Record) { r.Progress = &g })
}

// WithImageNames records how pods name the images of the current revision.
func (h History) WithImageNames(names v1alpha1.ImageNames) History {
	return h.changed(func(r *Record) { r.ImageNames = names })
}

// WithCanary records the state of the current revision on its canary nodes.
func (h History) WithCanary(c Canary) History { return h.changed(func(r *Record) { r.Canary = &c }) }

// Targets returns the rollback targets of the current revision: healthy ones with all of its drivers. The
// last one that was healthy comes first.
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
		if !slices.ContainsFunc(cur.Drivers(), func(d matrix.Driver) bool { return r.Version(d).IsZero() }) {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, byHealth)
	return all
}

// byHealth orders records by when they were last healthy, latest first.
func byHealth(a, b Record) int {
	return cmp.Or(b.Healthy.Compare(a.Healthy), cmp.Compare(b.Number, a.Number))
}

// maxRemembered is how many revisions are remembered without being retained, mainly to know that they failed.
const maxRemembered = 10

// Retained returns the records of the current revision and the last few other healthy ones. Their bundles
// stay in the cluster.
func (h History) Retained(limit int) []Record {
	var all []Record
	if cur, ok := h.InForce(); ok {
		all = append(all, cur)
	}
	healthy := slices.DeleteFunc(slices.Clone(h.Records), func(r Record) bool { return r.Number == h.Current || r.Healthy.IsZero() })
	slices.SortStableFunc(healthy, byHealth)
	return append(all, healthy[:min(len(healthy), max(limit, 0))]...)
}

// Bounded drops all records but the retained ones and the last few of the others.
func (h History) Bounded(limit int) History {
	keep := map[int]bool{}
	for _, r := range h.Retained(limit) {
		keep[r.Number] = true
	}
	out := h.clone()
	slices.SortStableFunc(out.Records, func(a, b Record) int { return cmp.Or(b.Since.Compare(a.Since), cmp.Compare(b.Number, a.Number)) })
	others := 0
	out.Records = slices.DeleteFunc(out.Records, func(r Record) bool {
		if keep[r.Number] {
			return false
		}
		if r.Healthy.IsZero() {
			others++
		}
		return !r.Healthy.IsZero() || others > maxRemembered
	})
	slices.SortFunc(out.Records, func(a, b Record) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

func (h History) clone() History {
	h.Records = slices.Clone(h.Records)
	return h
}

// With returns the history with a record added, or replaced if it has its number.
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
