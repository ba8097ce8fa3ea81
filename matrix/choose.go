package matrix

import (
	"fmt"
	"slices"
)

// choose takes the best release of a driver that has what it requires.
func (q *question) choose(d Driver) (pick, bool) {
	fit, _ := q.fitting(d)
	for _, r := range fit {
		if p, lack := q.equip(r); lack == nil {
			p.why = q.why(r, len(fit))
			return p, true
		}
	}
	return pick{}, false
}

func (q *question) why(r Release, of int) string {
	lts := q.policy.Rules[r.Driver] == PreferLT
	switch {
	case !q.pin(r.Driver).IsZero():
		return "is pinned"
	case of == 1:
		return "is the only release that fits"
	case lts && r.State == LTS:
		return fmt.Sprintf("is the newest lts release of the %d that fit", of)
	case lts:
		return fmt.Sprintf("is the newest of the %d releases that fit, none of which is lts", of)
	}
	return fmt.Sprintf("is the newest of the %d releases that fit", of)
}

// lack is a requirement that cannot be met, and why.
type lack struct {
	need Requirement
	why  string
}

func (l lack) String() string { return fmt.Sprintf("needs %s: %s", l.need, l.why) }

// equip finds what a release requires, or says what is lacking.
func (q *question) equip(r Release) (p pick, lacking *lack) {
	p = pick{release: r, needs: map[Driver]Release{}}
	for _, need := range r.Requires {
		if _, own := q.provided(); own && need.Driver == SnapshotController {
			p.waived = append(p.waived, need)
			continue
		}
		found, why := q.supply(need)
		switch {
		case why == "":
			p.needs[need.Driver] = found
		case need.Optional:
			p.unmet = append(p.unmet, need)
		default:
			return pick{}, &lack{need, why}
		}
	}
	return p, nil
}

// supply finds the best release that meets a requirement, or says why there is none.
func (q *question) supply(need Requirement) (Release, string) {
	if q.disabled(need.Driver) {
		return Release{}, "it is disabled"
	}
	fit, rejected := q.fitting(need.Driver)
	for _, r := range fit {
		if need.Version.IsZero() || r.Version.Equal(need.Version) {
			return r, ""
		}
	}
	for _, no := range rejected {
		if no.Release.Version.Equal(need.Version) {
			return Release{}, no.Detail
		}
	}
	if !need.Version.IsZero() {
		return Release{}, "the matrix does not list it"
	}
	return Release{}, "none fits"
}

// complete adds what the choices require: an exact version takes the place of one
// that was chosen freely.
func (q *question) complete(chosen map[Driver]pick) {
	csi, ok := chosen[CSI]
	if !ok {
		return
	}
	for d, r := range csi.needs {
		if current, there := chosen[d]; there && (current.release.Version.Equal(r.Version) || !exact(csi.release, d)) {
			continue
		}
		chosen[d] = pick{release: r, why: fmt.Sprintf("is what %s requires", csi.release.ReleaseID)}
	}
}

func exact(r Release, d Driver) bool {
	return slices.ContainsFunc(r.Requires, func(n Requirement) bool { return n.Driver == d && !n.Version.IsZero() })
}
