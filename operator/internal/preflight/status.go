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
	out := limited{v1alpha1.PreflightStatus{Verdict: Worst(results).String()}}
	var listed []Result
	for _, r := range results {
		if r.Action == Pass && r.Override == nil {
			out.Passed++
			continue
		}
		listed = append(listed, r)
	}
	for _, r := range listed {
		out.Results = append(out.Results, r.status())
	}
	out.limit()
	return &out.PreflightStatus
}

// Merged is a status with what the checks of the bundle ([CheckImages]) find now in the place
// of what they found before. Those that pass are not counted. A nil status is none.
func Merged(was *v1alpha1.PreflightStatus, now []Result) *v1alpha1.PreflightStatus {
	if was == nil {
		return nil
	}
	out := limited{*was.DeepCopy()}
	out.Results = slices.DeleteFunc(out.Results, func(r v1alpha1.PreflightResult) bool { return ID(r.ID).OfBundle() })
	for _, r := range now {
		if r.Action != Pass || r.Override != nil {
			out.Results = append(out.Results, r.status())
		}
	}
	out.limit()
	out.Verdict = Worst(Listed(&out.PreflightStatus)).String()
	return &out.PreflightStatus
}

// limited is a status that lists no more than it may.
type limited struct{ v1alpha1.PreflightStatus }

// limit puts the gravest results first, and counts those that are too many.
func (l *limited) limit() {
	all := Listed(&l.PreflightStatus)
	at := make([]int, len(all))
	for n := range at {
		at[n] = n
	}
	slices.SortStableFunc(at, func(a, b int) int { return cmp.Compare(all[b].gravity(), all[a].gravity()) })
	decisive, rest := decisiveFirst(all, at)
	fit := fitting(all, decisive, rest)
	l.Omitted += len(all) - len(fit)
	var kept []v1alpha1.PreflightResult
	for _, n := range fit {
		kept = append(kept, l.Results[n])
	}
	l.Results = kept
}

// fitting are the first ones of an order that are listed. What the bundle lacks is found anew each
// time, and would be counted each time: it goes before what is not decisive.
func fitting(all []Result, decisive, rest []int) []int {
	others := func(n int) bool { return !all[n].ID.OfBundle() }
	kept := slices.Concat(decisive, slices.DeleteFunc(slices.Clone(rest), others))
	for _, n := range rest {
		if others(n) {
			kept = append(kept, n)
		}
	}
	kept = kept[:min(len(kept), maxListed)]
	return slices.DeleteFunc(slices.Concat(decisive, rest), func(n int) bool { return !slices.Contains(kept, n) })
}

// decisiveFirst puts first what each driver is held back for, so that it is listed however
// much else there is: what a status lists keeps back the same as all results do. The order is
// of places in all.
func decisiveFirst(all []Result, sorted []int) (first, rest []int) {
	seen := map[string]bool{}
	decisive := func(r Result) bool {
		if r.Action < BlockUpgrade {
			return false
		}
		news := false
		for _, d := range r.Drivers {
			key := string(d) + r.Action.String()
			if r.Stops {
				key += " stops"
			}
			news = news || !seen[key]
			seen[key] = true
		}
		return news
	}
	for _, n := range sorted {
		if decisive(all[n]) {
			first = append(first, n)
		} else {
			rest = append(rest, n)
		}
	}
	return first, rest
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

// Listed reads results back from a status. An action that is not known, such as Disabled, keeps
// nothing back.
func Listed(st *v1alpha1.PreflightStatus) []Result {
	if st == nil {
		return nil
	}
	out := make([]Result, 0, len(st.Results))
	for i := range st.Results {
		s := &st.Results[i]
		r := Result{ID: ID(s.ID), On: s.VCenter, Objects: s.Objects, Count: s.Count, Stops: s.StopsDriver, Found: s.Found, Why: s.Why, Remedy: s.Remedy}
		if r.Action.UnmarshalText([]byte(s.Action)) != nil {
			r.Action = Pass
		}
		r.Severity = severity(r.Action)
		for _, d := range s.Drivers {
			r.Drivers = append(r.Drivers, matrix.Driver(d))
		}
		out = append(out, r)
	}
	return out
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
	n := limit - len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}
