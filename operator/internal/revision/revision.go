// Package revision has the history of what a VDOConfig was installed from: bundles, the releases chosen from them, and
// the outcome of each. This history is a part of the inventory. The package is pure.
//
// # Groups
//
// Drivers that start, fail and roll back together are a [Group]: the network plug-in; the cloud provider; the storage
// driver with the snapshot-controller. Each group has its own [History].
//
// A [Revision] is a bundle, REPOSITORY@DIGEST, and the releases of one group that were chosen from it. Its name is the
// beginning of a hash of both, so the same bundle and releases always have the same name. The candidate of all groups
// is named in the same way: people approve it.
//
// # Outcomes
//
//	Progressing  is being rolled out; at most one revision of a group
//	Healthy      was completely healthy; a rollback may return to it
//	Failed       was not healthy within the deadline, and a rollback had no target
//	RolledBack   was not healthy within the deadline, and a rollback replaced it
//	Superseded   another revision replaced it before it was healthy
package revision

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Group is a set of drivers that change together, named by its main driver.
type Group = matrix.Driver

// Groups are all groups, in order of installation.
var Groups = []Group{matrix.CNI, matrix.CPI, matrix.CSI}

// GroupOf returns the group of a driver.
func GroupOf(d matrix.Driver) Group {
	if d == matrix.SnapshotController {
		return matrix.CSI
	}
	return d
}

// Outcome is the result of a revision's rollout.
type Outcome string

// All outcomes.
const (
	Progressing Outcome = "Progressing"
	Healthy     Outcome = "Healthy"
	Failed      Outcome = "Failed"
	RolledBack  Outcome = "RolledBack"
	Superseded  Outcome = "Superseded"
)

// Revision is a bundle and the releases chosen from it.
type Revision struct {
	// Bundle is REPOSITORY@DIGEST.
	Bundle string `json:"bundle"`
	// Source is the name of the DriverBundle that accepted the bundle.
	Source string `json:"source,omitempty"`
	// Releases are in order of installation, such as "csi@3.5.1".
	Releases []string `json:"releases"`
	// Contents are hashes of each driver's release, by driver. A bundle with the same hashes starts no rollout.
	Contents map[matrix.Driver]string `json:"contents,omitempty"`
}

// Hash returns a hash of the bundle's digest and the releases.
func (r Revision) Hash() string {
	return image.DigestOf([]byte(strings.Join(append([]string{r.Bundle}, r.Releases...), "\n"))).Hex()
}

// Same reports whether both have the same bundle and releases.
func (r Revision) Same(other Revision) bool { return r.Hash() == other.Hash() }

// Equal reports whether both install the same: they are the same, or their contents are known to be.
func (r Revision) Equal(other Revision) bool {
	if r.Same(other) {
		return true
	}
	return slices.Equal(r.Releases, other.Releases) && !slices.ContainsFunc(r.Drivers(), func(d matrix.Driver) bool {
		return r.Contents[d] == "" || r.Contents[d] != other.Contents[d]
	})
}

// Name returns the revision's name: "r-" and 128 bits of its hash.
func (r Revision) Name() string { return "r-" + r.Hash()[:32] }

// Called reports whether a name is the revision's, or one of programs before v0.1, such as r12-3fa9c1d2. An
// approval may use the latter, which is dropped in v0.2.
func (r Revision) Called(name string) bool {
	number, hash, ok := strings.Cut(strings.TrimPrefix(name, "r"), "-")
	_, err := strconv.Atoi(number)
	return name == r.Name() || (ok && err == nil && hash == r.Hash()[:8])
}

// Version returns the version of a driver's release, zero if none.
func (r Revision) Version(d matrix.Driver) (v matrix.Version) {
	for _, text := range r.Releases {
		if of, is, _ := strings.Cut(text, "@"); of == string(d) {
			v, _ = matrix.ParseVersion(is) //nolint:errcheck // only versions are recorded
		}
	}
	return v
}

// Drivers returns the drivers that the revision has releases of.
func (r Revision) Drivers() (all []matrix.Driver) {
	for _, text := range r.Releases {
		d, _, _ := strings.Cut(text, "@")
		all = append(all, matrix.Driver(d))
	}
	return all
}

// Group returns the group of a revision of one group.
func (r Revision) Group() Group {
	for _, d := range r.Drivers() {
		return GroupOf(d)
	}
	return ""
}

