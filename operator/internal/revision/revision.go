// Package revision is the history of what one VDOConfig was installed from: values
// that name a bundle and the releases chosen from it, and what became of each. It is pure.
//
// # Groups
//
// Drivers that start, fail and roll back together are a [Group]: the network plug-in; the cloud provider;
// the storage driver with the snapshot-controller. Each group has a [History] of its own.
//
// A [Revision] is a bundle, REPOSITORY@DIGEST, and the releases of one group that were chosen from it.
// Its name is the beginning of a hash of both: the same bundle and releases have the same name
// whenever they are chosen, whatever else was begun before. All that a bundle offers, over the groups,
// is named in the same way: people approve that.
//
// # Where it is kept
//
// The [Histories] are a part of the inventory, which is written before anything else is. Copies of the bundles of
// revisions that are in force or may be gone back to stay in the cluster (package store). So neither repair nor rollback
// needs the mirror.
//
// # What becomes of a revision
//
//	Progressing  is rolled out; of one revision of a group at most
//	Healthy      was seen healthy, all of it; what a rollback goes to
//	Failed       was not healthy within the deadline, and there was nothing to go back to
//	RolledBack   likewise, and the one before was put back
//	Superseded   another one took its place before it was healthy
package revision

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Group are drivers that change together, by the one that the others are for.
type Group = matrix.Driver

// Groups are all of them, in order of installation.
var Groups = []Group{matrix.CNI, matrix.CPI, matrix.CSI}

// GroupOf returns the group of a driver.
func GroupOf(d matrix.Driver) Group {
	if d == matrix.SnapshotController {
		return matrix.CSI
	}
	return d
}

// Outcome is what became of a revision.
type Outcome string

// What can become of one.
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
}

// Hash identifies the bundle's digest and the releases.
func (r Revision) Hash() string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{r.Bundle}, r.Releases...), "\n")))
	return hex.EncodeToString(sum[:])
}

// Same reports whether both are of the same bundle and releases.
func (r Revision) Same(other Revision) bool { return r.Hash() == other.Hash() }

// Equal reports whether both install the same: they are the same, or are known to be made of the same.
func (r Revision) Equal(other Revision) bool {
	if r.Same(other) {
		return true
	}
	return slices.Equal(r.Releases, other.Releases) && !slices.ContainsFunc(r.Drivers(), func(d string) bool {
		return r.Contents[d] == "" || r.Contents[d] != other.Contents[d]
	})
}

// Name returns the revision's name: "r-" and 128 bits of its hash.
func (r Revision) Name() string { return "r-" + r.Hash()[:32] }

// Called tells whether a name is the revision's, or the one that programs before v0.1 gave it, such as
// r12-3fa9c1d2, under which someone may have consented to it. The latter is to be dropped in v0.2.
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

// Group returns the group of a revision that is of one.
func (r Revision) Group() Group {
	for _, d := range r.Drivers() {
		return GroupOf(matrix.Driver(d))
	}
	return ""
}

// Of returns the part of a revision that is a group's; false where it has none.
func (r Revision) Of(g Group) (Revision, bool) {
	part := Revision{Bundle: r.Bundle, Source: r.Source}
	for _, id := range r.Releases {
		d, _, _ := strings.Cut(id, "@")
		if GroupOf(matrix.Driver(d)) != g {
			continue
		}
		part.Releases = append(part.Releases, id)
		if is := r.Contents[d]; is != "" {
			if part.Contents == nil {
				part.Contents = map[string]string{}
			}
			part.Contents[d] = is
		}
	}
	return part, len(part.Releases) > 0
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
	// Returned is set of one that a rollback put back.
	Returned bool `json:"returned,omitempty"`
	// Approval is who consented to it, where someone had to.
	Approval *Approval `json:"approval,omitempty"`
	// Attempt says under which circumstances it was last tried: while they are the same
	// a revision that failed is not tried again.
	Attempt Attempt `json:"attempt,omitzero"`
	// Canary is set of an upgrade that canary nodes have first.
	Canary *Canary `json:"canary,omitempty"`
	// ImageNames is how pods were last told to name its images.
	ImageNames v1alpha1.ImageNames `json:"imageNames,omitempty"`
	// Progress is how far it has come, while it is Progressing.
	Progress *Progress `json:"gate,omitempty"`
}

// Failed tells whether it is known to fail.
func (r Record) Failed() bool { return r.Outcome == Failed || r.Outcome == RolledBack }

// Approval is who consented to a revision, and when that was seen.
type Approval struct {
	By   string    `json:"by"`
	Seen time.Time `json:"seen"`
}

// Consent is an approval as a group has seen it first: what else is chosen later does not void it.
type Consent struct {
	Name     string `json:"name"`     // that was approved, as the VDOConfig says
	Revision string `json:"revision"` // name of the group's part of that
}

// Attempt is what a failed revision may be tried again for, where it has changed.
type Attempt struct {
	Program    string `json:"program,omitempty"`
	Generation int64  `json:"generation,omitempty"` // of the VDOConfig
	Retry      string `json:"retry,omitempty"`      // the wish that there was, a revision's name and what follows
}

// Asks tells whether the wish for another try is for a revision by one of its names, after an attempt that was made
// with another wish or without one.
func (a Attempt) Asks(before Attempt, revisions ...Revision) bool {
	name, _, _ := strings.Cut(a.Retry, " ")
	return a.Retry != before.Retry && slices.ContainsFunc(revisions, func(r Revision) bool { return r.Called(name) })
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

// Open tells whether only canary nodes may have it. The zero pointer is of a revision that
// all nodes have.
func (c *Canary) Open() bool { return c != nil && !c.Passed }

// Progress is how far a rollout has come. Time counts by looks: what passes between two of
// them counts as a look's at most, so that the time in which no one looked does not.
type Progress struct {
	Seen time.Time `json:"seen"`
	// Spent is the time without progress, in seconds.
	Spent int64 `json:"spent"`
	// Mark is the highest progress that was seen, in pods that are updated and that are
	// available; of Wanted pods each.
	Mark    int64 `json:"mark"`
	Desired int64 `json:"wanted,omitempty"`
	// Before are the findings that there were already when the rollout was begun.
	Before []string `json:"before,omitempty"`
	// Good is since when all is healthy, the zero time while something is not.
	Good time.Time `json:"good,omitzero"`
}

// VCenter is a vCenter as it was last seen.
type VCenter struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Changed is when another version of it was first seen, the zero time where there never
	// was one.
	Changed time.Time `json:"changed,omitzero"`
}
