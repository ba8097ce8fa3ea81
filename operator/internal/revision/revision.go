// Package revision is the history of what one VDOConfig was installed from: values
// that name a bundle and the releases chosen from it, and what became of each. It is pure.
//
// A [Revision] is a bundle, REPOSITORY@DIGEST, and the releases that were chosen from it.
// Its name is the beginning of a hash of both: the same bundle and releases have the same name
// whenever they are chosen, whatever else was begun before.
//
// # Where it is kept
//
// The [History] is a part of the inventory, which is written before anything else is. Beside it each
// revision that is retained has an immutable ConfigMap (see [ConfigMapName]) of what it consists of, a
// [Manifest] under the key [DataKey]; and the copy of its bundle stays in the cluster as
// long as the ConfigMap is there. So neither repair nor rollback needs the mirror.
//
// # What becomes of a revision
//
//	Progressing  is rolled out; of one revision at most
//	Healthy      was seen healthy, all of it; what a rollback goes to
//	Failed       was not healthy within the deadline, and there was nothing to go back to
//	RolledBack   likewise, and the one before was put back
//	Superseded   another one took its place before it was healthy; or it was taken over as it
//	             runs, and was not seen healthy yet
package revision

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
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
	// Contents are hashes of what each driver's release is made of, by driver: bundles that have the
	// same of it roll nothing out.
	Contents map[string]string `json:"contents,omitempty"`
	// Bundles are those of drivers whose release comes from another bundle, by driver: something gated
	// them when the revision was begun.
	Bundles map[string]string `json:"bundles,omitempty"`
}

// BundleOf returns the bundle that a driver's release comes from.
func (r Revision) BundleOf(driver string) string { return cmp.Or(r.Bundles[driver], r.Bundle) }

// Hash identifies the bundle's digest, the releases, and what of them comes from other bundles.
func (r Revision) Hash() string {
	parts := append([]string{r.Bundle}, r.Releases...)
	for _, d := range slices.Sorted(maps.Keys(r.Bundles)) {
		parts = append(parts, d+"="+r.Bundles[d])
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])
}

// Same tells whether both are of the same bundle and releases.
func (r Revision) Same(other Revision) bool { return r.Hash() == other.Hash() }

// Name returns the revision's name: "r-" and 128 bits of its hash.
func (r Revision) Name() string { return "r-" + r.Hash()[:32] }

// Called tells whether a name is the revision's, or the one that programs before v0.1 gave it, such as
// r12-3fa9c1d2, under which somebody may have consented to it. The latter is to be dropped in v0.2.
func (r Revision) Called(name string) bool {
	number, hash, ok := strings.Cut(strings.TrimPrefix(name, "r"), "-")
	_, err := strconv.Atoi(number)
	return name == r.Name() || (ok && err == nil && hash == r.Hash()[:8])
}

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

// Record is a revision with what became of it.
type Record struct {
	// Number tells which of several was first begun before others.
	Number int `json:"number"`
	Revision
	// Made is when it was first begun.
	Made    time.Time `json:"made"`
	Outcome Outcome   `json:"outcome"`
	Reason  string    `json:"reason,omitempty"`
	// Since is when the outcome came about.
	Since time.Time `json:"since"`
	// Healthy is when it was last seen healthy; a revision that failed since has none.
	Healthy time.Time `json:"healthy,omitzero"`
	// Changed are the drivers that it changed or added when it was begun: it fails for their sake.
	Changed []string `json:"changed,omitzero"`
	// Returned is set of one that a rollback put back.
	Returned bool `json:"returned,omitempty"`
	// Approval is who consented to it, where somebody had to.
	Approval *Approval `json:"approval,omitempty"`
	// Attempt says under which circumstances it was last tried: while they are the same
	// a revision that failed is not tried again.
	Attempt Attempt `json:"attempt,omitzero"`
	// Canary is set of an upgrade that chosen nodes have first.
	Canary *Canary `json:"canary,omitempty"`
	// ImageNames is how pods were last told to name its images.
	ImageNames v1alpha1.ImageNames `json:"imageNames,omitempty"`
	// Gate is how far it has come, while it is Progressing.
	Gate *Gate `json:"gate,omitempty"`
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
	Retry      string `json:"retry,omitempty"`      // the wish that there was: see [History.Asks]
}

// Canary is how an upgrade fares on the nodes that have it first.
type Canary struct {
	// Passed is set once they were healthy for long enough: the others follow.
	Passed bool `json:"passed,omitempty"`
	// Good is since when they are healthy, the zero time while they are not, and Soaked for
	// how many seconds; it counts by looks.
	Good   time.Time `json:"good,omitzero"`
	Soaked int64     `json:"soaked,omitempty"`
}

// Open tells whether only chosen nodes may have it. The zero pointer is of a revision that
// all nodes have.
func (c *Canary) Open() bool { return c != nil && !c.Passed }

// Gate is how far a roll-out has come. Time counts by looks: what passes between two of
// them counts as a look's at most, so that the time in which nobody looked does not.
type Gate struct {
	Seen time.Time `json:"seen"`
	// Spent is the time without progress, in seconds.
	Spent int64 `json:"spent"`
	// Mark is the highest progress that was seen, in pods that are updated and that are
	// available; of Wanted pods each. Lent is what was taken off it for pods that are not
	// wanted any more.
	Mark   int64 `json:"mark"`
	Wanted int64 `json:"wanted,omitempty"`
	Lent   int64 `json:"lent,omitempty"`
	// Before are the findings that there were already when the roll-out was begun.
	Before []string `json:"before,omitempty"`
	// Good is since when all is healthy, the zero time while something is not.
	Good time.Time `json:"good,omitzero"`
}

// Rescaled is the gate where another number of pods is wanted: what nodes that have left had
// is not made up for by others, and when as many come back that is no progress.
func (g Gate) Rescaled(wanted, progress int64) Gate {
	change := 2 * (wanted - g.Wanted)
	switch {
	case g.Wanted == 0:
	case change < 0:
		mark := min(g.Mark, max(g.Mark+change, progress))
		g.Lent, g.Mark = g.Lent+g.Mark-mark, mark
	case change > 0:
		back := min(g.Lent, change)
		g.Lent, g.Mark = g.Lent-back, g.Mark+back
	}
	g.Wanted = wanted
	return g
}
