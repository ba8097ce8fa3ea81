package matrix

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Refusal is the error of [Resolve]. It names every release of the drivers without a fitting
// release, with the rule that refused it.
type Refusal struct {
	Facts      Facts
	Drivers    []Driver    // without a fitting release, in installation order
	Rejections []Rejection // sorted by driver, then version
	hint       string
}

func (q *question) refusal(drivers []Driver) *Refusal {
	out := &Refusal{Facts: q.facts, Drivers: drivers}
	var hints []string
	for _, d := range drivers {
		fit, rejected := q.fitting(d)
		for _, r := range fit {
			if _, lacking := q.equip(r); lacking != nil {
				rejected = append(rejected, Rejection{r.ReleaseID, RuleRequires, lacking.String()})
			}
		}
		slices.SortStableFunc(rejected, func(a, b Rejection) int { return a.Release.Compare(b.Release) })
		out.Rejections = append(out.Rejections, rejected...)
		hints = append(hints, q.remedy(d, fit))
	}
	slices.Sort(hints)
	out.hint = strings.Join(slices.Compact(hints), "; ")
	return out
}

// remedy returns the hint for the one rule without which a release of the driver would fit.
func (q *question) remedy(d Driver, fit []Release) string {
	if len(fit) > 0 {
		if _, lacking := q.equip(fit[0]); lacking != nil {
			return fmt.Sprintf("provide %s, which %s needs: %s", lacking.need, fit[0].ReleaseID, lacking.why)
		}
	}
	for _, rule := range []RejectionRule{RulePin, RuleBundle, RuleRefused, RuleVSphere, RuleKubernetes} {
		what := *q
		what.relaxed = rule
		if best, ok := what.choose(d); ok {
			return q.advice(rule, best.release)
		}
	}
	return fmt.Sprintf("use %s: this one has no %s for this site", Newer, d)
}

// Newer says where a matrix with more releases comes from.
const Newer = "a newer matrix (built into a newer vdo-bundle, or written by `vdo-bundle matrix add`)"

func (q *question) advice(rule RejectionRule, best Release) string {
	switch rule {
	case RulePin:
		hint := fmt.Sprintf("remove the pin of %s: without it %s fits", best.Driver, best.ReleaseID)
		if _, listed := q.find(best.Driver, q.pin(best.Driver)); !listed {
			hint += "; or use " + Newer
		}
		return hint
	case RuleBundle:
		holds := func(r Release) bool { return r.Driver == best.Driver && q.available[r.String()] }
		if !slices.ContainsFunc(q.releases, holds) {
			return fmt.Sprintf("the bundle has no %s: build one whose `vdo-bundle lock --drivers` names it too", best.Driver)
		}
		return fmt.Sprintf("build a bundle that holds %s", best.ReleaseID)
	case RuleRefused:
		return fmt.Sprintf("%s would fit, and is refused: %s", best.ReleaseID, q.policy.Refused[best.ReleaseID.String()])
	case RuleVSphere:
		if slices.ContainsFunc(q.sites, func(s site) bool { return !best.VSphere.Max.Covers(s.effective) }) {
			return fmt.Sprintf("use %s: the range of %s ends before a vCenter: %s", Newer, best.ReleaseID, best.VSphere)
		}
		return fmt.Sprintf("upgrade every vCenter into the range of %s: %s", best.ReleaseID, best.VSphere)
	case RuleKubernetes:
		return fmt.Sprintf("use a matrix that knows %s for Kubernetes %s, or a Kubernetes that %s serves: %s",
			best.Driver, q.minor, best.ReleaseID, best.Kubernetes)
	}
	return ""
}

// Error returns the refusal on one line.
func (r *Refusal) Error() string {
	lines := r.Lines()
	if len(lines) == 1 {
		return lines[0]
	}
	return lines[0] + ": " + strings.Join(lines[1:], "; ")
}

// Lines returns the refusal, and then one line for each rule and reason with the releases that it refused.
func (r *Refusal) Lines() []string {
	text := "no supported combination for " + r.Facts.String()
	if len(r.Drivers) > 0 {
		words := each(r.Drivers, func(d Driver) string { return string(d) })
		text = fmt.Sprintf("no release of %s fits %s", strings.Join(words, " and of "), r.Facts)
	}
	return append([]string{text}, r.groups()...)
}

// groups returns one text for each rule and detail of a driver, in the order of their first occurrence.
func (r *Refusal) groups() []string {
	type group struct {
		driver Driver
		rule   RejectionRule
		detail string
	}
	var order []group
	versions := map[group][]string{}
	for _, no := range r.Rejections {
		g := group{no.Release.Driver, no.Rule, no.Detail}
		if versions[g] == nil {
			order = append(order, g)
		}
		versions[g] = append(versions[g], no.Release.Version.String())
	}
	out := make([]string, len(order))
	for i, g := range order {
		out[i] = fmt.Sprintf("%s@%s: %s: %s", g.driver, strings.Join(versions[g], ", "), g.rule, g.detail)
	}
	return out
}

// String returns "Kubernetes 1.33.4 with vCenter vc1 8.0.3".
func (f Facts) String() string {
	text := "a Kubernetes of unknown version"
	if !f.Kubernetes.IsZero() {
		text = "Kubernetes " + f.Kubernetes.String()
	}
	if len(f.VCenters) == 0 {
		return text
	}
	sites := each(f.VCenters, func(v VCenter) string { return site{VCenter: v, effective: v.Version}.String() })
	return text + " with " + strings.Join(sites, " and ")
}

// Fault returns the refusal as a fault with the nearest remedy.
func (r *Refusal) Fault() *fault.Error {
	hint := cmp.Or(r.hint, "see `vdo-bundle matrix show` for what the matrix covers")
	return fault.Errorf(fault.Incompatible, "resolve", "drivers", hint, "%w", r)
}
