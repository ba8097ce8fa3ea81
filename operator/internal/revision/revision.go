// Package revision is the history of what one VDOConfig was installed from: values
// that name a bundle and the releases chosen from it, and what became of each. It is pure.
//
// A [Revision] is a bundle, REPOSITORY@DIGEST, and the releases that were chosen from it.
// Its name, such as r12-3fa9c1d2, is a number that grows and the beginning of a hash of
// both: the same bundle and releases make the same hash whenever they are chosen, and one
// that was made before is the same revision again.
//
// # Where it is kept
//
// The [History] is a part of the inventory, which is written before anything else is and
// kept twice: a status that is lost loses no failure. Beside it each revision that is
// retained has an immutable ConfigMap (see [ConfigMapName]) of what it consists of, a
// [Manifest] under the key [DataKey]; and the copy of its bundle stays in the cluster as
// long as the ConfigMap is there. So neither repair nor rollback needs the mirror.
//
// # What keeps it from being forged
//
// A revision brings objects and images into the cluster, and whoever may write ConfigMaps
// could write one. So each is sealed with the operator's own key when it is first begun,
// which only a bundle is that was accepted under the trust policy of then. One without a
// good seal is never installed from. Its bundle is read as its digest says.
//
// # What becomes of a revision
//
//	Progressing  is rolled out; of one revision at most
//	Healthy      was seen healthy, all of it; what a rollback goes to
//	Failed       was not healthy within the deadline, and there was nothing to go back to
//	RolledBack   likewise, and the one before was put back
//	Superseded   another one took its place before it was healthy
package revision

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outcome is what became of a revision.
type Outcome string

// The outcomes.
const (
	Progressing Outcome = "Progressing"
	Healthy     Outcome = "Healthy"
	Failed      Outcome = "Failed"
	RolledBack  Outcome = "RolledBack"
	Superseded  Outcome = "Superseded"
)

// Revision is what is installed from.
type Revision struct {
	// Bundle is REPOSITORY@DIGEST.
	Bundle string `json:"bundle"`
	// Source is the name of the DriverBundle that accepted it.
	Source string `json:"source,omitempty"`
	// Releases in order of installation, such as "csi@3.5.1".
	Releases []string `json:"releases"`
	// Contents are hashes of what the bundle has of each driver's release, by driver:
	// bundles that have the same of it roll nothing out.
	Contents map[string]string `json:"contents,omitempty"`
}

// Hash identifies the bundle's digest and the releases.
func (r Revision) Hash() string {
	sum := sha256.Sum256([]byte(r.Bundle + "\n" + strings.Join(r.Releases, "\n")))
	return hex.EncodeToString(sum[:])
}

// Same tells whether both are of the same bundle and releases.
func (r Revision) Same(other Revision) bool { return r.Hash() == other.Hash() }

// Name returns the name that the revision has under a number.
func (r Revision) Name(number int) string { return fmt.Sprintf("r%d-%s", number, r.Hash()[:8]) }

// Version returns the version of a driver's release, "" where there is none.
func (r Revision) Version(driver string) string {
	for _, id := range r.Releases {
		if d, v, _ := strings.Cut(id, "@"); d == driver {
			return v
		}
	}
	return ""
}

// Drivers returns the drivers that there are releases of.
func (r Revision) Drivers() []string {
	all := make([]string, 0, len(r.Releases))
	for _, id := range r.Releases {
		d, _, _ := strings.Cut(id, "@")
		all = append(all, d)
	}
	return all
}

// Seal returns the seal of a revision under a key.
func (r Revision) Seal(key []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "vdo.vmware.com/revision/v1\n%s\n%s\n%s\n", r.Bundle, r.Source, strings.Join(r.Releases, "\n"))
	return hex.EncodeToString(mac.Sum(nil))
}

// Record is a revision with what became of it.
type Record struct {
	Number int `json:"number"`
	Revision
	Seal string `json:"seal"`
	// Made is when it was first begun.
	Made    time.Time `json:"made"`
	Outcome Outcome   `json:"outcome"`
	Reason  string    `json:"reason,omitempty"`
	// Since is when the outcome came about.
	Since time.Time `json:"since"`
	// Healthy is when it was last seen healthy; a revision that failed since has none.
	Healthy time.Time `json:"healthy,omitzero"`
	// Returned is set of one that a rollback put back.
	Returned bool `json:"returned,omitempty"`
	// Approval is who consented to it, where somebody had to.
	Approval *Approval `json:"approval,omitempty"`
	// Attempt says under which circumstances it was last tried: while they are the same
	// a revision that failed is not tried again.
	Attempt Attempt `json:"attempt,omitzero"`
	// Gate is how far it has come, while it is Progressing.
	Gate *Gate `json:"gate,omitempty"`
}

// Name returns the record's name.
func (r Record) Name() string { return r.Revision.Name(r.Number) }

// Sealed tells whether the seal is good.
func (r Record) Sealed(key []byte) bool {
	return len(key) > 0 && hmac.Equal([]byte(r.Seal), []byte(r.Revision.Seal(key)))
}

// Failed tells whether it is known to fail.
func (r Record) Failed() bool { return r.Outcome == Failed || r.Outcome == RolledBack }

// Approval is who consented to a revision, and when that was seen.
type Approval struct {
	By   string    `json:"by"`
	Seen time.Time `json:"seen"`
}

