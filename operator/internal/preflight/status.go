package preflight

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// A status lists at most maxListed results, each of some 1.5 kB at most: what the checks
// find does not let a resource outgrow what the API server stores.
const (
	maxListed = 24
	maxText   = 384 // bytes of what was found, and of the remedy
	maxWhy    = 160
	maxObject = 120 // bytes of an object's name
)

// Status writes results as a VDOConfig's status has them: those that did not pass or were
// turned down, the gravest first. When they were found, and to which question, is left to
// the caller.
func Status(results []Result) *v1alpha1.PreflightStatus {
	out := &v1alpha1.PreflightStatus{Verdict: Worst(results).String(), Results: written(results)}
	out.Passed = len(results) - len(out.Results)
	limit(out)
	return out
}

// Merged is a status with what the checks of the bundle ([CheckImages]) find now in the place
// of what they found before. Those that pass are not counted. A nil status is none.
func Merged(was *v1alpha1.PreflightStatus, now []Result) *v1alpha1.PreflightStatus {
	if was == nil {
		return nil
	}
	out := was.DeepCopy()
	out.Results = slices.DeleteFunc(out.Results, func(r v1alpha1.PreflightResult) bool { return ID(r.ID).OfBundle() })
	out.Results = append(out.Results, written(now)...)
	limit(out)
	out.Verdict = Worst(Listed(out)).String()
	return out
}

// written are results but for those that pass.
func written(results []Result) (out []v1alpha1.PreflightResult) {
	for _, r := range results {
		if r.Action != Pass || r.Override != nil {
			out = append(out, r.status())
		}
	}
	return out
}

// limit puts the gravest results first, and counts those that are too many. What each driver is
// blocked for goes before all else: a status blocks the same as all results do. Next comes what the
// bundle lacks, which is found and would be counted at each reconcile.
func limit(st *v1alpha1.PreflightStatus) {
	slices.SortStableFunc(st.Results, func(a, b v1alpha1.PreflightResult) int {
		return cmp.Compare(read(b).gravity(), read(a).gravity())
	})
	var first, bundle, others []v1alpha1.PreflightResult
	seen := map[matrix.Driver]bool{}
	for _, s := range st.Results {
		r, decides := read(s), false
		for _, d := range r.Drivers {
			decides = decides || r.Action == BlockInstall && !seen[d]
			seen[d] = true
		}
		switch {
		case decides:
			first = append(first, s)
		case r.ID.OfBundle():
			bundle = append(bundle, s)
		default:
			others = append(others, s)
		}
	}
	all := slices.Concat(first, bundle, others)
	st.Omitted += max(len(all)-maxListed, 0)
	st.Results = all[:min(len(all), maxListed)]
}

func (r Result) status() v1alpha1.PreflightResult {
	out := v1alpha1.PreflightResult{
		ID: string(r.ID), Action: r.Action.String(), VCenter: r.On, Count: r.Count, StopsDriver: r.Stops,
		Found: cut(r.Found, maxText), Why: cut(r.Why, maxWhy), Remedy: cut(r.Remedy, maxText),
	}
	for _, d := range r.Drivers {
		out.Drivers = append(out.Drivers, string(d))
	}
	for _, o := range r.Objects {
		out.Objects = append(out.Objects, cut(o, maxObject))
	}
	if o := r.Override; o != nil {
		out.Override = &v1alpha1.PreflightOverride{Was: o.Was.String(), Reason: o.Reason}
		if o.To == v1alpha1.PreflightDisabled {
			out.Action = string(v1alpha1.PreflightDisabled)
		}
	}
	return out
}

// Listed reads results back from a status.
func Listed(st *v1alpha1.PreflightStatus) (out []Result) {
	if st == nil {
		return nil
	}
	for _, s := range st.Results {
		out = append(out, read(s))
	}
	return out
}

// read reads a result back. An action that is not known, such as Disabled, keeps nothing back.
func read(s v1alpha1.PreflightResult) Result {
	r := Result{ID: ID(s.ID), On: s.VCenter, Objects: s.Objects, Count: s.Count, Stops: s.StopsDriver, Found: s.Found, Why: s.Why, Remedy: s.Remedy}
	_ = r.Action.UnmarshalText([]byte(s.Action))
	r.Severity = severity(r.Action)
	for _, d := range s.Drivers {
		r.Drivers = append(r.Drivers, matrix.Driver(d))
	}
	return r
}

// oneLine puts a text on one line. What a vCenter says is shown on terminals: it moves no
// cursor there and turns no direction of writing.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if fault.Control(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ReplaceAll(s, "\n", "; "))
}

// cut cuts a text to some bytes at a character's border, saying so, and puts it on one line.
func cut(s string, limit int) string {
	s = oneLine(s)
	if len(s) <= limit {
		return s
	}
	const mark = "…"
	return strings.ToValidUTF8(s[:limit-len(mark)], "") + mark
}