// Of returns a group's part of a revision; false if it has none.
func (r Revision) Of(g Group) (Revision, bool) {
	part := Revision{Bundle: r.Bundle, Source: r.Source}
	for i, d := range r.Drivers() {
		if GroupOf(d) != g {
			continue
		}
		part.Releases = append(part.Releases, r.Releases[i])
		if is := r.Contents[d]; is != "" {
			if part.Contents == nil {
				part.Contents = map[matrix.Driver]string{}
			}
			part.Contents[d] = is
		}
	}
	return part, len(part.Releases) > 0
}

// Record is a revision with its outcome.
type Record struct {
	// Number orders revisions by their first start.
	Number int `json:"number"`
	Revision
	// Made is when it first started.
	Made    time.Time `json:"made"`
	Outcome Outcome   `json:"outcome"`
	Reason  string    `json:"reason,omitempty"`
	// Since is the time of the outcome.
	Since time.Time `json:"since"`
	// Healthy is when it was last seen healthy, zero if it failed since.
	Healthy time.Time `json:"healthy,omitzero"`
	// Returned is set if a rollback made it current.
	Returned bool `json:"returned,omitempty"`
	// Approval is set if its last start was approved.
	Approval *Approval `json:"approval,omitempty"`
	// Attempt has the circumstances of the last try: of its start, then of its failure. A failed revision is not tried
	// again until they change.
	Attempt Attempt `json:"attempt,omitzero"`
	// Canary is set if canary nodes get it first.
	Canary *Canary `json:"canary,omitempty"`
	// ImageNames is how its pods last named images.
	ImageNames v1alpha1.ImageNames `json:"imageNames,omitempty"`
	// Progress is set while the outcome is Progressing.
	Progress *Progress `json:"gate,omitempty"`
}

// Failed reports whether the revision failed or was rolled back.
func (r Record) Failed() bool { return r.Outcome == Failed || r.Outcome == RolledBack }

// Approval is who approved a revision, and when the operator saw it.
type Approval struct {
	By   string    `json:"by"`
	Seen time.Time `json:"seen"`
}

// Consent is an approval as a group first saw it. A later candidate does not void it.
type Consent struct {
	Name string   `json:"name"`          // that was approved, as in the VDOConfig
	Part Revision `json:"part,omitzero"` // the group's part of that
	// Revision is the name of that part, which programs before v0.1 recorded instead; it is dropped in v0.2.
	Revision string `json:"revision,omitempty"`
}

// Covers reports whether the approval is of a revision with that content, also in another bundle.
func (c *Consent) Covers(r Revision) bool {
	return c != nil && (c.Part.Equal(r) || c.Revision == r.Name())
}

// Attempt are the circumstances of a try. A failed revision is tried again if they change.
type Attempt struct {
	Program    string `json:"program,omitempty"`
	Generation int64  `json:"generation,omitempty"` // of the VDOConfig
	Retry      string `json:"retry,omitempty"`      // the retry request: a revision's name and more
}

// Asks reports whether a retry request names one of the revisions and differs from the one of the attempt before.
func (a Attempt) Asks(before Attempt, revisions ...Revision) bool {
	name, _, _ := strings.Cut(a.Retry, " ")
	return a.Retry != before.Retry && slices.ContainsFunc(revisions, func(r Revision) bool { return r.Called(name) })
}

// Canary is the state of an upgrade on its canary nodes.
type Canary struct {
	// Passed is set once they were healthy for long enough: the others follow.
	Passed bool `json:"passed,omitempty"`
	// Good is since when they are healthy, zero while they are not. Soaked is for how many seconds, counted
	// as in [Progress].
	Good   time.Time `json:"good,omitzero"`
	Soaked int64     `json:"soaked,omitempty"`
}

// Open reports whether only canary nodes may have the revision. It is false for nil: all nodes may.
func (c *Canary) Open() bool { return c != nil && !c.Passed }

// Progress is how far a rollout has come. At most two minutes count between two passes, so time without an
// operator does not.
type Progress struct {
	Seen time.Time `json:"seen"` // last pass, the zero time while the clock is paused
	// Spent is the time without progress, in seconds.
	Spent int64 `json:"spent"`
	// Mark is the progress so far among the Desired pods, in pods that are current and ready. Programs before v0.1 have
	// another number, as "mark".
	Mark    int64 `json:"done"`
	Desired int64 `json:"wanted,omitempty"`
	Peak    int64 `json:"peak,omitempty"` // the highest progress ever seen
	// Before are the findings that existed when the rollout started.
	Before []string `json:"before,omitempty"`
	// Good is since when everything is healthy, the zero time while it is not.
	Good time.Time `json:"good,omitzero"`
}

// VCenter is the last known state of a vCenter.
type VCenter struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Changed is when its version last changed, the zero time if never.
	Changed time.Time `json:"changed,omitzero"`
}
