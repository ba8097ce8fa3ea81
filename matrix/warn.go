package matrix

import (
	"cmp"
	"fmt"
	"slices"
)

// warnings returns information for an administrator; chosen is nil if Resolve refuses.
func (q *question) warnings(chosen map[Driver]pick) []Warning {
	var out []Warning
	for _, d := range Drivers() {
		out = append(out, q.ofInstalled(d, chosen)...)
		if p, ok := chosen[d]; ok {
			out = append(out, q.ofChoice(p)...)
		}
	}
	if chosen != nil {
		out = append(out, q.ofSites(chosen)...)
	}
	slices.SortStableFunc(out, func(a, b Warning) int {
		return cmp.Or(a.Release.Compare(b.Release), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Text, b.Text))
	})
	return out
}

func warn(code WarningCode, id ReleaseID, format string, args ...any) Warning {
	return Warning{Code: code, Release: id, Text: fmt.Sprintf("%s %s", id, fmt.Sprintf(format, args...))}
}

// ofInstalled returns the warnings about the running release, requested or not.
func (q *question) ofInstalled(d Driver, chosen map[Driver]pick) []Warning {
	v := q.facts.Installed[d]
	if v.IsZero() {
		return nil
	}
	id, out := ReleaseID{d, v}, []Warning(nil)
	switch r, listed := q.find(d, v); {
	case !listed:
		out = append(out, warn(WarnInstalledUnknown, id, "runs, and the matrix does not list it"))
	case r.State == Withdrawn:
		out = append(out, warn(WarnInstalledWithdrawn, id, "runs, and is withdrawn: %s", withdrawn(r)))
	default:
		if unfit := cmp.Or(q.wrongKubernetes(r), q.wrongVSphere(r)); unfit != "" {
			out = append(out, warn(WarnInstalledUnfit, id, "runs, and does not fit: %s", unfit))
		}
	}
	if p, ok := chosen[d]; ok && p.release.Version.LessThan(v) {
		out = append(out, warn(WarnDowngrade, p.release.ReleaseID, "is older than %s, which runs", v))
	}
	return out
}

func (q *question) ofChoice(p pick) []Warning {
	r, out := p.release, []Warning(nil)
	add := func(code WarningCode, format string, args ...any) {
		out = append(out, warn(code, r.ReleaseID, format, args...))
	}
	if r.State == Deprecated {
		add(WarnDeprecated, "is deprecated: %s", r.Reason)
	}
	if r.Kubernetes.Derived {
		add(WarnDerived, "rests on a Kubernetes range that no vendor states: %s%s", r.Kubernetes, from(r.Kubernetes.Basis, false))
	}
	if r.VSphere.Derived {
		add(WarnDerived, "rests on a vSphere range that no vendor states: %s%s", r.VSphere, from(r.VSphere.Basis, false))
	}
	for _, need := range p.waived {
		why, _ := q.provided()
		add(WarnRequirementWaived, "requires %s, which the site has to provide: %s", need, why)
	}
	for _, need := range p.unmet {
		_, why := q.supply(need)
		add(WarnRequirementUnmet, "recommends %s, which is not chosen: %s", need, why)
	}
	return out
}

// ofSites returns the vCenter facts that could not be checked.
func (q *question) ofSites(chosen map[Driver]pick) []Warning {
	var out []Warning
	for _, d := range []Driver{CPI, CSI} {
		p, ok := chosen[d]
		if !ok || (p.release.VSphere.Min.IsZero() && p.release.VSphere.Max.IsZero()) {
			continue
		}
		id := p.release.ReleaseID
		if len(q.sites) == 0 {
			out = append(out, warn(WarnVSphereUnchecked, id, "needs vSphere %s, and no vCenter was given to check it", p.release.VSphere))
		}
		for _, s := range q.sites {
			if s.assumed {
				out = append(out, warn(WarnVSphereAssumed, id, "needs vSphere %s: %s is of unknown build, so check that it is %s", p.release.VSphere, s, s.effective))
			}
		}
	}
	return out
}