// Attempt is what a failed revision may be tried again for, where it has changed.
type Attempt struct {
	Program    string `json:"program,omitempty"`
	Generation int64  `json:"generation,omitempty"` // of the VDOConfig
	Retry      string `json:"retry,omitempty"`      // the wish that was last acted on
}

// Gate is how far a roll-out has come. Time counts by looks: what passes between two of
// them counts as a look's at most, so that the time in which nobody looked does not.
type Gate struct {
	Seen time.Time `json:"seen"`
	// Spent is the time without progress, in seconds.
	Spent int64 `json:"spent"`
	// Mark is the highest progress that was seen, in pods.
	Mark int64 `json:"mark"`
	// Before are the findings that there were already when the roll-out was begun.
	Before []string `json:"before,omitempty"`
	// Good is since when all is healthy, the zero time while something is not.
	Good time.Time `json:"good,omitzero"`
	// Canary is since when the first nodes are healthy, and Passed is set once they were
	// for as long as was asked for.
	Canary time.Time `json:"canary,omitzero"`
	Passed bool      `json:"passed,omitempty"`
}

// History is all revisions of a VDOConfig that are remembered, by number. The zero value
// is of one that never installed anything. Values are not changed: operations return
// new ones.
type History struct {
	Current int      `json:"current,omitempty"` // number of the one in force; 0: none
	Last    int      `json:"last,omitempty"`    // highest number that was given
	Records []Record `json:"records,omitempty"`
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

// NameOf returns the name that a revision has, or will have when it is begun next.
func (h History) NameOf(r Revision) string {
	if known, ok := h.Find(r); ok {
		return known.Name()
	}
	return r.Name(h.Last + 1)
}

// Beginning is how a revision is begun.
type Beginning struct {
	Now      time.Time
	Key      []byte // of seals
	Attempt  Attempt
	Approval *Approval
	Before   []string
}

// Begin puts a revision in force. One that was begun before goes on under its name. The
// one that was in force is superseded, if it was not healthy yet.
func (h History) Begin(r Revision, b Beginning) History {
	rec, known := h.Find(r)
	if !known {
		rec = Record{Number: h.Last + 1, Made: b.Now}
	}
	rec.Revision, rec.Seal = r, r.Seal(b.Key)
	rec.Outcome, rec.Reason, rec.Since, rec.Returned = Progressing, "", b.Now, false
	rec.Attempt, rec.Gate = b.Attempt, &Gate{Seen: b.Now, Before: b.Before}
	rec.Approval = b.Approval
	out := h.leave(b.Now)
	out.Current, out.Last = rec.Number, max(h.Last, rec.Number)
	return out.with(rec)
}

// Adopt notes what an earlier program installed; where all of it was seen rolled out it
// can be gone back to.
func (h History) Adopt(r Revision, complete bool, b Beginning) History {
	rec := Record{Number: h.Last + 1, Revision: r, Seal: r.Seal(b.Key), Made: b.Now, Outcome: Superseded, Since: b.Now, Attempt: b.Attempt}
	if complete {
		rec.Outcome, rec.Healthy = Healthy, b.Now
	}
	out := h.clone()
	out.Current, out.Last = rec.Number, rec.Number
	return out.with(rec)
}

// leave notes that another one takes the place of the one in force.
func (h History) leave(now time.Time) History {
	was, ok := h.InForce()
	if ok && was.Outcome == Progressing {
		was.Outcome, was.Reason, was.Since = Superseded, "another revision took its place before it was healthy", now
	}
	if was.Gate = nil; ok {
		return h.with(was)
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
	return h.with(rec)
}

// RollBack puts an earlier revision back in force.
func (h History) RollBack(to string, now time.Time) History {
	target, ok := h.Named(to)
	was, had := h.InForce()
	if !ok || !had || target.Number == was.Number {
		return h
	}
	was.Outcome, was.Since, was.Gate = RolledBack, now, nil
	target.Outcome, target.Since, target.Returned, target.Gate = Progressing, now, true, nil
	target.Reason = "put back in the place of " + was.Name()
	out := h.with(was).with(target)
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
	return h.with(rec)
}

// Seal seals the revision in force anew, after its key was lost.
func (h History) Seal(key []byte) History {
	rec, ok := h.InForce()
	if !ok || rec.Sealed(key) {
		return h
	}
	rec.Seal = rec.Revision.Seal(key)
	return h.with(rec)
}

// WithGate notes how far the revision in force has come.
func (h History) WithGate(g Gate) History {
	rec, ok := h.InForce()
	if !ok {
		return h
	}
	rec.Gate = &g
	return h.with(rec)
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
// beside it: those whose bundles stay in the cluster.
func (h History) Retained(limit int) []Record {
	var all []Record
	if cur, ok := h.InForce(); ok {
		all = append(all, cur)
	}
	healthy := slices.DeleteFunc(slices.Clone(h.Records), func(r Record) bool { return r.Number == h.Current || r.Healthy.IsZero() })
	slices.SortStableFunc(healthy, func(a, b Record) int {
		return cmp.Or(b.Healthy.Compare(a.Healthy), cmp.Compare(b.Number, a.Number))
	})
	return append(all, healthy[:min(len(healthy), max(limit, 0))]...)
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

func (h History) with(rec Record) History {
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
